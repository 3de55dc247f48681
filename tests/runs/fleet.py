"""A fleet for system tests: the service in this process, workers as real Celery processes, one Redis."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import Envelope, RunFinished
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings
from tests.processes.preloaded import WORKER, Forked
from tests.waiting import until


class Fleet:
    """Workers that can be started, stopped, frozen and killed, and the service that feeds them."""

    def __init__(self, settings: Settings, service: Delegations) -> None:
        self.settings = settings
        self.service = service
        self.workers: dict[str, Forked] = {}

    async def start(self, name: str = "1", *arguments: str, program: str = WORKER, wait: bool = True) -> Forked:
        """A worker process that has announced itself. ``program`` is a module with a ``main``."""
        environment = self.settings.child_environment() | self.settings.endpoint_variables()
        with (self.settings.home / f"worker-{name}.log").open("ab") as log:
            options = {"stdout": log.fileno(), "stderr": log.fileno(), "start_new_session": True}
            worker = Forked(program, ["--name", name, *arguments], environment, **options)
        self.workers[name] = worker
        if wait:
            await until(lambda: self.has_announced(worker.pid), 60)
        return worker

    async def has_announced(self, pid: int) -> bool:
        return any(card.pid == pid for card in await self.service.workers())

    def signal(self, name: str, number: signal.Signals) -> None:
        self.workers[name].send_signal(number)

    async def kill(self, name: str) -> None:
        """SIGKILL, and waits until it is gone."""
        worker = self.workers.pop(name)
        worker.kill()
        await until(lambda: worker.poll() is not None)

    async def run(self, task: str = "do it", **fields: Any) -> ToolAgentResult:
        return await self.result(await self.hand_over(task, **fields))

    async def hand_over(self, task: str = "do it", **fields: Any) -> str:
        return (await self.service.create(DelegationRequest(task=task, **fields))).delegation.id

    async def result(self, id: str, timeout: float = 60) -> ToolAgentResult:
        finished = await self.service.get(id, wait=timeout)
        assert finished.result is not None, f"{id} is {finished.status} after {timeout} s"
        return finished.result

    async def until_event(self, id: str, kind: str, timeout: float = 60) -> Envelope:
        """The first event of that type, as soon as it is there."""

        async def there() -> Envelope | None:
            return next((e for e in await self.service.events(id) if e.event.type == kind), None)

        return await until(there, timeout)

    async def follow(self, id: str) -> list[Envelope]:
        seen: list[Envelope] = []
        async for envelope in self.service.follow(id):
            seen.append(envelope)
            if isinstance(envelope.event, RunFinished):
                break
        return seen

    async def close(self) -> None:
        for worker in self.workers.values():
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            await until(lambda worker=worker: worker.poll() is not None)


@asynccontextmanager
async def open_fleet(redis_url: str, home: Path, **settings: Any) -> AsyncGenerator[Fleet]:
    home.mkdir(parents=True, exist_ok=True)
    own = {
        "redis_url": redis_url,
        "home": home,
        "local": True,
        "concurrency": 50,
        "scripts": tempfile.gettempdir(),
        "permission_timeout_seconds": 0,
    }
    if "model_endpoint" not in settings:
        own["model"] = "scripted"  # a worker of a model without a key imports its SDK: most of the CPU time of a start
    chosen = Settings.load(environ={}, **(own | settings))
    async with open_service(chosen, redis_url) as service:
        fleet = Fleet(chosen, service)
        try:
            yield fleet
        finally:
            await fleet.close()


@pytest.fixture
async def fleet(redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A service without workers yet, and a lease short enough for tests."""
    async with open_fleet(redis_url, tmp_path / "home", lease_seconds=2, shutdown_seconds=1) as fleet:
        yield fleet
