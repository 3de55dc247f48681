"""What is refused, and what goes wrong: always a problem document that states what to do next."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.connection import connect
from deputize.shared.fleet import Fleet
from deputize.shared.request import MAX_REQUEST_BYTES, MAX_TEXT_BYTES
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import READ_FILE, FakeService, worker_card
from tests.orchestrator.serving import served, settings
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

JSON = {"Content-Type": "application/json"}


def problem(answer: httpx2.Response) -> dict[str, Any]:
    """The document, after a look at what holds for every one."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "errors"}
    assert document["status"] == answer.status_code
    assert document["detail"]
    return document


@pytest.mark.requirement("P-01")
@pytest.mark.parametrize("task", ["", " \n\t "])
async def test_a_blank_task_is_refused_before_anything_is_written(real: httpx2.AsyncClient, task: str) -> None:
    document = problem(await real.post("/v1/delegations", json={"task": task}))
    assert document["status"] == 422
    assert document["errors"] == [{"pointer": "/task", "detail": "the task is blank; describe the work in words"}]
    assert (await real.get("/v1/delegations")).json()["items"] == []


@pytest.mark.requirement("P-02")
@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({"task": "t", "expectedOutcme": "x"}, "/expectedOutcme", "did you mean 'expectedOutcome'?"),
        ({"task": "t", "limits": {"maxTurn": 1}}, "/limits/maxTurn", "did you mean 'maxTurns'?"),
        ({"task": "t", "workspace": {"kind": "empty", "q": 1}}, "/workspace/q", "unknown key 'q'"),
    ],
)
async def test_an_unknown_key_is_named_with_the_closest_known_one(
    real: httpx2.AsyncClient, body: dict[str, Any], pointer: str, detail: str
) -> None:
    document = problem(await real.post("/v1/delegations", json=body))
    assert document["status"] == 422
    assert document["errors"][0]["pointer"] == pointer
    assert detail in document["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/task"),
        ({"task": 7}, "/task"),
        ({"task": "t", "limits": {"maxTurns": 0}}, "/limits/maxTurns"),
        ({"task": "t", "limits": {"maxToolCalls": -1}}, "/limits/maxToolCalls"),
        ({"task": "t", "limits": {"timeoutSeconds": -5}}, "/limits/timeoutSeconds"),
        ({"task": "t", "limits": {"maxCostUsd": -0.5}}, "/limits/maxCostUsd"),
        ({"task": "t", "priority": 10}, "/priority"),
        ({"task": "t", "approvalMode": "yolo"}, "/approvalMode"),
        ({"task": "t", "workspace": {"kind": "cloud"}}, "/workspace"),
        ({"task": "t", "workspace": {"kind": "directory", "path": "relative"}}, "/workspace/path"),
        ({"task": "t", "workspace": {"kind": "directory", "path": "/tmp/a\0b"}}, "/workspace/path"),
        ({"task": "t", "idempotencyKey": ""}, "/idempotencyKey"),
    ],
)
async def test_a_wrong_field_is_pointed_at(real: httpx2.AsyncClient, body: dict[str, Any], pointer: str) -> None:
    document = problem(await real.post("/v1/delegations", json=body))
    assert document["status"] == 422
    assert [mistake["pointer"] for mistake in document["errors"]] == [pointer]
    assert pointer in document["detail"] or "workspace" in document["detail"]


@pytest.mark.parametrize(
    ("check", "pointer"),
    [
        ({"run": ""}, "run"),
        ({"files": {"../a": "x"}}, "files/../a"),
        ({"files": {"/a": "x"}}, "files//a"),
        ({"files": {".git/hooks/a": "x"}}, "files/.git/hooks/a"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 1e9}, "timeoutSeconds"),
        ({"canary": "no patch"}, "canary"),
        ({"canary": "diff --git a/../x b/../x\n--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"}, "canary"),
        ({"hidden": 3}, "hidden"),
    ],
)
async def test_a_check_that_cannot_be_made_is_pointed_at(
    real: httpx2.AsyncClient, check: dict[str, Any], pointer: str
) -> None:
    asked = {"task": "t", "verify": [{"kind": "changed", "paths": ["a"]}, {"kind": "command", "run": "true"} | check]}
    document = problem(await real.post("/v1/delegations", json=asked))
    assert document["status"] == 422
    assert document["errors"][0]["pointer"].startswith(f"/verify/1/{pointer.split('/')[0]}")


@pytest.mark.parametrize(
    ("fields", "pointer", "detail"),
    [
        ({}, "/attempts", "checks decide which attempt is taken"),
        ({"verify": ["true"], "merges": ["dlg_a"]}, "/attempts", "each attempt begins anew"),
        ({"verify": ["true"], "attempts": {"count": 0}}, "/attempts/count", "1"),
        (
            {"verify": ["true"], "attempts": {"count": 2, "models": ["scripted", "scripted:/x"]}},
            "/attempts/models/1",
            "",
        ),
        ({"verify": ["true"], "attempts": {"count": 2, "efforts": ["low"]}}, "/attempts/efforts/0", "is a script"),
        ({"verify": ["true"], "model": "scripted:/x"}, "/model", "may not name a script"),
    ],
)
async def test_attempts_need_checks_and_models_that_there_are(
    real: httpx2.AsyncClient, fields: dict[str, Any], pointer: str, detail: str
) -> None:
    asked = {"task": "t", "model": "scripted", "attempts": {"count": 3}} | fields
    document = problem(await real.post("/v1/delegations", json=asked))
    assert document["status"] == 422
    assert document["errors"][0]["pointer"] == pointer
    assert detail in document["errors"][0]["detail"]


async def test_a_requirement_needs_a_check(real: httpx2.AsyncClient) -> None:
    document = problem(await real.post("/v1/delegations", json={"task": "t", "require": "verified"}))
    assert [mistake["pointer"] for mistake in document["errors"]] == ["/require"]
    assert "nothing is verified without a check in `verify`" in document["detail"]


@pytest.mark.parametrize(
    "verify",
    [
        [{"kind": "changed", "paths": ["a"]}] * 21,
        [{"kind": "command", "run": "true", "files": {"a": "x" * 600_000}}] * 2,
        [{"kind": "file", "path": "a", "matches": "("}],
        [{"kind": "unchanged", "paths": ["{a,b}{a,b}{a,b}{a,b}"]}],
    ],
    ids=["21 checks", "1.2 MB of files", "no regular expression", "too many alternatives"],
)
async def test_what_checks_may_be_is_bounded(real: httpx2.AsyncClient, verify: list[Any]) -> None:
    document = problem(await real.post("/v1/delegations", json={"task": "t", "verify": verify}))
    assert document["status"] == 422
    assert document["errors"][0]["pointer"].startswith("/verify")


async def test_a_field_that_asks_for_nothing_of_it_is_accepted(real: httpx2.AsyncClient) -> None:
    asked = {"task": "t", "verify": [], "outputSchema": {}, "maxVerifyRounds": 2, "workspace": {"kind": "empty"}}
    assert (await real.post("/v1/delegations", json=asked)).status_code == 202


async def test_several_mistakes_are_all_listed(http: httpx2.AsyncClient) -> None:
    body = {"task": "t", "priority": -1, "labels": {"a": 1}}
    document = problem(await http.post("/v1/delegations", json=body))
    assert [mistake["pointer"] for mistake in document["errors"]] == ["/labels/a", "/priority"]
    assert document["detail"].startswith("2 mistakes, the first is /labels/a")


async def test_an_unknown_tool_is_refused_with_close_matches(real: httpx2.AsyncClient, redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await Fleet(redis).announce(worker_card(), [READ_FILE])
    document = problem(await real.post("/v1/delegations", json={"task": "t", "tools": ["reed_file"]}))
    assert document["status"] == 422
    assert document["errors"] == [
        {"pointer": "/tools/0", "detail": 'unknown tool "reed_file"; did you mean read_file?'}
    ]


async def test_which_servers_there_are_only_a_worker_knows(real: httpx2.AsyncClient, redis_url: str) -> None:
    async with connect(redis_url) as redis:
        await Fleet(redis).announce(worker_card(), [READ_FILE])
    accepted = await real.post("/v1/delegations", json={"task": "t", "tools": ["mcp__git__log", "mcp__*"]})
    assert accepted.status_code == 202


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"task": "t"', b"nonsense", b'{"task": "\xff"}', b'{"task": "\\ud800"}', b"[" * 100_000],
    ids=["empty", "brace", "cut", "words", "not utf-8", "half a surrogate", "deep"],
)
async def test_what_is_not_json_is_a_bad_request(http: httpx2.AsyncClient, body: bytes) -> None:
    document = problem(await http.post("/v1/delegations", content=body, headers=JSON))
    assert document["status"] == 400
    assert "not valid JSON" in document["detail"]


@pytest.mark.parametrize("body", [b'{"task": "a", "task": "b"}', b'{"task": "a", "labels": {"k": "1", "k": "2"}}'])
async def test_of_two_values_with_the_same_key_none_is_chosen(http: httpx2.AsyncClient, body: bytes) -> None:
    document = problem(await http.post("/v1/delegations", content=body, headers=JSON))
    assert document["status"] == 400
    assert "is there twice" in document["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "gzip"])
async def test_a_body_that_does_not_say_it_is_json_is_refused(http: httpx2.AsyncClient, kind: str) -> None:
    """A page in a browser can send these types to localhost without asking; JSON it cannot."""
    headers = JSON | {"Content-Encoding" if kind == "gzip" else "Content-Type": kind}
    document = problem(await http.post("/v1/delegations", content=b'{"task":"t"}', headers=headers))
    assert document["status"] == 415


@pytest.mark.parametrize(
    ("query", "name", "detail"),
    [
        ("limit=0", "limit", ""),
        ("limit=501", "limit", ""),
        ("limit=x", "limit", ""),
        ("statuss=failed", "statuss", "unknown parameter 'statuss'"),
        ("label=team", "label", "'team' is not key:value"),
    ],
)
async def test_a_wrong_query_is_pointed_at(http: httpx2.AsyncClient, query: str, name: str, detail: str) -> None:
    document = problem(await http.get(f"/v1/delegations?{query}"))
    assert document["status"] == 422
    (mistake,) = document["errors"]
    assert mistake["pointer"] == f"/query/{name}"
    if detail:
        assert mistake["detail"] == detail


async def test_task_and_context_over_their_cap_are_refused_with_the_number(real: httpx2.AsyncClient) -> None:
    body = {"task": "t", "context": "ä" * (MAX_TEXT_BYTES // 2)}
    document = problem(await real.post("/v1/delegations", json=body))
    assert document["status"] == 413
    assert f"{MAX_TEXT_BYTES:,}" in document["detail"]


async def test_a_declared_size_over_the_cap_is_refused_unread(http: httpx2.AsyncClient) -> None:
    body = b'{"task":"' + b"x" * MAX_REQUEST_BYTES + b'"}'
    document = problem(await http.post("/v1/delegations", content=body, headers=JSON))
    assert document["status"] == 413
    assert f"{MAX_REQUEST_BYTES:,}" in document["detail"]


async def test_an_undeclared_body_is_read_no_further_than_the_cap(url: str) -> None:
    """The caller sends chunks until it is answered; the answer comes long before it would be through."""
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    writer.write(b"POST /v1/delegations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
    answer = asyncio.create_task(reader.readline())
    sent = 0
    while not answer.done():
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        sent += 0x10000
        assert sent < 10 * MAX_REQUEST_BYTES
        await asyncio.wait({answer}, timeout=0.001)
    writer.close()
    assert b" 413 " in answer.result()


ONE = {"task": "t"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "text"),
    [
        ({"requests": [ONE] * 1001}, {}, 422, "^/requests: .*1000"),
        (
            {"requests": [ONE, {"task": "t", "labels": {"a": "x" * MAX_REQUEST_BYTES}}]},
            {},
            413,
            f"{MAX_REQUEST_BYTES:,}",
        ),
        ({"requests": [ONE] * 100, "sharedContext": "x" * 1024 * 1000}, {}, 413, "sharedContext"),
        ({"requests": [ONE]}, {"Idempotency-Key": "k"}, 422, "a batch has no Idempotency-Key"),
    ],
    ids=["too many", "one over its own cap", "a context that multiplies past the caps", "a key of its own"],
)
async def test_a_batch_has_bounds_and_no_key(
    real: httpx2.AsyncClient, body: dict[str, Any], headers: dict[str, str], status: int, text: str
) -> None:
    document = problem(await real.post("/v1/delegations:batch", json=body, headers=headers))
    assert document["status"] == status
    assert re.search(text, document["detail"])


async def test_an_unknown_path_and_an_unknown_method_are_problems_too(http: httpx2.AsyncClient) -> None:
    assert problem(await http.get("/v2/delegations"))["status"] == 404
    answer = await http.delete("/v1/delegations")
    assert problem(answer)["status"] == 405
    assert answer.headers["allow"] == "GET, POST"


async def test_with_redis_away_the_answer_is_503_with_retry_after(redis_process: RedisProcess) -> None:
    using = settings(redis_url=redis_process.url)
    async with (
        served(lambda: open_service(using, redis_process.url), using) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as http,
    ):
        redis_process.kill()
        for answer in (await http.post("/v1/delegations", json={"task": "t"}), await http.get("/readyz")):
            assert problem(answer)["status"] == 503
            assert int(answer.headers["retry-after"]) > 0
        assert (await http.get("/livez")).json() == {"status": "alive"}
        redis_process.start()

        async def accepted() -> bool:
            return (await http.post("/v1/delegations", json={"task": "t"})).status_code == 202

        await until(accepted)


async def test_an_internal_error_is_logged_and_not_shown(
    http: httpx2.AsyncClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.away = RuntimeError("the secret plan")
    with caplog.at_level(logging.ERROR, "deputize"):
        answer = await http.get("/v1/workers", headers={"X-Request-ID": "mine-1"})
    assert problem(answer)["status"] == 500
    assert "secret" not in answer.text
    assert "mine-1" in answer.json()["detail"]
    (record,) = [record for record in caplog.records if record.name == "deputize"]
    assert vars(record)["request_id"] == "mine-1"
    assert record.exc_info
    assert "the secret plan" in str(record.exc_info[1])


async def test_every_answer_echoes_its_request_id(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/livez", headers={"X-Request-ID": "abc-1"})).headers["x-request-id"] == "abc-1"
    assert (await http.get("/nowhere")).headers["x-request-id"].startswith("req_")
    bad = await http.get("/livez", headers={"X-Request-ID": "with blanks in it"})
    assert bad.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("path", ["/livez", "/v1/delegations", "/nowhere"])
async def test_no_answer_is_kept_by_a_cache(http: httpx2.AsyncClient, path: str) -> None:
    assert (await http.get(path)).headers["cache-control"] == "no-store"
