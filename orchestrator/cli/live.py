"""Live display of delegations on stderr: a table on a terminal, else a line per change."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from deputize.orchestrator.cli import formatting, output
from deputize.orchestrator.cli.rows import TableRow, Totals

if TYPE_CHECKING:
    from deputize.shared.delegation import Delegation
    from deputize.shared.events import Envelope

TICK_SECONDS = 0.25
UP = "\x1b[{}A"
CLEAR_BELOW = "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"


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
        self._titles[delegation.id] = formatting.cut(delegation.request.title, 32)

    def event(self, envelope: Envelope) -> None:
        if (line := formatting.event_line(envelope.event)) is not None:
            many = len(self._titles) > 1
            self.note(f"[{self._titles.get(envelope.delegation_id, envelope.delegation_id)}] {line}" if many else line)

    def note(self, text: str) -> None:
        output.line(text, err=True)

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()


class Region:
    """A redrawn region. The cursor stays on an empty line below it, so that key echoes vanish on the next redraw.

    The cursor is never hidden, so that a stopped or killed command has nothing to restore.
    """

    def __init__(self, stream: TextIO, lines: Callable[[], Sequence[str]]) -> None:
        self._stream = stream
        self._lines = lines
        self._drawn: list[str] = []

    def draw(self) -> None:
        lines = [*self._lines()]
        if lines != self._drawn:
            # The terminal may compute another character width; a wrapped line would break the line count.
            self._write(self._erasing() + NO_WRAP + "".join(f"{line}\n" for line in lines) + WRAP)
            self._drawn = lines

    def redraw(self) -> None:
        """Draws at the cursor without erasing: the old lines are not above it any more, as after Ctrl-Z and `fg`."""
        self._drawn = []
        self.draw()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Erases the lines for the block, in which others may print to this terminal."""
        self.erase()
        try:
            yield
        finally:
            self.draw()

    def erase(self) -> None:
        self._write(self._erasing())
        self._drawn = []

    def _erasing(self) -> str:
        return f"\r{UP.format(len(self._drawn)) if self._drawn else ''}{CLEAR_BELOW}"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            pass  # the terminal is gone; the work continues


class Table:
    """A live table for terminals: a row per unfinished delegation, and totals.

    A finished delegation becomes a line above the table, which scrolls away. Needs a running event loop.
    """

    def __init__(self, *, show_outcomes: bool = True) -> None:
        from rich.console import Console

        self._tell_ends = show_outcomes
        self._rows: dict[str, TableRow] = {}
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
            self._rows[delegation.id] = TableRow.of(delegation)

    def event(self, envelope: Envelope) -> None:
        id = envelope.delegation_id
        if self._totals.new(id):
            self._rows[id] = TableRow(id, id)
        if (row := self._rows.get(id)) is None:
            return
        row.take(envelope.event)
        if envelope.event.type == "run_finished":
            del self._rows[id]
            self._totals.finished(envelope.event.result)
            if self._tell_ends:
                result = envelope.event.result
                self.note(
                    formatting.outcome(result) if self._totals.seen == 1 else formatting.end_line(result, row.title)
                )

    def note(self, text: str) -> None:
        with self._region.aside():
            output.line(text, err=True)

    def aside(self) -> AbstractContextManager[None]:
        return self._region.aside() if sys.stdout.isatty() else nullcontext()

    def _lines(self) -> list[str]:
        from deputize.orchestrator.cli.table import table_lines

        return table_lines(self._console, [*self._rows.values()], self._totals)


def display(*, show_outcomes: bool = True) -> Display:
    """Returns the table if stderr is a terminal that can move its cursor, else lines.

    Without ``show_outcomes`` the command itself prints how each delegation ended.
    """
    if not sys.stderr.isatty():
        return Lines()
    from rich.console import Console

    return Lines() if Console(stderr=True).is_dumb_terminal else Table(show_outcomes=show_outcomes)
