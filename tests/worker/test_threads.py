"""Work in threads ends before its caller does."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from worker.threads import to_the_end


async def test_the_result_and_the_exception_come_back() -> None:
    assert await to_the_end(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await to_the_end(divmod, 1, 0)


@pytest.mark.parametrize("failing", [False, True])
async def test_a_cancelled_caller_waits_until_the_work_is_over(failing: bool) -> None:
    begun, go, done = Event(), Event(), Event()

    def work() -> None:
        begun.set()
        go.wait(5)
        done.set()
        if failing:
            raise OSError("too late to tell anyone")

    caller = asyncio.create_task(to_the_end(work))
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

    caller = asyncio.create_task(to_the_end(work, stop := Event()))
    await asyncio.to_thread(begun.wait, 5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert stop.is_set()
