"""Live display of delegations on stderr: a table on a terminal, else a line per change."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self

from orchestrator.cli import formatting as words
from orchestrator.cli import output
from orchestrator.cli.rows import Row, Totals

if TYPE_CHECKING:
    from shared.delegation import Delegation
    from shared.events import Envelope

TICK_SECONDS = 0.25


class Display(Protocol):
    """Shows events while its block lasts."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def add(self, delegation: Delegation) -> None:
        """Adds a delegation; its events follow."""
        ...

    def event(self, envelope: Envelope) -> None: ...
    def note(self, text: str) -> None:
        """Prints a line that is not an event, without breaking the table."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Clears the table for a block in which the command may print results."""
        ...


class Lines:
    """A line per event, for files, pipes and plain terminals."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, delegation: Delegation) -> None:
        self._titles[delegation.id] = words.cut(delegation.request.title, 32)

    def event(self, envelope: Envelope) -> None:
        if (line := words.event_line(envelope.event)) is not None:
            many = len(self._titles) > 1
            self.note(f"[{self._titles.get(envelope.delegation_id, envelope.delegation_id)}] {line}" if many else line)

    def note(self, text: str) -> None:
        output.line(text, err=True)

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()


class Table:
    """A live table for terminals: a row per unfinished delegation, and totals.

    A finished delegation becomes a line above the table, which scrolls away. Needs a running event loop.
    """

    def __init__(self, *, tell_ends: bool = True) -> None:
        from rich.console import Console

        from orchestrator.cli.region import Region

        self._tell_ends = tell_ends
        self._rows: dict[str, Row] = {}
        self._totals = Totals()
        self._console = Console(stderr=True)
        self._region = Region(sys.stderr, self._lines)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGCONT, self._region.redraw)
        self._tick()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._region.draw()

    def _tick(self) -> None:
        self._region.draw()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def add(self, delegation: Delegation) -> None:
        if self._totals.new(delegation.id):
            self._rows[delegation.id] = Row.of(delegation)

    def event(self, envelope: Envelope) -> None:
        id = envelope.delegation_id
        if self._totals.new(id):
            self._rows[id] = Row(id, id)
        if (row := self._rows.get(id)) is None:
            return
        row.take(envelope.event)
        if envelope.event.type == "run_finished":
            del self._rows[id]
            self._totals.finished(envelope.event.result)
            if self._tell_ends:
                result = envelope.event.result
                self.note(words.outcome(result) if self._totals.seen == 1 else words.end_line(result, row.title))

    def note(self, text: str) -> None:
        with self._region.aside():
            output.line(text, err=True)

    def aside(self) -> AbstractContextManager[None]:
        return self._region.aside() if sys.stdout.isatty() else nullcontext()

    def _lines(self) -> list[str]:
        from orchestrator.cli.table import drawn

        return drawn(self._console, [*self._rows.values()], self._totals)


def display(*, tell_ends: bool = True) -> Display:
    """Returns the table if stderr is a terminal that can move its cursor, else lines.

    Without ``tell_ends`` the command itself prints how each delegation ended.
    """
    if not sys.stderr.isatty():
        return Lines()
    from rich.console import Console

    return Lines() if Console(stderr=True).is_dumb_terminal else Table(tell_ends=tell_ends)
