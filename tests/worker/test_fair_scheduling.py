"""Long work of one run leaves the interpreter to the short work of others."""

from __future__ import annotations

import asyncio
import time
from threading import Event, Thread

from deputize.shared.log import delegation
from deputize.worker.fair_scheduling import ALLOWANCE, REFILLED, ComputeSlots, Share
from deputize.worker.threads import A_RUN, give_way, run_in_thread, share_threads
from tests.waiting import until


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
        waiting += [asyncio.create_task(run_in_thread(compute, 60, stop)) for _ in range(A_RUN)]
    delegation.set("short")
    try:
        assert await asyncio.wait_for(run_in_thread(divmod, 7, 2), 30) == (3, 1)
    finally:
        delegation.set("")
        stop.set()
        await asyncio.gather(*waiting)


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
