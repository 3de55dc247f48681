"""What one run is and has done so far, in all its phases, whether or not its loop has begun."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_core import to_json

from ..shared.delegation import Progress, Status
from ..shared.events import ErrorSeen
from ..shared.facts import Trust
from ..shared.runs.cost import SPENT
from ..shared.runs.record import TRUST, Claim
from ..shared.runs.turns import FILE_TURNS
from ..shared.text import clip
from .emit import Emitter
from .limits import Meter
from .policy.trust import ReadSources
from .steps import StepLog
from .workspace.workspace import Workspace

MAX_DETAILS_CHARS = 32_000


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One attempt at one delegation: its claim, and what it and the attempts before it have done."""

    claim: Claim
    emit: Emitter
    meter: Meter
    steps: StepLog
    reading: ReadSources
    free_slot: Callable[[], AbstractContextManager[None]] = nullcontext
    """Frees the run's slot for another run while its block runs."""
    errors: list[str] = field(default_factory=list[str])
    _waits: int = 0
    _freed: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(
        cls,
        claim: Claim,
        emit: Emitter,
        *,
        report_step: Callable[[str], None] = lambda text: None,
        free_slot: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Self:
        """Returns the context with what earlier attempts left.

        ``report_step`` is called with one short line at the start of every step, for monitoring.
        """
        meter = Meter.restored(claim.limits, claim.checkpoint, claim.elapsed)
        if claim.ledger:  # calls of the turn under way may have changed files unseen
            claim.file_turns.note(meter.turns)
        return cls(
            claim=claim,
            emit=emit,
            meter=meter,
            steps=StepLog(emit, report_step),
            reading=ReadSources(lambda trust: emit.set({TRUST: trust}), claim.trust or Trust()),
            free_slot=free_slot,
        )

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Frees the run's slot for another run while the block runs; the run keeps its coroutine.

        However many waits there are at once, the one slot is freed, and the record is marked as waiting.
        """
        self._waits += 1
        if self._waits == 1:
            self._freed.enter_context(self.free_slot())
            self.emit.set({"status": Status.WAITING.value})
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._freed.close()
                self.emit.set({"status": Status.RUNNING.value})

    @contextmanager
    def idle(self) -> Generator[None]:
        """Frees the run's slot and stops its clock while the block runs."""
        with self.waiting(), self.meter.paused():
            yield

    def report_error(self, message: str, kind: str) -> None:
        """Publishes an error that the result will list, once."""
        if message not in self.errors:
            self.errors.append(message)
            self.emit.emit(ErrorSeen(message=message, kind=kind))

    async def note_files(self, workspace: Workspace, *, lasting: bool = False) -> None:
        """Notes that this turn changed files, if it did; ``lasting``: a command in the background may change more."""
        if await workspace.note_changes() or lasting:
            self.claim.file_turns.note(self.meter.turns, lasting=lasting)

    def checkpoint(self, billed: tuple[int, ...]) -> None:
        """Stores, for the next attempt and for clients that poll, what was used so far.

        Called when conversation and counts are consistent. ``billed``: ``Conversation.billed``.
        """
        state = self.meter.checkpoint() | {"window": billed}
        self.emit.set({"checkpoint": to_json(state).decode(), **self.counts})

    @property
    def progress(self) -> Progress:
        return Progress(
            turn=self.meter.turns,
            tool_calls=self.meter.tool_calls,
            last_tool=self.steps.last_tool,
            elapsed_ms=round(self.meter.elapsed * 1000),
            cost_usd=self.meter.usage.cost_usd,
        )

    @property
    def counts(self) -> dict[str, str]:
        spent = {"progress": self.progress.to_json(), SPENT: self.meter.own.to_json()}
        return spent | {FILE_TURNS: self.claim.file_turns.to_json()}

    @property
    def of_result(self) -> dict[str, Any]:
        """Returns the result's fields about what was done and read, and what it cost."""
        return {
            "details": clip(self.emit.mask.text(self.steps.details()), MAX_DETAILS_CHARS),
            "errors": [*self.errors, *self.steps.errors()],
            **self.steps.counts,
            "turn_count": self.meter.turns,
            "execution_time_ms": round(self.meter.elapsed * 1000),
            "usage": self.meter.usage,
            "trust": self.reading.trust,
        }
