"""Following events over HTTP: in order, resumable, kept alive, and let go of at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.types import Message

from deputize.orchestrator.sse import EventStream, StreamSlots, event_json
from deputize.shared.errors import Unavailable
from deputize.shared.events import Envelope, Heartbeat, ProgressMade, RunFinished, TextDelta
from deputize.shared.request import DelegationRequest
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until


@pytest.fixture
async def id(service: FakeService) -> str:
    return (await service.create(DelegationRequest(task="t"))).delegation.id


@asynccontextmanager
async def following(http: httpx2.AsyncClient, id: str, **request: Any) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a stream that is open."""
    async with http.stream("GET", f"/v1/delegations/{id}/events", **request) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        yield answer.aiter_lines()


async def whole(http: httpx2.AsyncClient, id: str, **request: Any) -> str:
    async with http.stream("GET", f"/v1/delegations/{id}/events", **request) as answer:
        return (await answer.aread()).decode()


def frames(text: str) -> list[dict[str, str]]:
    return [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in text.split("\n\n") if frame]


@pytest.mark.requirement("P-12", "P-13")
async def test_a_stream_is_every_event_in_order_and_ends_after_the_last(
    http: httpx2.AsyncClient, service: FakeService, id: str
) -> None:
    service.happen(id, ProgressMade(message="one\nand a half"))
    service.happen(id, ProgressMade(message="two"))
    service.finish(id)
    text = await whole(http, id)
    assert [(frame["id"], frame["event"]) for frame in frames(text)] == [
        ("1", "run_queued"),
        ("2", "progress"),
        ("3", "progress"),
        ("4", "run_finished"),
    ]
    assert [frame["data"] for frame in frames(text)] == [envelope.to_json() for envelope in service.kept[id]]


async def test_live_events_come_as_they_happen(http: httpx2.AsyncClient, service: FakeService, id: str) -> None:
    async with following(http, id) as lines:
        assert [await anext(lines) for _ in range(2)] == ["id: 1", "event: run_queued"]
        await until(lambda: service.following)
        service.happen(id, Heartbeat(turn=1, tool_calls=0, elapsed_ms=5))
        assert json.loads((await anext(lines)).removeprefix("data: "))["type"] == "run_queued"
        # A transient event has no number, so there is no id to resume from.
        assert [await anext(lines) for _ in range(2)] == ["", "event: heartbeat"]


@pytest.mark.requirement("P-13")
@pytest.mark.parametrize(
    "request_", [{"headers": {"Last-Event-ID": "2"}}, {"params": {"after": 2}}], ids=["header", "query"]
)
async def test_resuming_yields_exactly_the_tail(
    http: httpx2.AsyncClient, service: FakeService, id: str, request_: dict[str, Any]
) -> None:
    for number in range(3):
        service.happen(id, ProgressMade(message=str(number)))
    service.finish(id)
    every = await whole(http, id)
    tail = await whole(http, id, **request_)
    assert [frame["id"] for frame in frames(tail)] == ["3", "4", "5"]
    assert every.endswith(tail)
    # A browser reconnects after the end of a stream, unless it is answered that nothing follows.
    over = await http.get(f"/v1/delegations/{id}/events", headers={"Last-Event-ID": "5"})
    assert (over.status_code, over.content) == (204, b"")


@pytest.mark.parametrize("after", [0, 1, 3])
async def test_when_a_browser_reconnects_its_header_beats_the_old_query(
    http: httpx2.AsyncClient, service: FakeService, id: str, after: int
) -> None:
    service.happen(id, ProgressMade(message="x"))
    service.happen(id, ProgressMade(message="y"))
    service.finish(id)
    tail = await whole(http, id, params={"after": after}, headers={"Last-Event-ID": "2"})
    assert [frame["id"] for frame in frames(tail)] == ["3", "4"]


async def test_a_cut_connection_loses_nothing_and_repeats_nothing(
    url: str, http: httpx2.AsyncClient, service: FakeService, id: str
) -> None:
    for number in range(4):
        service.happen(id, ProgressMade(message=str(number)))
    last, got = 0, []
    for _ in range(3):
        async with (
            httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url) as cut,
            following(cut, id, headers={"Last-Event-ID": str(last)}) as lines,
        ):
            async for line in lines:
                if line.startswith("id: "):
                    last = int(line.removeprefix("id: "))
                    got.append(last)
                    break
    service.finish(id)
    rest = await whole(http, id, headers={"Last-Event-ID": str(last)})
    assert got + [int(frame["id"]) for frame in frames(rest)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.requirement("P-13")
async def test_the_real_service_is_followed_through_a_cancellation_to_its_end(real: httpx2.AsyncClient) -> None:
    id = (await real.post("/v1/delegations", json={"task": "t"})).json()["id"]
    async with following(real, id) as lines:
        assert await anext(lines) == "id: 1"
        await real.post(f"/v1/delegations/{id}/cancel")
        rest = [line async for line in lines]
    assert [line for line in rest if line.startswith(("id", "event"))] == [
        "event: run_queued",
        "id: 2",
        "event: run_finished",
    ]
    assert (await real.get(f"/v1/delegations/{id}/events?after=1", headers={"Accept": "application/json"})).json() == [
        json.loads(rest[-2].removeprefix("data: "))
    ]


async def test_as_json_the_stored_events_come_as_a_list(
    http: httpx2.AsyncClient, service: FakeService, id: str
) -> None:
    service.happen(id, ProgressMade(message="x"))
    service.happen(id, TextDelta(turn=1, text="not kept"))
    answer = await http.get(f"/v1/delegations/{id}/events?after=1", headers={"Accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.text == f"[{service.kept[id][1].to_json()}]"


async def test_an_event_has_its_line_where_lines_are_wanted(
    http: httpx2.AsyncClient, service: FakeService, id: str
) -> None:
    hostile = 'a\nbé "<b>'
    service.happen(id, ProgressMade(message=hostile))
    service.finish(id)
    found = [json.loads(frame["data"]) for frame in frames(await whole(http, id, params={"lines": True}))]
    listed = await http.get(f"/v1/delegations/{id}/events?lines=true", headers={"Accept": "application/json"})
    assert listed.json() == found
    assert [event.pop("line") for event in found][:2] == [f"queued: {service.runs[id].request.title}", hostile]
    assert [event.pop("state", None) for event in found] == [{"now": ""}, {"now": hostile}, None]
    assert [json.dumps(event) for event in found] == [json.dumps(each.to_dict()) for each in service.kept[id]]


@pytest.mark.parametrize("wanted", [False, True])
async def test_the_stream_of_all_delegations_begins_now_and_has_no_ids(
    http: httpx2.AsyncClient, service: FakeService, id: str, wanted: bool
) -> None:
    other = (await service.create(DelegationRequest(task="u"))).delegation.id
    async with http.stream("GET", "/v1/events", params={"lines": wanted}) as answer:
        await until(lambda: service.following)
        sent = [service.happen(of, ProgressMade(message=of)) for of in (id, other)]
        lines = answer.aiter_lines()
        got = [await anext(lines) for _ in range(6)]
    data = [event_json(each, wanted) for each in sent]
    assert got == [line for each in data for line in ("event: progress", f"data: {each}", "")]


@pytest.mark.parametrize("path", ["delegation", "all"])
async def test_a_follower_is_let_go_when_its_caller_hangs_up(
    http: httpx2.AsyncClient, service: FakeService, id: str, path: str
) -> None:
    """Nothing happens any more, so it is not noticed by writing."""
    async with http.stream("GET", f"/v1/delegations/{id}/events" if path == "delegation" else "/v1/events"):
        await until(lambda: service.following)
    await until(lambda: not service.following)


async def test_a_follower_whose_caller_hung_up_while_it_was_written_to_is_let_go(
    http: httpx2.AsyncClient, service: FakeService, id: str
) -> None:
    async with http.stream("GET", f"/v1/delegations/{id}/events"):
        for _ in range(2000):
            service.happen(id, ProgressMade(message="x" * 10_000))
        await until(lambda: service.following)
    await until(lambda: not service.following)


@pytest.mark.parametrize("given", ["-1", "x", "1.5", "9" * 40])
async def test_a_position_that_is_none_is_refused(http: httpx2.AsyncClient, id: str, given: str) -> None:
    for params, headers in (({"after": given}, {}), ({}, {"Last-Event-ID": given})):
        answer = await http.get(f"/v1/delegations/{id}/events", params=params, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] in ("/query/after", "/header/Last-Event-ID")


class Caller:
    """The other side of an application: sends nothing, and writes down what it receives."""

    def __init__(self) -> None:
        self.got: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def send(self, message: Message) -> None:
        self.got.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.got).decode()


async def test_silence_is_filled_with_comments(service: FakeService, id: str) -> None:
    caller = Caller()
    stream = EventStream(service.follow(id), StreamSlots(1), keepalive=0.01)
    running = asyncio.create_task(stream({"type": "http"}, caller.receive, caller.send))
    await until(lambda: caller.text.count(": keepalive\n\n") >= 3)
    service.finish(id)
    await running
    assert [frame for frame in caller.text.split("\n\n") if frame and frame != ": keepalive"] == [
        f"id: {e.seq}\nevent: {e.event.type}\ndata: {e.to_json()}" for e in service.kept[id]
    ]
    assert caller.got[-1]["more_body"] is False


async def test_a_frame_is_made_once_for_all_streams_of_its_kind(service: FakeService, id: str) -> None:
    service.finish(id)

    async def chunks(**kind: bool) -> list[bytes]:
        caller = Caller()
        await EventStream(service.follow(id), StreamSlots(1), **kind)({"type": "http"}, caller.receive, caller.send)
        return [message["body"] for message in caller.got[1:-1]]

    one, with_lines, without_ids, other = (
        await chunks(),
        await chunks(lines=True),
        await chunks(numbered=False),
        await chunks(),
    )
    assert all(first is second for first, second in zip(one, other, strict=True))
    assert [b"id: " in chunk for chunk in one + without_ids] == [True, True, False, False]
    assert [b'"line":' in chunk for chunk in one + with_lines] == [False, False, True, True]


async def test_a_stream_that_redis_left_ends_early_so_that_callers_resume(service: FakeService, id: str) -> None:
    async def broken() -> AsyncGenerator[Envelope]:
        yield service.kept[id][0]
        raise Unavailable("Redis is away")

    caller = Caller()
    await EventStream(broken(), StreamSlots(1))({"type": "http"}, caller.receive, caller.send)
    assert "run_queued" in caller.text
    assert RunFinished.__name__ not in caller.text
    assert caller.got[-1]["more_body"] is False
