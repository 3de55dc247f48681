"""Real workers and a receiver, through a kill -9 at each moment of a notification: it arrives, under one id."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.runs.bench import say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.runs.receiving import Receiver, later, receiving
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


async def until_moment(name: str, receiver: Receiver) -> None:
    """Returns when the worker of that name is to be killed."""
    if name == "queued":
        return  # the run has ended, and its worker is about to send
    await until(lambda: receiver.received)
    if name == "answered":
        assert receiver.hold
        receiver.hold.set()
        await until(lambda: receiver.answered)


async def delivered(fleet: Fleet, id: str) -> bool:
    await later(fleet.service.store, 60)  # the lease of a lost try
    return [each.state for each in await fleet.service.webhooks(id)] == ["delivered"]


async def test_a_worker_killed_at_any_moment_leaves_the_notification_to_the_next_one(
    redis_url: str, tmp_path: Path
) -> None:
    model = script(tmp_path, [say("done")])
    async with receiving() as receiver, open_fleet(redis_url, tmp_path / "home", **receiver.settings) as fleet:
        await fleet.start("queued")
        for name, successor in (("queued", "sent"), ("sent", "answered"), ("answered", "last")):
            receiver.received.clear()
            receiver.answered, receiver.hold = 0, asyncio.Event()
            id = await fleet.hand_over(model=model, webhook={"url": receiver.url})
            await fleet.result(id)
            await until_moment(name, receiver)
            await fleet.kill(name)
            receiver.hold.set()
            await fleet.start(successor)
            await until(partial(delivered, fleet, id))
            own = {(each.id, each.body) for each in receiver.received if each.id.startswith(id)}
            assert len(own) == 1  # those of the round before may come again, too
        assert await fleet.service.webhooks() == []
