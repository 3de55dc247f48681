"""Services over one Redis, each a process of its own that a number may kill at any time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from deputize.shared.settings import Settings
from tests.processes.preloaded import Forked
from tests.waiting import until

_LISTENS = re.compile(rb"listening on (http://[\d.]+:\d+)\b[^\d]")
_PROGRAM = "deputize.orchestrator.serve"


class ServiceProcess:
    """A service that is killed and started again; ``url`` is where it listens, None until it does."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings = settings
        self.url: str | None = None
        self._log = log
        self._process: Forked | None = None

    async def start(self) -> None:
        size = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            out = log.fileno()
            arguments = ["--host", "127.0.0.1", "--port", "0"]
            self._process = Forked(_PROGRAM, arguments, self.settings.child_environment(), stdout=out, stderr=out)
        found = await until(lambda: _LISTENS.search(self._log.read_bytes()[size:]), 60)
        self.url = found[1].decode()

    async def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        process, self._process, self.url = self._process, None, None
        if process:
            process.kill()
            await process.ended()


@asynccontextmanager
async def service_processes(settings: Settings, folder: Path, number: int) -> AsyncGenerator[list[ServiceProcess]]:
    """So many services, started."""
    services = [ServiceProcess(settings, folder / f"service-{each}.log") for each in range(number)]
    try:
        await asyncio.gather(*(each.start() for each in services))
        yield services
    finally:
        await asyncio.gather(*(each.kill() for each in services))
