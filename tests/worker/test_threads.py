"""Work in threads ends before its caller does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from deputize.shared.log import delegation
from deputize.worker.threads import A_RUN, MAX_BYTES, NICENESS, memory_held, run_in_thread, share_threads, take_memory
from tests.waiting import until


async def test_the_result_and_the_exception_come_back() -> None:
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divmod, 1, 0)


async def test_the_event_loop_goes_before_the_threads_that_work_for_it() -> None:
    share_threads(asyncio.get_running_loop())
    of_loop = os.getpriority(os.PRIO_PROCESS, 0)
    assert await run_in_thread(os.getpriority, os.PRIO_PROCESS, 0) == of_loop + NICENESS
    assert os.getpriority(os.PRIO_PROCESS, 0) == of_loop


@pytest.mark.parametrize("failing", [False, True])
async def test_a_cancelled_caller_waits_until_the_work_is_over(failing: bool) -> None:
    begun, go, done = Event(), Event(), Event()

    def work() -> None:
        begun.set()
        go.wait(5)
        done.set()
        if failing:
            raise OSError("too late to tell anyone")

    caller = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(begun.wait, 5)
    caller.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not caller.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done.is_set()


async def test_an_event_among_the_arguments_is_set_when_the_caller_is_cancelled() -> None:
    begun = Event()

    def work(stop: Event) -> bool:
        begun.set()
        return stop.wait(5)

    caller = asyncio.create_task(run_in_thread(work, stop := Event()))
    await asyncio.to_thread(begun.wait, 5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert stop.is_set()


class Busy:
    """Work that goes on until it is told to stop; knows how many of it went on at once."""

    def __init__(self) -> None:
        self.go = Event()
        self.running = self.most = 0

    def __call__(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.go.wait(20)
        self.running -= 1


async def of_run(id: str, *works: Callable[[], Any]) -> None:
    delegation.set(id)
    await asyncio.gather(*map(run_in_thread, works))


@pytest.mark.requirement("P-03")
async def test_a_run_works_in_two_threads_at_a_time_and_holds_up_nobody_else() -> None:
    one, other = Busy(), Busy()
    many = asyncio.create_task(of_run("one", *[one] * 20))
    await until(lambda: one.running == A_RUN)
    beside = asyncio.create_task(of_run("other", other))
    await until(lambda: other.running == 1)
    assert one.most == A_RUN
    one.go.set()
    other.go.set()
    await asyncio.gather(many, beside)
    assert one.most == A_RUN


async def test_large_files_are_read_one_after_the_other_where_they_are_too_much_together() -> None:
    most, done = 0, Event()

    def read() -> None:
        nonlocal most
        take_memory(MAX_BYTES // 2)
        take_memory(1000)  # not worth counting
        most = max(most, memory_held())
        done.wait(0.02)

    await asyncio.gather(*(run_in_thread(read) for _ in range(8)))
    assert MAX_BYTES // 2 <= most <= MAX_BYTES
    assert memory_held() == 0


async def test_a_cancelled_call_does_not_wait_for_memory() -> None:
    holding = Busy()

    def hold() -> None:
        take_memory(MAX_BYTES)
        holding()

    first = asyncio.create_task(run_in_thread(hold))
    await until(lambda: holding.running)
    second = asyncio.create_task(run_in_thread(take_memory, MAX_BYTES))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second], timeout=5)
    assert second.cancelled()
    holding.go.set()
    await first
    assert memory_held() == 0


async def test_what_is_read_outside_of_a_runs_work_is_not_counted_for_ever() -> None:
    take_memory(MAX_BYTES)
    await asyncio.to_thread(take_memory, MAX_BYTES)
    assert memory_held() == 0
