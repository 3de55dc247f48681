"""Background work: its failure ends the process with a reason, and a repeated cause is logged once."""

from __future__ import annotations

import asyncio
import logging
import signal

import pytest

from deputize.shared.background import Backoff, RepeatedCause, essential


async def test_the_failure_of_essential_work_is_logged_and_stops_the_process(caplog: pytest.LogCaptureFixture) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)

    async def fail() -> None:
        raise ValueError("no more")

    try:
        essential(fail(), "listener")
        await asyncio.wait_for(asked_to_stop.wait(), 30)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    (record,) = caplog.records
    assert record.getMessage() == "listener failed, so this process stops"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no more"


async def test_essential_work_may_end_and_may_be_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def end() -> None:
        return None

    async def hold() -> None:
        await asyncio.Event().wait()

    ended, cancelled = essential(end(), "short"), essential(hold(), "long")
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({ended, cancelled})
    assert caplog.messages == []


def test_a_repeated_cause_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deputize")
    trouble = RepeatedCause("Redis is away")
    for error in (OSError("refused"), OSError("refused"), OSError("no route")):
        trouble.failed(error)
    trouble.works()
    trouble.works()
    assert caplog.messages == ["Redis is away; trying again"] * 2 + ["recovered: Redis is away"]


def test_delays_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(first=1, longest=3)
    assert [backoff.next() for _ in range(4)] == [1, 2, 3, 3]
    backoff.reset()
    assert backoff.delay == 1
