"""Steering in a storm of kills: every message is read exactly once, and the receipts are in order."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from deputize.shared.errors import Conflict, InboxFull
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.runs.receipts import check_receipts

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DELEGATIONS, TURNS = 3, 24
KILLED_AT = (5, 11, 17)
"""The turns of the first delegation at which a worker is killed, in the middle of what the others do."""


async def steer(fleet: Fleet, id: str) -> int:
    """Sends two messages at each event of a turn. Returns how many were accepted."""
    accepted = 0
    async with aclosing(fleet.service.follow(id)) as events:
        async for envelope in events:
            for place in range(2 * (envelope.event.type in ("turn_started", "replied", "step_started"))):
                try:
                    await fleet.service.send(id, f"message {envelope.seq}.{place}")
                    accepted += 1
                except InboxFull:
                    pass
                except Conflict:
                    return accepted
    return accepted


async def kill(fleet: Fleet, id: str) -> None:
    """Kills a worker at some turns of the delegation, and starts another one."""
    turns = [*KILLED_AT]
    async with aclosing(fleet.service.follow(id)) as events:
        async for envelope in events:
            if turns and envelope.event.type == "turn_started" and envelope.event.turn >= turns[0]:
                await fleet.kill(next(iter(fleet.workers)))
                await fleet.start(f"after {turns.pop(0)}", wait=False)


@pytest.mark.costly
async def test_every_message_is_read_once_in_a_storm_of_kills(redis_url: str, tmp_path: Path) -> None:
    look = {"blocks": [say("I look."), call("glob", pattern="{{calls}}.txt")], "repeat": TURNS, "delay": 0.02}
    model = script(tmp_path, look, [say("done")])
    settings = {"lease_seconds": 2, "claim_seconds": 5, "max_attempts": 1000, "shutdown_seconds": 0}
    async with open_fleet(redis_url, tmp_path / "home", **settings) as fleet:
        await asyncio.gather(*(fleet.start(f"w{number}") for number in range(2)))
        limits = {"maxTurns": TURNS + 3, "maxToolCalls": 2 * TURNS}
        ids = [await fleet.hand_over(model=model, limits=limits) for _ in range(DELEGATIONS)]
        *accepted, _ = await asyncio.gather(*(steer(fleet, id) for id in ids), kill(fleet, ids[0]))
        results = [await fleet.result(id) for id in ids]
        read = [await check_receipts(fleet.service.store, id) for id in ids]
    assert [result.termination_reason for result in results] == ["completed"] * DELEGATIONS
    assert sum(result.attempts for result in results) > DELEGATIONS, "workers were killed in the middle"
    for sent, each, result in zip(accepted, read, results, strict=True):
        assert sent == each + len(result.undelivered)
        assert each > TURNS
