"""Two fleets on one Redis server, each with a database of its own: channels are the server's, so their names differ."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
import redis

from deputize.shared.delegation import Status
from deputize.shared.events import Envelope
from deputize.shared.message import MessageMode
from deputize.shared.permission import PermissionOutcome
from deputize.shared.request import ApprovalMode
from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

SETTINGS = {"lease_seconds": 30, "shutdown_seconds": 1, "permission_timeout_seconds": 60}
"""With such a lease a request to cancel that is not heard would be noticed late."""
WRITE = call("write_file", path="a.txt", content="x\n")


async def collect(fleet: Fleet, into: list[Envelope]) -> None:
    async with aclosing(fleet.service.follow_all()) as events:
        async for envelope in events:
            into.append(envelope)


async def channels(server: RedisProcess) -> set[str]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return {str(name) for name in client.pubsub_channels()}


async def works(fleet: Fleet, folder: Path) -> set[str]:
    """What is heard by channels: a request to cancel, a message, an answer, and events. Returns the delegations."""
    sleep = script(folder, [call("bash", command="sleep 1000")], [say("never")])
    cancelled = await fleet.hand_over(model=sleep, tools=["bash"])
    asks = await fleet.hand_over(model=script(folder, [WRITE], [say("done")]), approval_mode=ApprovalMode.ASK)
    await fleet.until_event(cancelled, "step_started")
    await fleet.service.cancel(cancelled)
    assert (await fleet.result(cancelled, 15)).status is Status.CANCELLED
    await fleet.until_event(asks, "waiting")
    await fleet.service.send(asks, "note", MessageMode.STEER)
    await fleet.until_event(asks, "message_received", 15)
    (request,) = await fleet.service.permissions()
    await fleet.service.answer_permission(request.permission_id, PermissionOutcome.PROCEED_ONCE)
    assert (await fleet.result(asks, 15)).files_modified == ["a.txt"]
    return {cancelled, asks}


async def test_two_fleets_on_one_server_do_not_hear_each_other(redis_process: RedisProcess, tmp_path: Path) -> None:
    async with (
        open_fleet(redis_process.url, tmp_path / "first", **SETTINGS) as first,
        open_fleet(f"{redis_process.url}?db=3", tmp_path / "second", **SETTINGS) as second,
    ):
        await asyncio.gather(first.start(), second.start())
        heard: tuple[list[Envelope], list[Envelope]] = ([], [])
        listening = [asyncio.create_task(collect(*each)) for each in zip((first, second), heard, strict=True)]
        await until(lambda: both_listen(redis_process))
        ours, theirs = await asyncio.gather(works(first, tmp_path), works(second, tmp_path))
        await until(lambda: [len({each.delegation_id for each in events}) for events in heard] == [2, 2])
        assert [{each.delegation_id for each in events} for events in heard] == [ours, theirs]

        # Both workers have the same name, and both fleets have files of delegations that have ended.
        ((card,), (other,)) = await first.service.workers(), await second.service.workers()
        assert card.name == other.name
        await second.service.prune(0)
        await until(lambda: not [*(tmp_path / "second/workspaces").glob("dlg_*")])
        await second.service.drain(other.name)
        await until(lambda: drains(second))
        assert not await drains(first)
        assert {path.name for path in (tmp_path / "first/workspaces").glob("dlg_*")} == ours
        await works(first, tmp_path)

        names = await channels(redis_process)
        assert {name.removeprefix("deputize:db3:") for name in names if "db3" in name} >= {"events", "cancel", "drain"}
        for each in listening:
            each.cancel()
        await asyncio.wait(listening)


async def both_listen(server: RedisProcess) -> bool:
    return {"deputize:events", "deputize:db3:events"} <= await channels(server)


async def drains(fleet: Fleet) -> bool:
    return all(worker.draining for worker in await fleet.service.workers())
