"""Workers that a number may kill, over a Redis of their own; and a command to be in the middle of."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.processes.redis_server import RedisProcess
from tests.runs.bench import call
from tests.runs.fleet import Fleet, open_fleet
from tests.waiting import until

HOLD = call("bash", command="sleep 1000 & sleep 1000 & echo begun > begun.txt; exec sleep 1000")


@asynccontextmanager
async def own_fleet(**settings: Any) -> AsyncGenerator[tuple[Fleet, Path]]:
    """A fleet without workers yet, and a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        server = RedisProcess(folder / "redis")
        try:
            async with open_fleet(server.url, folder / "home", log_level="WARNING", **settings) as fleet:
                yield fleet, folder
        finally:
            server.kill()


async def begun(fleet: Fleet, id: str) -> None:
    """Returns when the delegation is in the middle of ``HOLD``."""
    await until((fleet.settings.workspaces / id / "files" / "begun.txt").exists, 30)
