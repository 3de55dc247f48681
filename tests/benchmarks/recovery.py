"""How long a run stands still when its worker is killed: SIGKILL in the middle of a tool → ``run_resumed``.

The worker's standby ends its leases a fifth of a second after the death, and imports a client for Redis before; a
janitor finds them at its next tick. The lease's own length does not matter.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

from deputize.shared.settings import Settings
from tests.benchmarks.number import Number
from tests.benchmarks.own_fleet import HOLD, begun, own_fleet
from tests.runs.bench import say, script
from tests.runs.fleet import Fleet
from tests.system.crashing import hand_to

DEFAULT = Settings.model_fields["lease_seconds"].default
SHORT = 3.0


async def measure(runs: int) -> list[Number]:
    return [
        Number(
            f"SIGKILL → run_resumed, lease {DEFAULT:g} s (the default)", "s", await _all(DEFAULT, runs), at_most=1.5
        ),
        Number(f"… lease {SHORT:g} s", "s", await _all(SHORT, runs), at_most=1.5),
    ]


async def _all(lease: float, runs: int) -> list[float]:
    """The kills are spread evenly over the time between two renewals."""
    async with own_fleet(lease_seconds=lease) as (fleet, folder):
        await fleet.start("survivor")
        return [await _recovery(fleet, folder, str(n), lease / 3 * (n + 0.5) / runs) for n in range(runs)]


async def _recovery(fleet: Fleet, folder: Path, name: str, later: float) -> float:
    """Seconds from the kill, ``later`` seconds into the command, to hearing that the run goes on."""
    queue = f"victim-{name}"
    await fleet.start(name, "--queues", queue)
    id = await hand_to(fleet, queue, model=script(folder, [HOLD], [say("done")]))
    await begun(fleet, id)
    await asyncio.sleep(later)
    async with asyncio.timeout(60), aclosing(fleet.service.follow(id)) as events:
        await anext(events)
        await fleet.kill(name)
        killed = time.perf_counter()
        async for envelope in events:
            if envelope.event.type == "run_resumed":
                break
        took = time.perf_counter() - killed
    assert (await fleet.result(id)).attempts == 2
    return took
