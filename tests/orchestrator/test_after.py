"""Delegations that wait for others: what the service accepts, what callers see, and what follows them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize import SyncOrchestrator
from deputize.shared.connection import connect
from deputize.shared.errors import Conflict, Invalid
from deputize.shared.ids import new_id
from deputize.shared.request import MAX_AFTER, DelegationRequest
from tests.fake_model import Turn, text
from tests.orchestrator.cli.following import called, finished_by_itself
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected, content
from tests.orchestrator.whole import Whole
from tests.runs.tickets import queue_keys
from tests.waiting import until


def after(*ids: str, **more: Any) -> dict[str, Any]:
    return {"after": [{"id": id, **more} for id in ids]}


async def test_what_waits_is_accepted_without_a_ticket(real: httpx2.AsyncClient, redis_url: str) -> None:
    first = (await real.post("/v1/delegations", json={"task": "first"})).json()["id"]
    answer = await real.post("/v1/delegations", json={"task": "second", **after(first)})
    assert (answer.status_code, answer.json()["status"], answer.json()["waitsFor"]) == (202, "queued", [first])
    assert answer.json()["request"]["after"] == [{"id": first, "require": "finished"}]
    async with connect(redis_url) as redis:
        assert sum([await redis.llen(key) for key in queue_keys()]) == 1
    cancelled = await real.post(f"/v1/delegations/{answer.json()['id']}/cancel")
    assert (cancelled.json()["status"], cancelled.json()["waitsFor"]) == ("cancelled", [])


async def test_an_unknown_id_is_refused_where_it_stands_and_nothing_is_accepted(real: httpx2.AsyncClient) -> None:
    first = (await real.post("/v1/delegations", json={"task": "first"})).json()["id"]
    gone = new_id()
    one = {"task": "t", **after(first, gone)}
    answer = await real.post("/v1/delegations", json=one)
    assert (answer.status_code, [each["pointer"] for each in answer.json()["errors"]]) == (422, ["/after/1/id"])
    assert f"there is no delegation {gone}" in answer.json()["detail"]
    batch = {"requests": [{"task": "t", "idempotencyKey": "a"}, {"task": "t", **after("a")}, one]}
    answer = await real.post("/v1/delegations:batch", json=batch)
    pointers = [each["pointer"] for each in answer.json()["errors"]]
    assert (answer.status_code, pointers) == (422, ["/requests/1/after/0/id", "/requests/2/after/1/id"])
    assert [each["id"] for each in (await real.get("/v1/delegations")).json()["items"]] == [first]


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ([{"id": "dlg_1", "require": "started"}], "/after/0/require"),
        ([{"require": "verified"}], "/after/0/id"),
        ([{"id": "dlg_1", "requires": "verified"}], "/after/0/requires"),
        ([{"id": "dlg_1"}] * (MAX_AFTER + 1), "/after"),
    ],
)
async def test_what_is_no_list_of_delegations_is_refused(http: httpx2.AsyncClient, wrong: Any, pointer: str) -> None:
    answer = await http.post("/v1/delegations", json={"task": "t", "after": wrong})
    assert (answer.status_code, [each["pointer"] for each in answer.json()["errors"]]) == (422, [pointer])


async def test_the_same_request_with_its_key_is_the_one_that_waits(real: httpx2.AsyncClient) -> None:
    first = (await real.post("/v1/delegations", json={"task": "first"})).json()["id"]
    body = {"task": "second", "idempotencyKey": "k", **after(first)}
    ids = [(await real.post("/v1/delegations", json=body)).json()["id"] for _ in range(2)]
    assert ids[0] == ids[1]
    other = await real.post("/v1/delegations", json=body | after(first, require="verified"))
    assert other.status_code == 422


async def test_a_retry_waits_again_and_a_continuation_goes_on_at_once(whole: Whole) -> None:
    first = await whole.first(Turn([text("There are 12 files.")]))
    whole.model.script("report it", [Turn([text("reported")])] * 2)
    request = DelegationRequest(task="report it", **after(first.delegation_id))
    second = (await whole.service.create(request)).delegation
    with pytest.raises(Conflict):
        await whole.service.retry(second.id)
    await until(lambda: second.id in [ticket.id for ticket in whole.bench.sent])
    await whole.finished(second)
    assert "There are 12 files." in json.dumps(whole.sent())
    again = (await whole.service.retry(second.id)).delegation
    assert again.waits_for == [first.delegation_id]
    await until(lambda: again.id in [ticket.id for ticket in whole.bench.sent])
    assert (await whole.finished(again)).summary == "reported"
    assert "There are 12 files." in json.dumps(whole.sent())
    whole.model.script("and more", [Turn([text("more")])])
    third = await whole.continued(again.id, "and more")
    assert (third.request.after, third.waits_for) == ([], [])
    assert (await whole.finished(third)).success
    other = request.model_copy(update={"retry_of": second.id, "from_turn": 1, "after": []})
    with pytest.raises(Invalid, match="/after: differs"):
        await whole.service.create(other)


async def test_the_command_line_takes_short_ids_and_shows_what_is_waited_for(url: str, service: FakeService) -> None:
    first = (await service.create(DelegationRequest(task="first"))).delegation.id
    done = await called(url, "run", "second", "--after", "@last", "--after", f"{first[-8:]}:verified", "--detach")
    assert done.exit_code == 0, done.stderr
    id = done.stdout.strip()
    assert [each.to_dict() for each in service.runs[id].request.after] == [
        {"id": first, "require": require} for require in ("finished", "verified")
    ]
    assert f"waits for  {first}" in (await called(url, "show", id)).stdout.splitlines()
    (line,) = [line for line in (await called(url, "list")).stdout.splitlines() if id in line]
    assert line.endswith(f"waits for …{first[-6:]}  second")
    assert f"queued: second, waits for …{first[-6:]}" in (await called(url, "show", id, "--events")).stdout
    wrong = await called(url, "run", "t", "--after", f"{first}:started")
    assert (wrong.exit_code, f"'{first}:started' is not ID or ID:verified" in wrong.stderr) == (2, True)
    unknown = await called(url, "run", "t", "--after", "zzzzzz", "--detach")
    assert "no delegation whose id begins or ends with zzzzzz" in unknown.stderr


async def test_lines_of_a_batch_name_what_they_wait_for(url: str, service: FakeService, tmp_path: Path) -> None:
    first = (await service.create(DelegationRequest(task="first"))).delegation.id
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"task": "second", **after(first)}))
    async with finished_by_itself(service):
        done = await deputize("batch", str(lines), DEPUTIZE_URL=url)
    assert done.code == 0, done.err
    (second,) = [run for id, run in service.runs.items() if id != first]
    assert [each.id for each in second.request.after] == [first]


async def test_python_and_mcp_hand_it_over(url: str, service: FakeService) -> None:
    def started() -> str:
        with SyncOrchestrator(url=url) as orchestrator:
            first = orchestrator.start("first")
            second = orchestrator.start("second", after=[{"id": first.id, "require": "verified"}])
            assert second.waits_for == [first.id]
            return second.id

    second = await asyncio.to_thread(started)
    async with connected("http", url) as client:
        third = content(await client.call_tool("delegate_start", {"task": "third", **after(second)}))
    assert third["waitsFor"] == [second]
    assert service.runs[third["id"]].request.after[0].require == "finished"
