"""`SyncOrchestrator`: the operations without ``await``, its callbacks and its end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TypeVar

import pytest

import deputize
from deputize import (
    Conflict,
    DelegationFailed,
    Invalid,
    Limits,
    NotFound,
    Orchestrator,
    SyncOrchestrator,
    TerminationReason,
)
from deputize.shared.events import Envelope
from tests.orchestrator.command_line import environment
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
        with SyncOrchestrator(url=url) as orchestrator:
            return orchestrator.delegate("one", on_event=hear).summary

    assert await beside(script, finish(service, 1)) == "did one"
    assert heard == [("run_queued", True), ("run_finished", True)]


async def test_one_line_is_enough(url: str, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPUTIZE_URL", url)
    heard: list[str] = []

    def script() -> str:
        return deputize.run("one", labels={"of": "a line"}, on_event=lambda each: heard.append(each.event.type)).summary

    assert await beside(script, finish(service, 1)) == "did one"
    assert heard == ["run_queued", "run_finished"]
    assert [run.request.labels for run in service.runs.values()] == [{"of": "a line"}]


async def test_it_works_where_an_event_loop_runs_already(url: str, service: FakeService) -> None:
    async def cell() -> str:
        with SyncOrchestrator(settings(url=url)) as orchestrator:  # blocks its loop, as a cell of a notebook does
            started = orchestrator.start("one", limits={"max_turns": 3})
            service.finish(started.id, summary="done")
            assert [each.event.type for each in orchestrator.follow(started.id)] == ["run_queued", "run_finished"]
            return orchestrator.result(started.id).raise_for_status().summary

    assert await asyncio.to_thread(asyncio.run, cell()) == "done"
    assert [run.request.limits.max_turns for run in service.runs.values()] == [3]


async def test_several_at_once_come_back_in_order(url: str, service: FakeService) -> None:
    def script() -> list[str]:
        with SyncOrchestrator(url=url) as orchestrator:
            return [each.summary for each in orchestrator.gather(["one", "two"], labels={"of": "both"})]

    assert await beside(script, finish(service, 2)) == ["did one", "did two"]
    assert {run.request.labels["of"] for run in service.runs.values()} == {"both"}


async def test_a_follower_that_leaves_early_leaves_no_stream(url: str, service: FakeService) -> None:
    def script() -> str:
        with SyncOrchestrator(url=url) as orchestrator:
            id = orchestrator.start("one").id
            for envelope in orchestrator.follow(id):
                assert envelope.event.type == "run_queued"
                break
            return orchestrator.cancel(id).status

    assert await asyncio.to_thread(script) == "cancelled"
    await until(lambda: not service.following)


async def test_an_error_of_a_callback_ends_the_wait_and_not_the_work(url: str, service: FakeService) -> None:
    def hear(envelope: Envelope) -> None:
        raise KeyboardInterrupt

    def script() -> None:
        with SyncOrchestrator(url=url) as orchestrator:
            with pytest.raises(KeyboardInterrupt):
                orchestrator.delegate("one", on_event=hear)
            orchestrator.start("two")

    await asyncio.to_thread(script)
    assert [run.status for run in service.runs.values()] == ["queued", "queued"]
    await until(lambda: not service.following)


async def test_a_failure_is_raised_on_demand_and_carries_what_was_done(url: str, service: FakeService) -> None:
    def script() -> None:
        with SyncOrchestrator(url=url) as orchestrator:
            id = orchestrator.start("one").id
            service.finish(id, TerminationReason.ERROR, errors=["the model is gone"])
            with pytest.raises(DelegationFailed, match=rf"{id} failed \(error\): the model is gone") as failed:
                orchestrator.result(id).raise_for_status()
            assert (failed.value.delegation_id, failed.value.result.status) == (id, "failed")

    await asyncio.to_thread(script)


def loops() -> int:
    return [thread.name for thread in threading.enumerate()].count("deputize")


async def test_it_opens_with_its_first_operation_and_closes_once_it_is_closed(url: str, service: FakeService) -> None:
    def script() -> None:
        operations: list[Callable[[SyncOrchestrator], object]] = [
            lambda orchestrator: orchestrator.start("x").id,
            lambda orchestrator: orchestrator.list().items,
            lambda orchestrator: orchestrator.follow("dlg_x").close(),
            lambda orchestrator: orchestrator.as_tool(name="x").call({"tusk": "x"}).is_error,
        ]
        orchestrator = SyncOrchestrator(url=url)
        for operation in operations:
            orchestrator = SyncOrchestrator(url=url)
            assert loops() == 0
            operation(orchestrator)
            assert loops() == 1
            orchestrator.close()
            orchestrator.close()
            assert loops() == 0
            for later in operations:
                with pytest.raises(RuntimeError, match="it is closed; make another"):
                    later(orchestrator)
        with orchestrator:
            orchestrator.start("y")
        with pytest.raises(RuntimeError, match="it is closed"):
            orchestrator.delegate("x")

    await asyncio.to_thread(script)
    assert [run.request.task for run in service.runs.values()] == ["x", "y"]


async def test_threads_that_use_it_first_open_it_once(url: str, service: FakeService) -> None:
    orchestrator = SyncOrchestrator(url=url)

    def script() -> set[str]:
        with ThreadPoolExecutor(8) as threads:
            return {each.id for each in threads.map(orchestrator.start, map(str, range(8)))}

    assert await asyncio.to_thread(script) == {*service.runs}
    assert (len(service.runs), loops()) == (8, 1)
    await asyncio.to_thread(orchestrator.close)


LEFT_OPEN = """
import os, sys
from deputize import SyncOrchestrator
orchestrator = SyncOrchestrator()
print(orchestrator.start("x").status)
if sys.argv[1] == "forks":
    os.waitstatus_to_exitcode(os.waitpid(os.fork() or sys.exit(), 0)[1])
elif sys.argv[1] == "raises":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("forks", 0), ("raises", 3)])
async def test_the_interpreter_closes_one_that_was_left_open(
    url: str, service: FakeService, how: str, code: int
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", LEFT_OPEN, how),
        env=environment(DEPUTIZE_URL=url),
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out.decode(), err.decode()) == (code, "queued\n", "")


async def test_closing_ends_what_another_thread_waits_for(url: str, service: FakeService) -> None:
    def script() -> None:
        with ThreadPoolExecutor(1) as threads:
            orchestrator = SyncOrchestrator(url=url)
            waiting = threads.submit(orchestrator.result, orchestrator.start("x").id)
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
            orchestrator.close()
            with pytest.raises(CancelledError):
                waiting.result(10)

    await asyncio.to_thread(script)
    assert loops() == 0


@pytest.mark.parametrize("where", ["at an address", "in this process"])
async def test_what_follows_a_delegation_has_the_same_operations_in_both_places(
    url: str, service: FakeService, redis_url: str, where: str
) -> None:
    using = settings(url=url) if where == "at an address" else settings(redis_url=redis_url)

    def script() -> None:
        with SyncOrchestrator(using) as orchestrator:
            first = orchestrator.start("one")
            assert orchestrator.resume(first.id).status == "queued"
            assert orchestrator.permissions(first.id) == []
            with pytest.raises(NotFound, match="there is no permission request prm_x"):
                orchestrator.answer_permission("prm_x", "approve")
            with pytest.raises(Invalid, match="'yep' is not an outcome"):
                orchestrator.answer_permission("prm_x", "yep")
            assert orchestrator.cancel(first.id).status == "cancelled"
            with pytest.raises(Conflict):
                orchestrator.resume(first.id)
            again = [orchestrator.retry(first.id, idempotency_key="k") for _ in range(2)]
            assert [each.request.retry_of for each in again] == [first.id] * 2
            assert again[0].id == again[1].id != first.id
            with pytest.raises(Conflict):
                orchestrator.continue_(again[0].id, "and now this")

    await asyncio.to_thread(script)


async def test_a_finished_one_is_continued_with_limits_of_its_own(url: str, service: FakeService) -> None:
    def script() -> None:
        with SyncOrchestrator(url=url) as orchestrator:
            first = orchestrator.start("one")
            service.finish(first.id)
            new = orchestrator.continue_(first.id, "and now this", Limits(max_turns=3), idempotency_key="k")
            assert (new.request.continues, new.request.limits.max_turns) == (first.id, 3)
            assert new.request.idempotency_key == "k"
            assert orchestrator.continue_(first.id, "and this", {"max_turns": 4}).request.limits.max_turns == 4

    await asyncio.to_thread(script)


def in_a_child(work: Callable[[], object]) -> str:
    """Forks; returns what the work returned in the child, or the error that it raised there."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            answer = str(work())
        except BaseException as error:  # noqa: BLE001 - the parent asserts it
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("operation", ["counts", "delegate", "follow", "close"])
async def test_one_that_was_open_before_a_fork_raises_at_once_in_the_child(
    url: str, service: FakeService, operation: str
) -> None:
    def script() -> str:
        with SyncOrchestrator(url=url) as orchestrator:
            orchestrator.start("one")
            work = {
                "counts": orchestrator.counts,
                "delegate": lambda: orchestrator.delegate("x", on_event=print),
                "follow": lambda: [*orchestrator.follow("dlg_x")],
                "close": orchestrator.close,
            }
            answer = in_a_child(work[operation])
            orchestrator.start("two")
        return answer

    answer = await asyncio.to_thread(script)
    expected = "RuntimeError: it was opened before this process was forked; make another SyncOrchestrator here"
    assert answer == ("None" if operation == "close" else expected)
    assert len(service.runs) == 2


async def test_one_that_was_made_and_not_opened_before_a_fork_works_in_the_child(
    url: str, service: FakeService
) -> None:
    orchestrator = SyncOrchestrator(url=url)
    answer = await asyncio.to_thread(in_a_child, lambda: orchestrator.start("one").request.task)
    assert (answer, len(service.runs)) == ("one", 1)
    assert (await asyncio.to_thread(orchestrator.start, "two")).request.task == "two"
    await asyncio.to_thread(orchestrator.close)


async def test_nothing_to_do_is_done_at_once(url: str, service: FakeService) -> None:
    def script() -> object:
        with SyncOrchestrator(url=url) as orchestrator:
            with pytest.raises(Invalid, match="ids"):
                orchestrator.merge([])
            return orchestrator.gather([]), orchestrator.map([]), [*orchestrator.as_completed([])]

    assert await asyncio.to_thread(script) == ([], [], [])
    assert service.runs == {}


async def test_another_event_loop_than_its_own_is_refused_with_the_way_on(url: str, service: FakeService) -> None:
    async def other() -> None:
        with pytest.raises(RuntimeError, match="opened in another event loop"):
            await orchestrator.start("x")
        async with Orchestrator(url=url) as own:
            await own.start("x")

    async with Orchestrator(url=url) as orchestrator:
        await asyncio.to_thread(asyncio.run, other())
        await orchestrator.start("x")
    assert len(service.runs) == 2
