"""How long the processes of an attempt outlive the end of the attempt that wins.

Two attempts are under way, with commands in sandboxes. One repairs a file and is verified, the other one holds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Delegation
from tests.benchmarks.attempts import FILES
from tests.benchmarks.cancelling import last_death, opened
from tests.benchmarks.ends import Ends, hear_ends
from tests.benchmarks.number import Number, percentile
from tests.benchmarks.own_fleet import HOLD, begun, own_fleet
from tests.processes.leaks import descendants
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.runs.nesting import children_of
from tests.waiting import until

COUNT = 60
HELD = b"sleep\x001000\x00"
"""The command lines of what ``HOLD`` starts."""
REPAIR = call("bash", command="until [ -e go ]; do sleep 0.02; done; rm go; sed -i s/-/+/ sum.py")
"""It begins when there is a file in its workspace."""


async def measure(runs: int, count: int = COUNT) -> list[Number]:
    all_took: list[list[float]] = []
    async with own_fleet() as (fleet, folder), hear_ends(str(fleet.settings.redis_url)) as ends:
        await asyncio.gather(*(fleet.start(name) for name in ("1", "2")))
        await _outlived(fleet, ends, folder)  # the first one loads the scripts
        for _ in range(runs):
            all_took.append([await _outlived(fleet, ends, folder) for _ in range(count)])
    p50, p95, last = ([percentile(took, percent) for took in all_took] for percent in (50, 95, 100))
    name = f"the winner's end → last process of the other attempt dead, p95 of {count}"
    return [Number(name, "ms", p95, at_most=20), Number("… p50", "ms", p50), Number("… the longest", "ms", last)]


async def _outlived(fleet: Fleet, ends: Ends, folder: Path) -> float:
    """Milliseconds from the end of the winner, as it was heard, to the death of the last process of the other one."""
    before = descendants()
    id = await fleet.hand_over(**_request(fleet, folder))
    holds, repairs = await until(lambda: _both(fleet, id))
    await begun(fleet, holds.id)
    watching = opened(await until(lambda: _held(before)))
    try:
        dead = asyncio.create_task(asyncio.to_thread(last_death, watching))
        (fleet.settings.workspaces / repairs.id / "files" / "go").touch()
        took = (await dead - ends.ended[repairs.id]) * 1000
    finally:
        for fd in watching:
            os.close(fd)
    result = await fleet.result(id)
    assert result.tournament
    assert (result.tournament.winner, result.verification.verdict) == (repairs.id, "verified"), result
    return took


def _request(fleet: Fleet, folder: Path) -> dict[str, Any]:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (project / name).write_text(text)
    models = [script(folder, [HOLD]), script(folder, [REPAIR], [say("Done.")])]
    checks = [{"kind": "command", "run": "python3 test_sum.py"}]
    return {
        "workspace": str(project),
        "verify": checks,
        "max_verify_rounds": 0,
        "attempts": {"count": 2, "concurrency": 2, "models": models},
    }


async def _both(fleet: Fleet, id: str) -> list[Delegation]:
    """The attempts in the order of their begin, when there are two; none before."""
    found = await children_of(fleet.service.store, id)
    return found if len(found) == 2 else []


def _held(before: set[int]) -> list[int]:
    """The three sleepers of ``HOLD`` and the processes of their sandbox; none before all are there."""
    new = descendants() - before
    sleepers = [pid for pid in new if _read(pid, "cmdline") == HELD]
    return sorted({*sleepers, *(above for pid in sleepers for above in _above(pid, new))}) if len(sleepers) == 3 else []


def _above(pid: int, new: set[int]) -> Iterator[int]:
    """The processes that started this one, below the worker."""
    while stat := _read(pid, "stat"):
        pid = int(stat.rpartition(b") ")[2].split()[1])
        if pid not in new:
            return
        yield pid


def _read(pid: int, name: str) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
