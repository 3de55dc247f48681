"""Handing over, looking at, listing and cancelling over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from deputize.shared.connection import connect
from deputize.shared.delegation import TerminationReason
from deputize.shared.facts import TournamentFacts
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.runs.tickets import queue_keys
from tests.waiting import until


async def create(http: httpx2.AsyncClient, **body: object) -> str:
    answer = await http.post("/v1/delegations", json={"task": "Count the files", **body})
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


@pytest.mark.requirement("P-01", "S002-047")
async def test_a_request_is_accepted_as_the_parent_wrote_it(real: httpx2.AsyncClient) -> None:
    body = {
        "task": "Summarise the report",
        "context": "It is in Polish.",
        "expectedOutcome": "Three sentences.",
        "sessionId": "s1",
        "messageId": "m7",
        "toolCallStyle": "xml",
    }
    answer = await real.post("/v1/delegations", json=body)
    created = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/delegations/{created['id']}"
    assert created["status"] == "queued"
    assert {key: created["request"][key] for key in body} == body
    assert (await real.get(answer.headers["location"])).json() == created


async def test_several_attempts_are_asked_for_and_the_result_lists_them(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    asked = {"count": 3, "stop": "all", "concurrency": 2, "models": ["one", "two"], "efforts": []}
    id = await create(http, verify=["make test"], attempts=asked)
    made = {"id": "dlg_1", "verdict": "verified", "ending": "verified (completed)", "patch": "0" * 64}
    made |= {"protected": 0, "addedLines": 1, "removedLines": 1, "model": "one", "effort": None, "costUsd": 0.5}
    facts = {"attempts": [made], "taken": "dlg_1", "winner": "dlg_1", "passed": 1, "of": 2}
    service.finish(id, tournament=TournamentFacts.model_validate(facts))
    ended = (await http.get(f"/v1/delegations/{id}")).json()
    assert (ended["request"]["attempts"], ended["result"]["tournament"]) == (asked, facts)


async def test_snake_case_is_read_too(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = await create(http, expected_outcome="a number", limits={"max_turns": 3})
    assert service.runs[id].request.expected_outcome == "a number"
    assert service.runs[id].request.limits.max_turns == 3


async def test_objects_as_text_null_and_a_plain_directory_are_read_too(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    id = await create(http, workspace="/srv/x", limits='{"maxTurns": 3}', labels=None)
    request = service.runs[id].request
    assert (request.workspace.to_dict()["path"], request.limits.max_turns, request.labels) == ("/srv/x", 3, {})
    refused = await http.post("/v1/delegations", json={"task": "t", "tools": '["bash", 3]'})
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/tools/1"]


async def test_the_same_key_and_body_give_the_first_delegation_again(real: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = await real.post("/v1/delegations", json={"task": "t"}, headers=headers)
    again = await real.post("/v1/delegations", json={"task": "t"}, headers=headers)
    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    assert again.status_code == 200
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert again.json() == first.json()


async def test_a_request_that_is_sent_again_with_its_key_puts_no_second_ticket_on_the_queue(
    real: httpx2.AsyncClient, redis_url: str
) -> None:
    keyed = {"task": "t", "idempotencyKey": "k1"}
    ids = [(await real.post("/v1/delegations", json=keyed)).json()["id"] for _ in range(2)]
    both = (await real.post("/v1/delegations:batch", json={"requests": [keyed, {"task": "new"}]})).json()["items"]
    assert [both[0]["id"], *ids] == [ids[0]] * 3
    async with connect(redis_url) as redis:
        waiting = [entry for key in queue_keys() for entry in await redis.lrange(key, 0, -1)]
    assert [[id in entry for entry in waiting] for id in (ids[0], both[1]["id"])] == [[False, True], [True, False]]


async def test_a_key_in_the_header_that_differs_from_the_body_is_refused(http: httpx2.AsyncClient) -> None:
    body = {"task": "t", "idempotencyKey": "a"}
    answer = await http.post("/v1/delegations", json=body, headers={"Idempotency-Key": "b"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/idempotencyKey"


async def test_a_batch_is_accepted_in_order_with_the_shared_context_in_each(real: httpx2.AsyncClient) -> None:
    body = {"requests": [{"task": "one"}, {"task": "two", "context": "own"}], "sharedContext": "shared"}
    answer = await real.post("/v1/delegations:batch", json=body)
    assert answer.status_code == 202
    requests = [item["request"] for item in answer.json()["items"]]
    assert [(r["task"], r["context"]) for r in requests] == [("one", "shared"), ("two", "shared\n\nown")]


async def test_the_list_is_filtered_by_status_session_and_every_label(real: httpx2.AsyncClient) -> None:
    wanted = await create(real, sessionId="s1", labels={"team": "a", "kind": "x:y"})
    await create(real, sessionId="s1", labels={"team": "a"})
    await create(real, sessionId="s2", labels={"team": "a", "kind": "x:y"})
    query = (("status", "queued"), ("session", "s1"), ("label", "team:a"), ("label", "kind:x:y"))
    assert [item["id"] for item in (await real.get("/v1/delegations", params=query)).json()["items"]] == [wanted]
    assert (await real.get("/v1/delegations?status=running")).json()["items"] == []


async def test_the_list_of_a_parent_has_its_children_and_a_parent_that_is_no_id_is_refused(
    real: httpx2.AsyncClient,
) -> None:
    parent = await create(real)
    child = await create(real, parentId=parent)
    assert [item["id"] for item in (await real.get(f"/v1/delegations?parent={parent}")).json()["items"]] == [child]
    refused = await real.get("/v1/delegations?parent=dlg_1")
    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        [{"pointer": "/query/parent", "detail": "is not the id of a delegation"}],
    )


async def test_a_list_for_a_review_has_reasons_and_one_page(http: httpx2.AsyncClient, service: FakeService) -> None:
    change: dict[str, Any] = {"path": "a.py", "change": "created", "addedLines": 2}
    service.finish(id := await create(http), file_changes=[change])
    service.finish(await create(http))
    page = (await http.get("/v1/delegations?forReview=true")).json()
    assert ([item["id"] for item in page["items"]], page["reasons"]) == ([id], ["+2 -0 in 1 file"])
    assert "reasons" not in (await http.get("/v1/delegations")).json()
    refused = await http.get(f"/v1/delegations?forReview=true&cursor={id}")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/query")


async def test_waiting_ends_as_soon_as_the_delegation_is_finished(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    id = await create(http)
    waiting = asyncio.create_task(http.get(f"/v1/delegations/{id}", params={"wait": 30}))
    await until(lambda: service.waiting)
    service.finish(id, summary="done")
    assert (await waiting).json()["result"]["summary"] == "done"


async def test_the_wait_may_run_out_and_a_longer_one_than_a_minute_is_cut(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    id = await create(http)
    answer = await http.get(f"/v1/delegations/{id}", params={"wait": 0.01})
    assert answer.json()["status"] == "queued"
    service.finish(id)
    assert (await http.get(f"/v1/delegations/{id}", params={"wait": 86400})).status_code == 200


async def test_a_caller_who_hangs_up_is_not_waited_for(url: str, service: FakeService) -> None:
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url) as http:
        id = await create(http)
        waiting = asyncio.create_task(http.get(f"/v1/delegations/{id}", params={"wait": 30}, timeout=60))
        await until(lambda: service.waiting)
        waiting.cancel()
        await until(lambda: not service.waiting)


async def test_pruning_removes_what_is_finished_and_old_enough(real: httpx2.AsyncClient) -> None:
    waits, done = await create(real), await create(real)
    await real.post(f"/v1/delegations/{done}/cancel")
    bodies: list[dict[str, object]] = [{}, {"olderThanSeconds": 3600}, {"olderThanSeconds": 0}]
    answers = [await real.post("/v1/delegations:prune", json=body) for body in bodies]
    assert [answer.json()["removed"] for answer in answers] == [0, 0, 1]
    assert answers[2].json() == {"removed": 1, "freedBytes": 0, "ids": [done], "dryRun": False}
    assert (await real.get("/v1/disk")).json() == {"keptBytes": 0, "delegations": 0, "maxKeptBytes": 32 << 30}
    assert (await real.get(f"/v1/delegations/{done}")).status_code == 404
    assert [item["id"] for item in (await real.get("/v1/delegations")).json()["items"]] == [waits]


async def test_a_time_that_is_none_prunes_nothing(http: httpx2.AsyncClient, service: FakeService) -> None:
    service.finish(await create(http))
    for body in ({"olderThanSeconds": -1}, {"olderThan": 0}):
        assert (await http.post("/v1/delegations:prune", json=body)).status_code == 422
    assert len(service.runs) == 1


async def test_the_patch_is_a_diff_in_plain_text(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = await create(http)
    service.patches[id] = "diff --git a/x b/x\n"
    answer = await http.get(f"/v1/delegations/{id}/patch")
    assert answer.headers["content-type"] == "text/x-diff; charset=utf-8"
    assert answer.text == "diff --git a/x b/x\n"


async def test_an_artifact_is_plain_text_whatever_a_model_wrote(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = await create(http)
    service.made[id, "Größe ?#.html"] = ["<script>old</script>", "<p>zażółć\r\n</p>"]
    answer = await http.get(f"/v1/delegations/{id}/artifacts/Gr%C3%B6%C3%9Fe%20%3F%23.html")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == "<p>zażółć\r\n</p>".encode()
    first = await http.get(f"/v1/delegations/{id}/artifacts/Gr%C3%B6%C3%9Fe%20%3F%23.html", params={"version": 1})
    assert first.text == "<script>old</script>"
    assert (await http.get(f"/v1/delegations/{id}/artifacts/x", params={"version": 0})).status_code == 422


async def test_an_artifact_that_is_not_there_is_not_found(real: httpx2.AsyncClient) -> None:
    id = await create(real)
    for name in ("report.md", "a%2Fb", "%00"):
        answer = await real.get(f"/v1/delegations/{id}/artifacts/{name}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
    answer = await real.get(f"/v1/delegations/{id}/artifacts/report.md")
    assert answer.json()["detail"] == (
        f"delegation {id} has no artifact 'report.md'; it has none; they are kept when a delegation ends"
    )


async def test_the_answer_is_the_resource_byte_for_byte(http: httpx2.AsyncClient, service: FakeService) -> None:
    id = await create(http, context="zażółć \u2028 🙂")
    service.finish(id, TerminationReason.MAX_TURNS, summary="half of it")
    assert (await http.get(f"/v1/delegations/{id}")).text == service.runs[id].to_json()


@pytest.mark.parametrize(
    "path",
    ["", "/events", "/steps", "/patch", "/artifacts/a", "/cancel"],
    ids=["itself", "events", "steps", "patch", "artifact", "cancel"],
)
async def test_an_unknown_id_is_not_found(real: httpx2.AsyncClient, path: str) -> None:
    method = "POST" if path == "/cancel" else "GET"
    answer = await real.request(method, f"/v1/delegations/{new_id()}{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:deputize:not-found"


async def test_a_request_of_the_largest_size_is_accepted(real: httpx2.AsyncClient) -> None:
    context = "x" * (1024 * 1024 - len("t"))
    body = DelegationRequest(task="t", context=context).to_json()
    answer = await real.post("/v1/delegations", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, answer.text[:500]
    assert answer.json()["request"]["context"] == context


async def test_a_repeated_cancel_is_accepted_again(real: httpx2.AsyncClient) -> None:
    id = (await real.post("/v1/delegations", json={"task": "t"})).json()["id"]
    answers = [await real.post(f"/v1/delegations/{id}/cancel") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
