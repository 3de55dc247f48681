"""The same questions to the service, and to the fake one for the tests of its API and its commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.client import Client
from deputize.orchestrator.delegations import Delegations
from deputize.orchestrator.operations import OPERATIONS, Operations, Service
from deputize.shared.checks import CommandCheck
from deputize.shared.delegation import Status, Step, StepStatus
from deputize.shared.errors import Conflict, KeyReused, NotFound, TooLarge, Unavailable
from deputize.shared.events import Heartbeat, StepCompleted
from deputize.shared.facts import FileChange, Verification
from deputize.shared.fleet import ToolCard
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import MAX_BATCH, DelegationRequest
from deputize.shared.runs.record import LISTED_CHARACTERS
from deputize.shared.status_counts import StatusCounts
from deputize.shared.wire import now
from tests.contracts.service.desks import EVERYTHING, Desk, FakeDesk, accepted, all_of, listed, progress, real_desk
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.waiting import until

BEAT = Heartbeat(turn=1, tool_calls=0, elapsed_ms=5)


async def test_what_is_accepted_is_queued_with_its_first_event(service: Delegations) -> None:
    accepted = await service.create(DelegationRequest(task="do it", limits=Limits(max_turns=5000)))
    delegation = accepted.delegation
    assert (accepted.replayed, delegation.status, delegation.attempt, delegation.worker) == (False, "queued", 0, None)
    assert (delegation.effective_limits.max_turns, delegation.request.limits.max_turns) == (200, 5000)
    assert await service.get(delegation.id) == delegation
    (first,) = await service.events(delegation.id)
    assert (first.seq, first.attempt, first.event.type) == (1, 0, "run_queued")


async def test_the_counts_are_by_status(service: Delegations, desk: Desk) -> None:
    ids = [await accepted(service) for _ in range(3)]
    await desk.finish(ids[0])
    await desk.happen(ids[1], BEAT)
    assert await service.counts() == StatusCounts(queued=1, running=1, succeeded=1)


async def test_the_same_key_and_body_give_the_first_delegation_and_another_body_is_refused(
    service: Delegations,
) -> None:
    first = await service.create(DelegationRequest(task="do it", idempotency_key="k"))
    again = await service.create(DelegationRequest(task="do it", idempotency_key="k"))
    assert (again.replayed, again.delegation) == (True, first.delegation)
    with pytest.raises(KeyReused) as refused:
        await service.create(DelegationRequest(task="another", idempotency_key="k"))
    assert refused.value.detail == "this idempotency key was used before with another body; send a new key"
    assert refused.value.errors == [{"pointer": "/idempotencyKey", "detail": "used before with another body"}]


async def test_an_idempotency_key_belongs_to_the_token_that_sent_it(service: Delegations) -> None:
    """Also one that is named as a run's subagent is, or as the key of another token with the token's name."""
    for key in ("k", "two:k", "dlg_01k9zxv3q8h4t7m2n5p6r8s9ta:1:toolu_1"):
        mine, other = (DelegationRequest(task=task, idempotency_key=key) for task in ("mine", "another"))
        made = {owner: await service.of(owner).create(request) for owner, request in (("one", mine), ("two", other))}
        made[""] = await service.create(other)
        assert [each.replayed for each in made.values()] == [False] * 3
        assert len({each.delegation.id for each in made.values()}) == 3
        again = await service.of("one").create(mine)
        assert (again.replayed, again.delegation) == (True, made["one"].delegation)
        assert [each.id for each in await service.of("two").create_many([other])] == [made["two"].delegation.id]
        with pytest.raises(KeyReused):
            await service.of("one").create(other)


async def test_of_a_batch_all_are_accepted_in_order_or_none(service: Delegations) -> None:
    one, two = DelegationRequest(task="one", idempotency_key="k"), DelegationRequest(task="two")
    assert [each.request for each in await service.create_many([one, two, one])] == [one, two, one]
    assert await listed(service) == ["two", "one"]
    with pytest.raises(KeyReused):
        await service.create_many([DelegationRequest(task="three"), two.model_copy(update={"idempotency_key": "k"})])
    with pytest.raises(TooLarge, match=f"at most {MAX_BATCH} requests, this one has {MAX_BATCH + 1}"):
        await service.create_many([two] * (MAX_BATCH + 1))
    assert await service.create_many([]) == []
    assert await listed(service) == ["two", "one"]


async def test_an_unknown_id_is_not_found_whatever_is_asked_of_it(service: Delegations) -> None:
    id = new_id()
    asked: list[Callable[[], Any]] = [
        lambda: service.get(id, wait=5),
        lambda: service.events(id),
        lambda: service.steps(id),
        lambda: service.patch(id),
        lambda: service.artifact(id, "report.md"),
        lambda: service.cancel(id),
        lambda: service.send(id, "hello"),
        lambda: anext(service.follow(id)),
    ]
    for ask in asked:
        with pytest.raises(NotFound) as refused:
            await ask()
        assert refused.value.detail == (
            f"there is no delegation {id}; it never was, or its retention is over. `deputize list` shows them."
        )


async def test_who_waits_has_the_answer_when_the_delegation_ends_or_the_wait_is_over(
    desk: Desk, service: Delegations
) -> None:
    id = await accepted(service)
    assert (await service.get(id, wait=0.05)).status == "queued"
    waiting = asyncio.create_task(service.get(id, wait=60))
    await desk.finish(id, summary="Done.")
    finished = await waiting
    assert finished == await service.get(id, wait=60)
    assert finished.result is not None
    assert (finished.status, finished.result.summary, finished.finished_at is None) == ("succeeded", "Done.", False)


async def test_a_delegation_runs_as_soon_as_a_worker_has_it(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    await desk.happen(id, *progress("half"))
    found = await service.get(id)
    assert (found.status, found.attempt, found.worker, found.started_at is None) == ("running", 1, "worker-1", False)
    assert [(envelope.seq, envelope.attempt) for envelope in await service.events(id)] == [(1, 0), (2, 1)]


async def test_the_list_is_newest_first_filtered_and_paged(desk: Desk, service: Delegations) -> None:
    for task in ("one", "two", "three"):
        id = await accepted(service, task, session_id="s", labels={"n": task, "kind": "number"})
    await accepted(service, "other", session_id="t", labels={"kind": "number"})
    await desk.finish(id)
    assert await listed(service) == ["other", "three", "two", "one"]
    assert await listed(service, session="s", labels={"kind": "number"}) == ["three", "two", "one"]
    assert await listed(service, labels={"n": "two", "kind": "number"}) == ["two"]
    assert await listed(service, status=Status.SUCCEEDED) == ["three"]
    page = await service.list(**EVERYTHING | {"session": "s", "limit": 2})
    rest = await service.list(**EVERYTHING | {"session": "s", "limit": 2, "cursor": page.next_cursor})
    assert ([item.request.task for item in rest.items], rest.next_cursor) == (["one"], None)
    assert page.next_cursor == page.items[-1].id


async def test_the_list_of_one_parents_children_is_filtered_and_paged_too(service: Delegations) -> None:
    parent, other = [await accepted(service, task) for task in ("parent", "other")]
    for task, of in (("one", parent), ("two", parent), ("not mine", other), ("three", parent)):
        await accepted(service, task, parent_id=of, session_id="s" if task != "two" else None)
    assert await listed(service, parent=parent) == ["three", "two", "one"]
    assert await listed(service, parent=parent, session="s") == ["three", "one"]
    page = await service.list(**EVERYTHING | {"parent": parent, "limit": 2})
    rest = await service.list(**EVERYTHING | {"parent": parent, "limit": 2, "cursor": page.next_cursor})
    assert ([item.request.task for item in rest.items], rest.next_cursor) == (["one"], None)
    assert await listed(service, parent=page.items[0].id) == []


async def test_a_list_for_a_review_has_the_best_first_with_the_reason_of_each(desk: Desk, service: Delegations) -> None:
    for task, lines in (("small", 1), ("nothing", 0), ("large", 9), ("small, too", 1)):
        id = await accepted(service, task, session_id=task[:5])
        changes = [FileChange(path="a.py", change="modified", added_lines=lines)] if lines else []
        await desk.finish(id, file_changes=changes, denied_call_count=task == "large")
    await accepted(service, "queued")
    page = await service.list(for_review=True)
    assert [item.request.task for item in page.items] == ["small, too", "small", "large"]
    assert page.reasons == ["+1 -0 in 1 file", "+1 -0 in 1 file", "+9 -0 in 1 file, 1 call denied"]
    assert page.next_cursor is None
    assert await listed(service, for_review=True, limit=1) == ["small, too"]
    assert await listed(service, for_review=True, session="large") == ["large"]
    assert await listed(service, for_review=True, status=Status.FAILED) == []
    assert await listed(service, for_review=True, status=Status.QUEUED) == []
    assert (await service.list(**EVERYTHING)).reasons == []


async def test_a_page_goes_on_behind_a_delegation_that_was_removed(desk: Desk, service: Delegations) -> None:
    ids = [await accepted(service, task) for task in ("one", "two", "three")]
    await desk.finish(ids[1])
    assert (await service.prune(0)).removed == 1
    assert await listed(service, cursor=ids[1]) == ["one"]


async def test_a_list_shows_the_beginnings_of_long_texts(service: Delegations) -> None:
    id = await accepted(service, "x" * (LISTED_CHARACTERS + 1))
    assert await listed(service) == ["x" * (LISTED_CHARACTERS - 1) + "…"]
    assert len((await service.get(id)).request.task) == LISTED_CHARACTERS + 1


async def test_a_follower_gets_what_is_kept_then_what_happens_and_ends_with_the_run(
    desk: Desk, service: Delegations
) -> None:
    id, seen = await accepted(service), list[tuple[int | None, str]]()
    await desk.happen(id, *progress("one", "two"))
    following = asyncio.create_task(all_of(service.follow(id, after=1), seen))
    await until(lambda: len(seen) == 2)
    await desk.happen(await accepted(service), *progress("of another"))
    await desk.happen(id, BEAT, *progress("three"))
    await desk.finish(id)
    await asyncio.wait_for(following, 30)
    assert seen == [(2, "progress"), (3, "progress"), (None, "heartbeat"), (4, "progress"), (5, "run_finished")]
    for after in (5, 6):
        seen.clear()
        await asyncio.wait_for(all_of(service.follow(id, after), seen), 30)
        assert seen == []


async def test_who_follows_all_gets_what_is_kept_of_everyone_from_then_on(desk: Desk, service: Delegations) -> None:
    await accepted(service, "before")
    seen: list[tuple[int | None, str]] = []
    following = asyncio.create_task(all_of(service.follow_all(), seen))

    async def heard() -> bool:
        await accepted(service, "after")
        return bool(seen)

    await until(heard)
    seen.clear()
    id = await accepted(service)
    await desk.happen(id, BEAT, *progress("one"))
    await desk.finish(id)
    await until(lambda: len(seen) >= 3 and seen[-1][1] == "run_finished")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert seen[-3:] == [(1, "run_queued"), (2, "progress"), (3, "run_finished")]


async def test_events_are_read_behind_any_number(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    await desk.happen(id, BEAT, *progress("one", "two"))
    assert [envelope.seq for envelope in await service.events(id)] == [1, 2, 3]
    assert [envelope.seq for envelope in await service.events(id, 2)] == [3]
    assert await service.events(id, 99) == []


async def test_steps_are_the_finished_ones_in_the_order_of_their_ends(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    for status in (StepStatus.FAILED, StepStatus.COMPLETED):
        step = Step(id="s", type="read", title="t", status=status, tool_name="read_file", turn_index=1, timestamp=now())
        await desk.happen(id, StepCompleted(step=step))
    assert [(step.tool_name, step.status) for step in await service.steps(id)] == [
        ("read_file", "failed"),
        ("read_file", "success"),
    ]


async def test_the_patch_is_empty_until_there_is_one(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    assert await service.patch(id) == ""
    await desk.finish(id, patch="+one\n")
    assert await service.patch(id) == "+one\n"


async def test_only_a_verified_result_that_a_key_signed_has_a_proof(desk: Desk, service: Delegations) -> None:
    checks = [CommandCheck(kind="command", run=run, hidden=run == "secret") for run in ("true", "secret")]
    verified, passed = (Verification(verdict=verdict, require="passed") for verdict in ("verified", "passed"))
    ends: list[tuple[str, dict[str, Any]]] = [
        ("it is queued, and only ended ones are proved", {}),
        ("the result is passed, and only verified ones", {"verification": passed, "patch": "+one\n"}),
        ("the run changed no file", {"verification": verified}),
        ("the patch is incomplete", {"verification": verified, "patch": "+one\n", "truncated": True}),
        ("no key signed it when it ended", {"verification": verified, "patch": "+one\n"}),
        ("", {"verification": verified, "patch": "+one\n", "proof": '{"payload": "e30="}'}),
    ]
    for why, end in ends:
        id = await accepted(service, context="so far", verify=checks)
        if end:
            await desk.finish(id, **end)
        if why:
            with pytest.raises(Conflict, match=f"there is no proof of {id}: {why}"):
                await service.proof(id)
            continue
        proof = await service.proof(id)
        assert (proof.envelope, proof.patch, proof.context) == ({"payload": "e30="}, "+one\n", "so far")
        assert proof.verify == [checks[0], None]


async def test_an_artifact_has_a_name_and_versions(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    with pytest.raises(NotFound, match=f"delegation {id} has no artifact 'a.md'; it has none; they are kept when a"):
        await service.artifact(id, "a.md")
    await desk.finish(id, artifacts={("a.md", 1): "first", ("a.md", 2): "second", ("b.md", 1): "other"})
    assert [await service.artifact(id, "a.md", version) for version in (None, 1, 2)] == ["second", "first", "second"]
    with pytest.raises(NotFound, match=f"delegation {id} has no artifact 'c.md'; it has a.md, b.md"):
        await service.artifact(id, "c.md")
    with pytest.raises(NotFound, match=f"version 3 of artifact 'a.md' of delegation {id} is not kept; the latest is 2"):
        await service.artifact(id, "a.md", 3)


@pytest.mark.requirement("P-15")
async def test_cancelling_before_the_start_ends_it_and_twice_is_once(service: Delegations) -> None:
    id = await accepted(service)
    cancelled = await service.cancel(id)
    assert cancelled == await service.cancel(id) == await service.get(id)
    assert cancelled.result is not None
    assert cancelled.result.model_dump(include={"status", "termination_reason", "summary", "attempts"}) == {
        "status": "cancelled",
        "termination_reason": "cancelled",
        "summary": "Cancelled before it was started.",
        "attempts": 0,
    }
    assert [envelope.event.type for envelope in await service.events(id)] == ["run_queued", "run_finished"]


async def test_cancelling_what_runs_asks_its_worker_and_returns_at_once(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    await desk.happen(id, *progress("half"))
    assert (await service.cancel(id)).status == "running"


async def test_cancelling_leaves_what_has_ended_as_it_is(desk: Desk, service: Delegations) -> None:
    id = await accepted(service)
    await desk.finish(id, summary="Done.")
    before = await service.get(id)
    assert await service.cancel(id) == before


async def test_pruning_removes_what_ended_long_enough_ago(desk: Desk, service: Delegations) -> None:
    ended, _ = await accepted(service, "ended"), await accepted(service, "queued")
    await desk.finish(ended)
    assert [(await service.prune(*older)).removed for older in ((), (3600,))] == [0, 0]
    assert [(await service.prune(0)).removed for _ in range(2)] == [1, 0]
    assert await listed(service) == ["queued"]


async def test_workers_and_tools_are_those_that_were_announced_by_name(desk: Desk, service: Delegations) -> None:
    assert (await service.workers(), await service.tools()) == ([], [])
    assert await service.not_ready() == "no worker is alive; start one with `deputize worker` or `deputize up`"
    cards = [worker_card(name="worker-2"), worker_card(name="worker-1")]
    tools = [ToolCard(name=name, description="", kind="read", effect="pure", parameters={}) for name in ("b", "a")]
    await desk.announce(cards[0], *tools)
    await desk.announce(cards[1])
    assert [card.to_json() for card in await service.workers()] == [card.to_json() for card in cards[::-1]]
    assert await service.tools() == tools[::-1]
    assert await service.not_ready() is None


async def test_only_a_worker_that_is_alive_can_be_drained(desk: Desk, service: Delegations) -> None:
    await desk.announce(worker_card(name="worker-1"))
    with pytest.raises(NotFound, match="no worker 'worker-2' is alive"):
        await service.drain("worker-2")
    assert (await service.drain("worker-1")).name == "worker-1"
    await desk.announce(worker_card(name="worker-1", draining=True))
    why = "every worker is draining; start them again (`deputize stop`, then `deputize up`), or others"
    assert await service.not_ready() == why
    await desk.announce(worker_card(name="worker-2"))
    assert await service.not_ready() is None


@pytest.fixture(params=["fake", "real"])
async def cut_off(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Delegations]:
    """A service whose Redis does not answer."""
    if request.param == "real":
        async with real_desk(f"unix://{tmp_path}/none.sock", tmp_path) as desk:
            yield desk.service
        return
    fake = FakeService()
    fake.away = Unavailable("Redis does not answer")
    yield FakeDesk(fake).service


async def test_without_redis_everything_is_unavailable_and_readiness_states_the_reason(cut_off: Delegations) -> None:
    id, request = new_id(), DelegationRequest(task="do it")
    asked: list[Callable[[], Any]] = [
        lambda: cut_off.create(request),
        lambda: cut_off.create_many([request]),
        lambda: cut_off.get(id),
        lambda: cut_off.list(**EVERYTHING),
        lambda: cut_off.events(id),
        lambda: cut_off.steps(id),
        lambda: cut_off.patch(id),
        lambda: cut_off.artifact(id, "a.md"),
        lambda: cut_off.cancel(id),
        cut_off.permissions,
        cut_off.prune,
        cut_off.workers,
        lambda: cut_off.drain("worker-1"),
        cut_off.tools,
    ]
    for ask in asked:
        with pytest.raises(Unavailable, match="Redis does not answer"):
            await ask()
    assert (await cut_off.not_ready() or "").startswith("Redis does not answer")


def verbs_of(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


OF_SERVICE = verbs_of(Operations) | verbs_of(Service)


def test_every_operation_is_carried_out_by_the_service_and_by_its_client() -> None:
    rows = {each.name for each in OPERATIONS}
    assert OF_SERVICE - verbs_of(Delegations) == set()
    assert OF_SERVICE - verbs_of(Client) - rows == set()


def test_the_fake_has_every_verb_of_the_service() -> None:
    assert verbs_of(Delegations) - set(dir(FakeService)) == set()
