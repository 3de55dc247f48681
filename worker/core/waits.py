"""What a run waits for: with the slot and the clock that it needs meanwhile, or gives up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from ...shared.delegation import Status
from ...shared.events import ResumedWaiting, Waiting
from ...shared.runs.record import PROGRESS
from .emit import Emitter
from .limits import Meter


@dataclass(slots=True)
class Waits:
    """The waits of one attempt."""

    emit: Emitter
    meter: Meter
    free_slot: Callable[[], AbstractContextManager[None]] = nullcontext
    """Frees the run's slot for another run while its block runs."""
    awaited: list[str] = field(default_factory=list[str])
    """What the run waits for, in words; what it was stopped in stays."""
    _outside: int = 0
    _freed: ExitStack = field(default_factory=ExitStack)

    @property
    def is_idle(self) -> bool:
        """Whether the run waits for something outside."""
        return self._outside > 0

    @contextmanager
    def noted(self, what: str) -> Generator[None]:
        """Notes what the run waits for while the block runs; it stays noted if the run is stopped meanwhile."""
        self.awaited.append(what)
        stopped = False
        try:
            yield
        except asyncio.CancelledError:
            stopped = True
            raise
        finally:
            if not stopped:
                self.awaited.remove(what)

    @contextmanager
    def without_slot(self, why: str) -> Generator[None]:
        """Frees the run's slot for another run while the block runs; the run keeps its coroutine.

        However many waits there are at once, the one slot is freed, and the record is marked as waiting, with the
        reason of the first one, as the event ``waiting`` has it.
        """
        self._outside += 1
        if self._outside == 1:
            self._freed.enter_context(self.free_slot())
            self.emit.set({"status": Status.WAITING.value, "why": why})
        try:
            yield
        finally:
            self._outside -= 1
            if not self._outside:
                self._freed.close()
                self.emit.set({"status": Status.RUNNING.value})

    @contextmanager
    def without_clock(self, why: str) -> Generator[None]:
        """Frees the run's slot and stops its clock while the block runs."""
        with self.without_slot(why), self.meter.paused():
            yield

    @contextmanager
    def reported(self, why: Literal["permission", "batch", "budget"], detail: str) -> Generator[None]:
        """Does the same, and publishes that the run waits and, unless it is stopped, that it goes on.

        To come as far as such a wait is progress: a worker that is lost meanwhile was not lost by this run.
        """
        self.emit.emit(Waiting(why=why, detail=detail))
        self.emit.set(PROGRESS)
        begun = time.monotonic()
        with self.without_clock(why):
            yield
        self.emit.emit(ResumedWaiting(seconds=round(time.monotonic() - begun, 3)))
