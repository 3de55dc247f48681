"""`map` runs each task once, however often it is called, and errors of several waits have the results until then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from deputize import (
    Delegation,
    DelegationRequest,
    Invalid,
    NotFound,
    Orchestrator,
    SyncOrchestrator,
    TerminationReason,
)
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.facts import TournamentFacts
from deputize.shared.request import Attempts
from tests.fake_model import Turn, text
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.whole import Whole
from tests.waiting import until

Results = list[ToolAgentResult]


def unfinished(service: FakeService) -> Iterator[str]:
    return (id for id, run in service.runs.items() if not run.status.finished)


async def answering(service: FakeService, number: int, mapping: Awaitable[Results], **ending: Any) -> Results:
    """Lets the next delegations end, so many, as soon as all of them are waited for."""
    waiting = asyncio.ensure_future(mapping)
    await until(lambda: waiting.done() or len([*unfinished(service)]) == service.following == number)
    for id in [*unfinished(service)]:
        service.finish(id, summary=f"did {service.runs[id].request.task}", **ending)
    return await waiting


async def test_a_second_call_runs_only_what_is_new_or_changed(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        first = await answering(service, 3, orchestrator.map(["a", "b", "c"], labels={"of": "x"}))
        assert [each.summary for each in first] == ["did a", "did b", "did c"]
        assert await orchestrator.map(["a", "b", "c"], labels={"of": "x"}) == first
        second = await answering(service, 2, orchestrator.map(["c", "b changed", "a", "d"], labels={"of": "x"}))
        assert [each.summary for each in second] == ["did c", "did b changed", "did a", "did d"]
        assert (second[0], second[2]) == (first[2], first[0])
        assert len(service.runs) == 5


@pytest.mark.parametrize("change", [{"labels": {"of": "y"}}, {"idempotency_key": "again"}, {"context": "more"}])
async def test_every_field_of_a_request_counts(url: str, service: FakeService, change: Any) -> None:
    async with Orchestrator(url=url) as orchestrator:
        await answering(service, 1, orchestrator.map(["a"]))
        again = DelegationRequest(task="a", **change)
        await answering(service, 1, orchestrator.map([again, again]))
        assert len(service.runs) == 2


async def test_what_was_not_a_success_or_was_removed_runs_again(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        for number, reason in enumerate((TerminationReason.MAX_TURNS, TerminationReason.CANCELLED), 1):
            (failed,) = await answering(service, 1, orchestrator.map(["a"]), reason=reason)
            assert (failed.success, len(service.runs)) == (False, number)
        (done,) = await answering(service, 1, orchestrator.map(["a"]))
        assert (done.success, len(service.runs)) == (True, 3)
        assert await orchestrator.map(["a"]) == [done]


async def test_each_task_is_done_several_times_where_attempts_are_asked_for(url: str, service: FakeService) -> None:
    facts = TournamentFacts(attempts=[], passed=1, of=2)
    async with Orchestrator(url=url) as orchestrator:
        mapping = orchestrator.map(["a", "b"], verify="make test", attempts={"count": 2, "models": ["one", "two"]})
        results = await answering(service, 2, mapping, tournament=facts)

        async def alone() -> Results:
            return [await orchestrator.delegate("c", verify="make test", attempts=Attempts(count=3))]

        results += await answering(service, 1, alone(), tournament=facts)
    asked = [run.request.attempts for run in service.runs.values()]
    assert asked == [*[Attempts(count=2, models=["one", "two"])] * 2, Attempts(count=3)]
    assert [each.tournament for each in results] == [facts] * 3


async def test_after_a_crash_a_call_waits_for_what_is_under_way_also_where_it_was_paused(
    url: str, service: FakeService
) -> None:
    async with Orchestrator(url=url) as orchestrator:
        lost = asyncio.create_task(orchestrator.map(["a", "b"]))
        await until(lambda: service.following == 2)
        lost.cancel()
        await until(lambda: not service.following)
    paused = next(iter(service.runs))
    service.runs[paused] = service.runs[paused].model_copy(update={"paused": True})
    async with Orchestrator(url=url) as orchestrator:
        again = asyncio.create_task(orchestrator.map(["a", "b"]))
        await until(lambda: not service.runs[paused].paused)
        await answering(service, 2, again)
        assert len(service.runs) == 2


async def test_only_so_many_are_unfinished_at_once_and_results_are_in_order(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        mapping = asyncio.create_task(orchestrator.map(["a", "b", "c", "b"], concurrency=2))
        await until(lambda: service.following == 2)
        for expected in (["a", "b"], ["a", "b", "c"]):
            assert [run.request.task for run in service.runs.values()] == expected
            id = [*unfinished(service)][-1]
            service.finish(id, summary=service.runs[id].request.task)
            await until(lambda: len(service.runs) == 3)
            await until(lambda: service.following == len([*unfinished(service)]))
        for id in [*unfinished(service)]:
            service.finish(id, summary=service.runs[id].request.task)
        assert [each.summary for each in await mapping] == ["a", "b", "c", "b"]


@pytest.mark.parametrize("count", [0, -1, "5", 1.5, True, None])
async def test_a_count_that_is_not_a_positive_integer_submits_none(url: str, service: FakeService, count: Any) -> None:
    async with Orchestrator(url=url) as orchestrator:
        with pytest.raises(Invalid, match="/concurrency: is an integer of at least 1"):
            await orchestrator.map(["a"], concurrency=count)
        with pytest.raises(Invalid, match="/runs: is an integer of at least 1"):
            await orchestrator.evaluate(["a"], runs=count)
    assert service.runs == {}


@pytest.mark.parametrize("ids", ["dlg_01m8ptemzzszn7d2kr0a7t9ghp", 5, None])
async def test_a_single_id_is_refused_where_a_list_is_expected(url: str, ids: Any) -> None:
    async with Orchestrator(url=url) as orchestrator:
        with pytest.raises(Invalid, match="/ids: is a list of ids; put a single one into a list"):
            await anext(orchestrator.as_completed(ids))


async def test_a_mistake_in_one_request_submits_none(url: str, service: FakeService) -> None:
    async with Orchestrator(url=url) as orchestrator:
        with pytest.raises(Invalid, match="blank"):
            await orchestrator.map(["a", " "])
    assert not service.runs


class Forgetful(FakeService):
    """Has no record of finished delegations whose task is ``lost``."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def get(self, id: str, wait: float = 0) -> Delegation:
        found = await super().get(id, wait)
        if found.status.finished and found.request.task == "lost":
            raise NotFound("the record is lost")
        self.read.append(found.request.task)
        return found


@pytest.mark.parametrize("way", ["map", "gather"])
async def test_an_error_has_the_results_until_then(way: str) -> None:
    service = Forgetful()
    async with served(service) as url, Orchestrator(url=url) as orchestrator:
        waiting = asyncio.create_task(getattr(orchestrator, way)(["a", "lost", "c"]))
        await until(lambda: service.following == 3)
        ids = {run.request.task: id for id, run in service.runs.items()}
        service.finish(ids["a"], summary="did a")
        await until(lambda: "a" in service.read)
        service.finish(ids["lost"])
        with pytest.raises(NotFound, match="the record is lost") as failed:
            await waiting
    assert [each and each.summary for each in failed.value.results] == ["did a", None, None]
    assert failed.value.delegation_id == ids["lost"]


async def test_without_await_it_does_the_same(url: str, service: FakeService) -> None:
    events: list[str] = []

    def script() -> Results:
        with SyncOrchestrator(url=url) as orchestrator:
            return orchestrator.map(["a", "b"], concurrency=2, on_event=lambda each: events.append(each.event.type))

    results = await answering(service, 2, asyncio.to_thread(script))
    assert [each.summary for each in results] == ["did a", "did b"]
    assert sorted(events) == ["run_finished"] * 2 + ["run_queued"] * 2
    assert await asyncio.to_thread(script) == results


async def test_the_service_itself_keeps_what_was_done_until_it_is_removed(whole: Whole) -> None:
    whole.model.script("", [Turn([text("Done.")])])

    async def mapped(tasks: list[str], new: int) -> list[str]:
        async with Orchestrator(whole.bench.settings) as orchestrator:
            mapping = asyncio.create_task(orchestrator.map(tasks))
            queued = await until(lambda: whole.queued(new))
            await asyncio.gather(*map(whole.finished, queued))
            return [each.delegation_id for each in await mapping]

    one, two = await mapped(["a", "b"], 2)
    assert (await mapped(["b", "a", "c"], 1))[:2] == [two, one]
    await whole.service.prune(0)
    assert await mapped(["a"], 1) != [one]


async def test_an_evaluation_runs_each_task_several_times_and_what_has_ended_not_again(
    url: str, service: FakeService
) -> None:
    async with Orchestrator(url=url) as orchestrator:
        evaluating = asyncio.ensure_future(orchestrator.evaluate(["a", "b"], runs=2, labels={"of": "x"}))
        await until(lambda: evaluating.done() or service.following == 4)
        for number, id in enumerate([*unfinished(service)]):
            service.finish(id, TerminationReason.COMPLETED if number < 3 else TerminationReason.MAX_TURNS)
        found = await evaluating
        again = await orchestrator.evaluate(["a", "b"], runs=2, labels={"of": "x"})
    assert len(service.runs) == 4
    assert [(each.title, len(each.ended)) for each in found.tasks] == [("a", 2), ("b", 2)]
    assert (found.successes, found.figure("pass@1")[0]) == (again.successes, again.figure("pass@1")[0]) == (3, 0.75)
