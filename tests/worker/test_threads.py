"""Work in threads ends before its caller does; long work of one run leaves the interpreter to the work of others.

Regular expressions have a time limit, of their own thread.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from deputize.shared.log import delegation
from deputize.worker.threads import (
    ALLOWANCE,
    MAX_BYTES,
    NICENESS,
    REFILLED,
    THREADS_PER_RUN,
    ComputeSlots,
    Share,
    give_way,
    memory,
    run_in_thread,
    run_short,
    share_threads,
    take_memory,
)
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


def test_asyncio_logs_nothing_of_work_that_failed_after_its_caller_was_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.run(test_a_cancelled_caller_waits_until_the_work_is_over(failing=True))
    gc.collect()
    assert caplog.messages == []


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
    """Work that goes on until it is stopped; knows how many of it went on at once."""

    def __init__(self) -> None:
        self.go = Event()
        self.running = self.most = 0

    def __call__(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.go.wait(20)
        self.running -= 1


async def of_run(id: str, *works: Callable[[], Any], begin: Callable[..., Any] = run_in_thread) -> None:
    delegation.set(id)
    await asyncio.gather(*map(begin, works))


@pytest.mark.requirement("P-03")
@pytest.mark.parametrize("begin", [run_in_thread, run_short])
async def test_a_run_works_in_two_threads_at_a_time_and_does_not_delay_others(begin: Callable[..., Any]) -> None:
    one, other = Busy(), Busy()
    many = asyncio.create_task(of_run("one", *[one] * 20, begin=begin))
    await until(lambda: one.running == THREADS_PER_RUN)
    beside = asyncio.create_task(of_run("other", other, begin=begin))
    await until(lambda: other.running == 1)
    assert one.most == THREADS_PER_RUN
    one.go.set()
    other.go.set()
    await asyncio.gather(many, beside)
    assert one.most == THREADS_PER_RUN


async def test_large_files_are_read_one_after_the_other_where_they_are_too_much_together() -> None:
    most, done = 0, Event()

    def read() -> None:
        nonlocal most
        take_memory(MAX_BYTES // 2)
        take_memory(1000)  # not worth counting
        most = max(most, memory.held)
        done.wait(0.02)

    await asyncio.gather(*(run_in_thread(read) for _ in range(8)))
    assert MAX_BYTES // 2 <= most <= MAX_BYTES
    assert memory.held == 0


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
    assert memory.held == 0


async def test_what_is_read_outside_of_a_runs_work_is_not_counted_for_ever() -> None:
    take_memory(MAX_BYTES)
    await asyncio.to_thread(take_memory, MAX_BYTES)
    assert memory.held == 0


def compute(seconds: float, on: Event) -> None:
    """Computes in this thread, in small pieces, for so long or until ``on`` is set."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds and not on.is_set():
        sum(range(1000))
        give_way()


async def test_short_work_does_not_wait_for_the_long_work_of_many_others() -> None:
    share_threads(asyncio.get_running_loop())
    stop, waiting = Event(), list[asyncio.Task[None]]()
    for number in range(30):
        delegation.set(f"long-{number}")
        waiting += [asyncio.create_task(run_in_thread(compute, 60, stop)) for _ in range(THREADS_PER_RUN)]
    delegation.set("short")
    try:
        assert await asyncio.wait_for(run_in_thread(divmod, 7, 2), 30) == (3, 1)
    finally:
        delegation.set("")
        stop.set()
        await asyncio.gather(*waiting)


async def test_short_work_of_a_run_that_has_computed_much_is_like_other_work() -> None:
    delegation.set("much")
    assert await run_short(divmod, 7, 2) == (3, 1)
    await run_in_thread(compute, 2 * ALLOWANCE, Event())
    assert await run_short(divmod, 7, 2) == (3, 1)
    delegation.set("")
    assert await run_short(divmod, 7, 2) == (3, 1)


def test_a_run_gets_back_what_it_may_compute() -> None:
    now = 0.0
    share = Share(lambda: now)
    share.charge(ALLOWANCE)
    assert share.is_used_up
    now += ALLOWANCE / REFILLED / 2
    assert round(share.spent, 6) == ALLOWANCE / 2
    assert not share.is_used_up


async def test_a_free_place_goes_to_the_run_that_has_computed_least() -> None:
    slots, order = ComputeSlots(1), list[int]()
    shares = [Share(lambda: 0.0) for _ in range(4)]
    for spent, share in enumerate(shares):
        share.charge(spent)
    assert slots.take(shares[0], Event())

    def take(number: int) -> None:
        assert slots.take(shares[number], Event())
        order.append(number)
        slots.give_back()

    threads = list[Thread]()
    for number in (3, 1, 2):
        threads.append(Thread(target=take, args=[number]))
        threads[-1].start()
        await until(lambda: slots.waiting == len(threads))
    assert slots.is_wanted(shares[3])
    assert not slots.is_wanted(shares[0])
    slots.give_back()
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
    assert order == [1, 2, 3]


def test_who_is_stopped_or_has_waited_long_enough_waits_no_more() -> None:
    slots, share, stopped = ComputeSlots(1), Share(), Event()
    assert slots.take(share, Event())
    assert not slots.take(share, Event(), 0)
    stopped.set()
    assert not slots.take(share, stopped)
    slots.give_back()
    assert slots.take(share, Event())
