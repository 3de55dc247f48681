"""A part: a capability of some runs that the core does not know. ``worker/parts`` has the table of all parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ...shared.errors import Fenced
from ...shared.log import log

if TYPE_CHECKING:
    from ...shared.delegation import ToolAgentResult
    from ...shared.events import Event
    from ..tools.context import ToolResult
    from .hooks import GoOn, PermittedCall
    from .limits import LimitReached
    from .loop import Loop
    from .outcome import RunOutcome

T = TypeVar("T")


class InTime(Protocol):
    """Awaits something for at most some seconds. Raises TimeoutError and RunCancelled."""

    async def __call__(self, work: Coroutine[Any, Any, T], seconds: float) -> T: ...


class UntilStopped(Protocol):
    """Awaits something until the run is stopped or no seconds are left. Raises TimeoutError and RunCancelled."""

    async def __call__(self, work: Coroutine[Any, Any, T], seconds_left: Callable[[], float]) -> T: ...


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one attempt, whose files are open."""

    loop: Loop | None
    """None in a run without a model."""
    until_stopped: UntilStopped
    in_time: InTime
    """The run's own time is paused meanwhile."""


class Part:
    """One capability in one attempt. A hook does nothing unless the part overrides it.

    The core calls the parts in the order of their table, and knows none of them.
    """

    must_settle: ClassVar[bool] = False
    """Whether this attempt ends without a result where ``settle`` fails at the end: the next attempt does it.

    So it is where something outside the run would else go on, or be lost.
    """

    async def begin(self, work: Work) -> RunOutcome | None:
        """Called before the first turn. An outcome ends the run; the parts behind this one do not begin."""
        return None

    async def before_turn(self, limit: LimitReached | None) -> None:
        """Called before each turn, before the final one with the ``limit`` that has ended the work.

        ``LimitReached`` ends the work: the final turn follows.
        """

    async def around(self, call: PermittedCall, go_on: GoOn) -> ToolResult:
        """Called for each call that is executed. Returns its result, as a rule that of ``go_on``.

        The first part of the table is the outermost one.
        """
        return await go_on()

    def hears(self, event: Event, number: int | None) -> None:
        """Called with each event of the run but for live text; ``number`` is that of a durable one.

        What it stores by ``Emitter.set`` or ``Emitter.count`` is in the same write as a durable event. After an
        exception the part hears no more of this attempt, and the result has the error.
        """

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        """Called with each outcome: when the loop has ended, and where the run ends without it or fails.

        Also called where the part did not begin. Returns the outcome, or None where the loop is to go on, which is
        possible for an outcome ``of_loop``. An exception then fails the run: all parts settle that outcome, too.
        """
        return outcome

    async def end(self) -> None:
        """Called when nothing changes the files any more, also where the part did not begin."""

    async def complete(self, result: ToolAgentResult, outcome: RunOutcome) -> ToolAgentResult:
        """Returns the result with the fields of this part."""
        return result


@contextmanager
def errors_reported(part: Part, report: Callable[[str], None]) -> Generator[None]:
    """Reports an exception of the part, and lets the run go on."""
    try:
        yield
    except Fenced:
        raise
    except Exception as error:  # noqa: BLE001 - the run has a result in every case
        log.exception("a part of the run failed")
        report(f"{type(part).__name__} failed: {error!r}")


@dataclass(slots=True)
class Hearing:
    """The hook ``hears`` of a part, which is not called again after it has failed."""

    part: Part
    failure: str = ""

    def __call__(self, event: Event, number: int | None) -> None:
        if not self.failure:
            with errors_reported(self.part, self._note):
                self.part.hears(event, number)

    def _note(self, failure: str) -> None:
        self.failure = failure
