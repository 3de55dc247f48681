"""The supervision of one run: its loop and its parts end at its time limits and on a signal to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ...shared.delegation import TerminationReason
from ...shared.errors import Fenced, ModelUnavailable
from ...shared.log import log
from ...shared.text import count
from ..contracts import StopReason, StopSignal
from .limits import LimitReached
from .loop import Loop
from .outcome import RunCancelled, RunOutcome
from .run_context import RunContext

MOST_AWAITED = 3
"""How many of the things are named that a run waited for when its time ended."""
CLOCK_SECONDS = 0.02
"""Seconds after which a clock that is stopped near its end is looked at again."""

_NOT_BEGUN = RunOutcome(TerminationReason.WRAPPED_UP, "Wrapped up before its first turn.")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Supervision:
    """What bounds the work of one attempt: the run's time, and the signal that stops it."""

    run: RunContext
    stop: StopSignal

    async def finished(self, loop: Loop) -> RunOutcome:
        """Runs the loop under its time limit and stop signals; a limit is followed by a final turn."""
        try:
            await self.until_stopped(loop.work(), lambda: self.run.meter.time_left)
            return RunOutcome(TerminationReason.COMPLETED, loop.conversation.last_words, is_report=True)
        except LimitReached as limit:
            return await self._summarize(loop, limit)
        except TimeoutError:
            if awaited := " and ".join([*dict.fromkeys(self.run.waits.awaited)][:MOST_AWAITED]):
                awaited, error = f" while it waited for {awaited}", loop.model_calls.wait.error
                self.run.report_error(f"its time ended{awaited}{error and f': {error}'}", "rate" if error else "limit")
            return await self._summarize(loop, self.run.meter.out_of_time(), awaited)
        except RunCancelled:
            loop.close_calls("the delegation was cancelled")
            return self.cancelled(loop.conversation.last_words)

    def cancelled(self, words: str) -> RunOutcome:
        if self.stop.reason is StopReason.WRAPPED_UP:
            return _NOT_BEGUN
        return RunOutcome(TerminationReason.CANCELLED, words)

    async def _summarize(self, loop: Loop, limit: LimitReached, when: str = "") -> RunOutcome:
        if limit.reason is TerminationReason.WRAPPED_UP and not self.run.meter.turns:
            return _NOT_BEGUN
        earlier, summary = loop.conversation.last_words, ""
        try:
            summary = await self.until_stopped(loop.summarize(limit), lambda: self.run.meter.time_for_summary)
        except (TimeoutError, LimitReached, ModelUnavailable, RunCancelled) as error:
            log.info("no summary turn: %s", error)
        if limit.reason is TerminationReason.COMPLETED:
            return RunOutcome(limit.reason, summary or earlier)
        number = len(self.run.steps.ended)
        made = f"{count(number, 'step')} {'was' if number == 1 else 'were'} made."
        log_of_steps = f"Stopped: {limit}{when}. {made} {earlier}".strip()
        return RunOutcome(limit.reason, summary or log_of_steps, is_report=bool(summary))

    async def until_stopped(self, work: Coroutine[Any, Any, T], seconds_left: Callable[[], float]) -> T:
        """Awaits the work; cancels it at its time limit or on a stop signal, and waits until it has ended.

        ``seconds_left`` is called again when the time is over, because the run's clock may have been stopped. Raises
        ``TimeoutError``, ``RunCancelled`` or ``Fenced``, and whatever the work raises.
        """
        doing = asyncio.create_task(work, name=f"loop {self.run.claim.id}")
        signal = asyncio.create_task(self.stop.wait())
        try:
            while (seconds := seconds_left()) > 0:
                seconds = max(seconds, CLOCK_SECONDS)
                if (await asyncio.wait({doing, signal}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
                    break
        except asyncio.CancelledError:
            self.run.emit.hand_over()
            raise
        finally:
            signal.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
            if not doing.cancelled():
                doing.exception()  # asked for in every case, else asyncio reports it
        if self.stop.reason is StopReason.FENCED:
            raise Fenced
        if not doing.cancelled():
            return doing.result()
        if self.stop.reason is not None:
            raise RunCancelled
        raise TimeoutError

    async def in_time(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Awaits work that has a time of its own: that of the run is paused meanwhile."""
        end = time.monotonic() + seconds
        with self.run.meter.paused():
            return await self.until_stopped(work, lambda: end - time.monotonic())
