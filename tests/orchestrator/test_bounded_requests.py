"""Requests of any size and shape: each is answered soon, with few words, and no other caller waits for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.delegations import Dispatcher
from deputize.orchestrator.dependencies import check_shape
from deputize.orchestrator.request_checks import MAX_SUGGESTIONS
from deputize.shared.connection import connect
from deputize.shared.errors import TooLarge
from deputize.shared.fleet import Fleet
from deputize.shared.settings import Settings
from deputize.shared.wire import MAX_MISTAKES
from tests.orchestrator.fake_service import READ_FILE, worker_card

JSON = {"Content-Type": "application/json"}
HUGE = 1_000_000
STILL_SECONDS = 2.0
"""On an idle machine a tenth of it; before there were bounds it was ten seconds and more."""


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def task(**fields: Any) -> bytes:
    return text({"task": "t"} | fields)


BODIES = {
    "8,000 unknown tools": task(tools=[f"unknown_tool_{n}" for n in range(8000)]),
    "100 unknown tools": task(tools=[f"unknown_tool_{n}" for n in range(100)]),
    "100 long unknown tools": task(tools=["reed_file" * 22 + str(n) for n in range(100)]),
    "100 tools that are nearly known": task(tools=[f"read_file{n}" for n in range(100)]),
    "100 patterns": task(tools=["*a" * 90 + str(n) for n in range(100)]),
    "one tool of a megabyte": task(tools=["x" * HUGE]),
    "one key of a megabyte": task(**{"x" * HUGE: 1}),
    "100,000 unknown keys": task(**{f"key{n}": n for n in range(100_000)}),
    "15,000 unknown keys": task(**{f"key{n}": n for n in range(15_000)}),
    "50 unknown keys": task(**{f"taks{n}": n for n in range(50)}),
    "100,000 labels": task(labels={f"key{n}": 1 for n in range(100_000)}),
    "10,000 labels": task(labels={f"key{n}": "v" for n in range(10_000)}),
    "10,000 checks": task(verify=[{}] * 10_000),
    "many empty lists": b'{"task": "t", "outputSchema": {"x": [' + b"[]," * 300_000 + b"[]]}}",
    "many short texts": b'{"task": "t", "tools": [' + b'"",' * 300_000 + b'""]}',
    "an open text": b'{"task": "' + b'\\"' * 500_000,
    "deep": b'{"task": "t", "outputSchema": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"}",
    "a long number": b'{"task": "t", "priority": ' + b"9" * HUGE + b"}",
    "a long session": task(sessionId="x" * HUGE),
    "a long model": task(model="scripted:" + "x" * HUGE),
    "a long directory": task(workspace={"kind": "directory", "path": "/" + "x" * HUGE}),
    "a long kind": task(workspace={"kind": "x" * HUGE}),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_request_of_any_shape_is_answered_soon_and_briefly(
    real: httpx2.AsyncClient, redis_url: str, name: str
) -> None:
    async with connect(redis_url) as redis:
        await Fleet(redis).announce(worker_card(), [READ_FILE])
    asked = asyncio.create_task(real.post("/v1/delegations", content=BODIES[name], headers=JSON))
    longest = 0.0
    while not asked.done():
        began = time.monotonic()
        assert (await real.get("/livez")).status_code == 200
        longest = max(longest, time.monotonic() - began)
    answer = await asked
    assert answer.status_code in (400, 413, 422), answer.text
    assert len(answer.json()["errors"]) <= MAX_MISTAKES
    tools = [mistake for mistake in answer.json()["errors"] if mistake["pointer"].startswith("/tools/")]
    assert sum("did you mean" in mistake["detail"] for mistake in tools) <= MAX_SUGGESTIONS
    assert longest < STILL_SECONDS


@pytest.mark.parametrize("item", [b"1", b"{}", b'{"task":"t"}', b'{"x":1}', b"[]"])
async def test_a_batch_of_millions_is_refused_before_it_is_read_into_objects(
    http: httpx2.AsyncClient, item: bytes
) -> None:
    body = b'{"requests":[' + (item + b",") * 1_000_000 + item + b"]}"
    answer = await http.post("/v1/delegations:batch", content=body, headers=JSON)
    assert answer.status_code == 413
    assert "values" in answer.json()["detail"]


@pytest.mark.parametrize("wrong", [{"maxTurn": 1}, {"tools": ["one", "two", "three"]}])
async def test_a_batch_with_mistakes_everywhere_names_only_so_many(
    real: httpx2.AsyncClient, redis_url: str, wrong: dict[str, Any]
) -> None:
    async with connect(redis_url) as redis:
        await Fleet(redis).announce(worker_card(), [READ_FILE])
    answer = await real.post("/v1/delegations:batch", json={"requests": [{"task": "t", **wrong}] * 1000})
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == MAX_MISTAKES


async def test_commas_of_texts_do_not_count() -> None:
    await check_shape(b'["' + b"," * 100 + b'", "\\",,,\\"", "a\\\\", 1]', 5)
    for body in (b"[1,1,1,1,1,1]", b'["\\\\",1,1,1,1,1]', b'"open' + b"," * 100 + b'",1,1,1,1,1'):
        with pytest.raises(TooLarge):
            await check_shape(body, 5)
    await check_shape(b'["open' + b"," * 100, 5)
    await check_shape(b'["open' + b"," * 100 + b"\\", 5)


@pytest.mark.parametrize("cursor", ["zzz", "dlg_", "dlg_" + "Z" * 26, "(dlg_x", "-", "+", "\0", "x" * 5000])
async def test_a_cursor_that_is_none_is_refused(http: httpx2.AsyncClient, cursor: str) -> None:
    """Page one instead would let its reader begin again for ever."""
    answer = await http.get("/v1/delegations", params={"cursor": cursor})
    assert answer.status_code == 422
    assert [mistake["pointer"] for mistake in answer.json()["errors"]] == ["/query/cursor"]


async def test_queries_are_bounded_too(http: httpx2.AsyncClient) -> None:
    for params in ({"label": ["a:b"] * 500}, {"session": "x" * 5000}, {f"x{n}": "1" for n in range(3000)}):
        answer = await http.get("/v1/delegations", params=params)
        assert answer.status_code == 422
        assert 1 <= len(answer.json()["errors"]) <= MAX_MISTAKES


async def test_what_has_no_ticket_does_not_wait_behind_other_dispatches(redis_url: str) -> None:
    let_go = threading.Event()
    async with Dispatcher(Settings(), redis_url) as dispatcher:
        busy = dispatcher._thread.submit(let_go.wait, 60)
        try:
            async with asyncio.timeout(5):
                await dispatcher.send([])
            assert not busy.done()
        finally:
            let_go.set()
