"""`SyncOrchestrator`: the operations without ``await``, its callbacks, Ctrl-C and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from deputize import DelegationFailed, Invalid, SyncOrchestrator, TerminationReason, Unavailable
from deputize.shared.events import Envelope
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import settings
from tests.waiting import until

T = TypeVar("T")


async def beside(work: Callable[[], T], meanwhile: Awaitable[None]) -> T:
    """Runs blocking work in a thread, as a script would, and something else beside it."""
    done, _ = await asyncio.gather(asyncio.to_thread(work), meanwhile)
    return done


async def finish(service: FakeService, number: int) -> None:
    await until(lambda: service.following == number)
    for id in list(service.runs):
        service.finish(id, summary=f"did {service.runs[id].request.task}")


async def test_a_script_delegates_and_hears_the_events_in_its_own_thread(url: str, service: FakeService) -> None:
    heard: list[tuple[str, bool]] = []

    def script() -> str:
        def hear(envelope: Envelope) -> None:
            heard.append((envelope.event.type, threading.get_ident() == here))

        here = threading.get_ident()
        with SyncOrchestrator(url=url) as deputies:
            return deputies.delegate("one", on_event=hear).summary

    assert await beside(script, finish(service, 1)) == "did one"
    assert heard == [("run_queued", True), ("run_finished", True)]


async def test_it_works_where_an_event_loop_runs_already(url: str, service: FakeService) -> None:
    async def cell() -> str:
        with SyncOrchestrator(settings(url=url)) as deputies:  # blocks its loop, as a cell of a notebook does
            started = deputies.start("one", limits={"max_turns": 3})
            service.finish(started.id, summary="done")
            assert [each.event.type for each in deputies.follow(started.id)] == ["run_queued", "run_finished"]
            return deputies.result(started.id).raise_for_status().summary

    assert await asyncio.to_thread(asyncio.run, cell()) == "done"
    assert [run.request.limits.max_turns for run in service.runs.values()] == [3]


async def test_several_at_once_come_back_in_order(url: str, service: FakeService) -> None:
    def script() -> list[str]:
        with SyncOrchestrator(url=url) as deputies:
            return [each.summary for each in deputies.gather(["one", "two"], labels={"of": "both"})]

    assert await beside(script, finish(service, 2)) == ["did one", "did two"]
    assert {run.request.labels["of"] for run in service.runs.values()} == {"both"}


async def test_a_follower_that_leaves_early_leaves_no_stream(url: str, service: FakeService) -> None:
    def script() -> str:
        with SyncOrchestrator(url=url) as deputies:
            id = deputies.start("one").id
            for envelope in deputies.follow(id):
                assert envelope.event.type == "run_queued"
                break
            return deputies.cancel(id).status

    assert await asyncio.to_thread(script) == "cancelled"
    await until(lambda: not service.following)


async def test_an_error_of_a_callback_ends_the_wait_and_not_the_work(url: str, service: FakeService) -> None:
    def hear(envelope: Envelope) -> None:
        raise KeyboardInterrupt

    def script() -> None:
        with SyncOrchestrator(url=url) as deputies:
            with pytest.raises(KeyboardInterrupt):
                deputies.delegate("one", on_event=hear)
            deputies.start("two")

    await asyncio.to_thread(script)
    assert [run.status for run in service.runs.values()] == ["queued", "queued"]
    await until(lambda: not service.following)


async def test_a_failure_is_raised_on_demand_and_carries_what_was_done(url: str, service: FakeService) -> None:
    def script() -> None:
        with SyncOrchestrator(url=url) as deputies:
            id = deputies.start("one").id
            service.finish(id, TerminationReason.ERROR, errors=["the model is gone"])
            with pytest.raises(DelegationFailed, match=rf"{id} failed \(error\): the model is gone") as failed:
                deputies.result(id).raise_for_status()
            assert (failed.value.delegation_id, failed.value.result.status) == (id, "failed")

    await asyncio.to_thread(script)


async def test_outside_of_its_block_it_refuses_and_starts_nothing(url: str, service: FakeService) -> None:
    deputies = SyncOrchestrator(url=url)
    with pytest.raises(RuntimeError, match="not open"):
        deputies.start("x")
    with deputies:
        pass
    with pytest.raises(RuntimeError, match="not open"):
        deputies.delegate("x")
    assert service.runs == {}


async def test_what_cannot_open_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(Invalid, match="did you mean"), SyncOrchestrator(url="http://127.0.0.1:1") as deputies:
        deputies.start("x", limit={})  # pyright: ignore[reportCallIssue]
    with pytest.raises(Unavailable), SyncOrchestrator(url="http://127.0.0.1:1") as deputies:
        deputies.start("x")
    assert threading.active_count() == before
