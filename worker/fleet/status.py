"""The status of a worker, announced every few seconds: the numbers that operators see, and the tools that it offers."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from ...shared.connection import REDIS_ERRORS, shielded
from ...shared.delegation import Usage
from ...shared.errors import DeputizeError
from ...shared.fleet import ANNOUNCE_SECONDS, Fleet, PreparedEnvironment, ToolCard, WorkerCard, own_version
from ...shared.log import log
from ...shared.masking import SecretMask
from ...shared.runs.keys import DRAIN
from ...shared.wire import now
from ..sandbox.bubblewrap import Bubblewrap, NoSandbox
from ..sandbox.environment import MOUNT, owner
from ..threads import run_in_thread
from ..toolkit.offer import RunOffer
from ..toolkit.registry import tool_cards
from ..toolkit.sources import ToolSourceContext
from ..tools.base import AnyTool
from ..workspace.files import Files
from .lease import Leases

LAG_SECONDS = 0.1
"""The time between two looks at how late the event loop is."""


@dataclass(slots=True)
class WorkerStatus:
    """The status that one worker process announces, and its liveness file."""

    name: str
    concurrency: int
    offered: RunOffer
    """What the runs of the worker's own sandbox may have."""
    leases: Leases
    fleet: Fleet
    drain: Callable[[], None] = lambda: None
    """Lets the process take no more runs and hand over those it has."""
    draining: Callable[[], bool] = lambda: False
    """Returns whether it does."""
    usage: Usage = field(default_factory=Usage)
    """That of the model calls of all runs so far."""
    _started: datetime = field(default_factory=now)
    _lags: deque[float] = field(default_factory=lambda: deque[float](maxlen=60 // ANNOUNCE_SECONDS))
    _source_tools: list[ToolCard] = field(default_factory=list[ToolCard])
    """The tools that the sources offered at this worker's start."""

    _environments: list[PreparedEnvironment] = field(default_factory=list[PreparedEnvironment])

    def count(self, usage: Usage) -> None:
        self.usage += usage

    def card(self) -> WorkerCard:
        """Returns the worker's numbers as of now. A new one is a field of ``WorkerCard`` and a line here."""
        return WorkerCard(
            name=self.name,
            pid=os.getpid(),
            started_at=self._started,
            running=self.leases.count,
            concurrency=self.concurrency,
            model=self.offered.settings.model,
            sandbox=self.offered.sandbox_problem,
            tools=[*(tool.name for tool in self.offered.tools), *(card.name for card in self._source_tools)],
            loop_lag_seconds=max(self._lags, default=0.0),
            usage=self.usage,
            version=own_version(),
            environments=self._environments,
            draining=self.draining(),
        )

    async def announce_forever(self) -> None:
        while True:
            await self._announce()
            self._lags.append(await loop_lag(ANNOUNCE_SECONDS))

    async def hear_drain(self) -> None:
        """Listens for requests to drain."""
        async with self.leases.bus.listen(DRAIN) as listener:
            while True:
                if await listener.get() == self.name:
                    self.drain()

    async def announce_sources(self) -> None:
        """Lists once what the tool sources offer, and announces that, too.

        A failure is logged as a warning and does not affect runs.
        """
        try:
            self._source_tools += await _tools_of_sources(self.offered)
            await self._announce()
        except (*REDIS_ERRORS, DeputizeError, OSError, ValueError, RecursionError) as error:
            log.warning("the further tools of this worker cannot be announced", exc_info=error)
        log.info("workspaces lie below %s", self.offered.settings.workspaces)

    async def leave(self) -> None:
        """Removes this worker from the announcements, and its liveness file."""
        with suppress(OSError):
            self._liveness_file.unlink(missing_ok=True)
        with suppress(*REDIS_ERRORS):
            await asyncio.wait_for(self.fleet.leave(self.name), 1)

    async def _announce(self) -> None:
        tools = [*tool_cards(self.offered.tools), *self._source_tools]
        if self.offered.environments:
            self._environments = await run_in_thread(self.offered.environments.announced)
        with suppress(*REDIS_ERRORS):
            await shielded(self.fleet.announce(self.card(), tools))
            await run_in_thread(self._touch)

    @property
    def _liveness_file(self) -> Path:
        return self.offered.settings.home / f"alive-{self.name}"

    def _touch(self) -> None:
        """Touches the liveness file for cheap health checks: the event loop is running, and Redis responds."""
        with suppress(OSError):
            self._liveness_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._liveness_file.touch(mode=0o600)


async def loop_lag(seconds: float) -> float:
    """Returns, after so many seconds, the longest time by which the event loop was late meanwhile."""
    loop, longest = asyncio.get_running_loop(), 0.0
    end = loop.time() + seconds
    while (begun := loop.time()) < end:
        await asyncio.sleep(LAG_SECONDS)
        longest = max(longest, loop.time() - begun - LAG_SECONDS)
    return round(longest, 4)


async def _tools_of_sources(offered: RunOffer) -> list[ToolCard]:
    """Opens every source over an empty workspace and closes it again; returns the tools they offered."""
    found: list[AnyTool] = []
    async with AsyncExitStack() as opened:
        # Below the workspaces, where the janitor removes it if this worker is killed meanwhile.
        workspaces, problem = offered.settings.workspaces, offered.sandbox_problem
        workspaces.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="survey-", dir=workspaces)))
        if whose := owner():
            os.chown(folder, *whose)
        sandbox = NoSandbox(problem) if problem else opened.enter_context(Bubblewrap(folder))
        files = opened.enter_context(Files(folder, MOUNT, owner()))
        mask = SecretMask(offered.settings.secrets)
        context = ToolSourceContext("", None, files, sandbox, partial(log.warning, "%s"), mask.add)
        for source in offered.sources:
            found += await opened.enter_async_context(source.open(context))
        cards = await asyncio.to_thread(tool_cards, found)
        return [ToolCard.model_validate_json(mask.json(card.to_json())) for card in cards]
