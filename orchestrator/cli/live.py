"""Live display of delegations on stderr: a table on a terminal, else a line per change."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from ...shared.text import visible
from . import formatting, output
from .event_lines import EventLines
from .rows import TableRow, Totals

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.events import Envelope

TICK_SECONDS = 0.25
QUIET_SECONDS = 20.0
"""A pipe gets a line at least this often while something is unfinished."""
SHOWN_BY_ROWS = {"run_queued", "run_started"}
"""Events without a line above the table: its rows show them."""
MAX_TITLE = 32
KEPT_LINES = 12
"""Lines of a terminal that the lines about a question leave for all others."""
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

    prompts: bool
    """Whether it can show a prompt."""

    def prompt(self, *lines: str) -> None:
        """Shows a question below everything else: lines about it, itself, the line of its answer; none removes it."""
        ...


class Lines:
    """A line per event, for files, pipes and plain terminals; a line of the state where nothing happens for long.

    Needs a running event loop.
    """

    prompts = False

    def __init__(self, *, stream: bool = False, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._rows: dict[str, TableRow] = {}
        self._totals = Totals()
        self._lines = EventLines(stream=stream)
        self._quiet_seconds = quiet_seconds
        self._loop = asyncio.get_running_loop()
        self._printed = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._timer = self._loop.call_at(self._printed + self._quiet_seconds, self._check)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if self._loop.time() >= self._printed + self._quiet_seconds:
            self._printed = self._loop.time()
            if state := self._state():
                self.note(state)
        self._timer = self._loop.call_at(self._printed + self._quiet_seconds, self._check)

    def _state(self) -> str:
        rows = [*self._rows.values()]
        if self._totals.seen == 1:
            return f"… {rows[0].line()}" if rows else ""
        return f"… {self._totals.line(rows)}" if rows else ""

    def add(self, delegation: Delegation) -> None:
        if self._totals.new(delegation.id):
            self._rows[delegation.id] = TableRow.of(delegation)

    def event(self, envelope: Envelope) -> None:
        id, event = envelope.delegation_id, envelope.event
        row = self._rows.get(id)
        if row is not None:
            row.take(event)
        title = formatting.cut(row.title, 32) if row else id
        for line in self._lines.of(envelope):
            self.note(f"[{title}] {line}" if self._totals.seen > 1 else line)
        if event.type == "run_finished" and row is not None:
            del self._rows[id]
            self._totals.finished(event.result)

    def note(self, text: str) -> None:
        self._printed = self._loop.time()
        output.line(text, err=True)

    def aside(self) -> AbstractContextManager[None]:
        self._printed = self._loop.time()
        return nullcontext()

    def prompt(self, *lines: str) -> None:
        pass


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

    def __init__(self, *, show_outcomes: bool = True, stream: bool = False) -> None:
        from rich.console import Console

        self._show_outcomes = show_outcomes
        self.prompts = sys.stdin.isatty()
        self._steps = EventLines(stream=stream, width=self._width, asks=self.prompts)
        self._rows: dict[str, TableRow] = {}
        self._totals = Totals()
        self._prompt: Sequence[str] = ()
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
        lines = self._steps.of(envelope)
        if envelope.event.type == "run_finished" or (self._totals.seen > 1 and envelope.event.type in SHOWN_BY_ROWS):
            lines = lines[:-1]  # the line of the end is another one
        self._print([f"{self._prefix(row)}{line}" for line in lines])
        if open := self._steps.unfinished(id):
            row.step = open
        if envelope.event.type == "run_finished":
            self._finished(row, envelope.event.result)

    def _prefix(self, row: TableRow) -> str:
        """Returns what names the delegation at the beginning of a line; "" where there is only one."""
        if self._totals.seen == 1:
            return ""
        title = formatting.cut(row.title, min(MAX_TITLE, self._console.width // 3))
        return f"{title}  {formatting.short_id(row.id)}  "

    def _finished(self, row: TableRow, result: ToolAgentResult) -> None:
        del self._rows[row.id]
        self._totals.finished(result)
        if self._show_outcomes:
            end = formatting.outcome(result), formatting.end_line(result, row.title, row.request)
            self.note(end[self._totals.seen > 1])

    def _width(self) -> int:
        return self._console.width - max(map(len, map(self._prefix, self._rows.values())), default=0)

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            with self._region.aside():
                for line in lines:
                    output.line(line, err=True)

    def note(self, text: str) -> None:
        self._print([text])

    def aside(self) -> AbstractContextManager[None]:
        return self._region.aside() if sys.stdout.isatty() else nullcontext()

    def _lines(self) -> list[str]:
        from .table import table_lines

        below = self._prompted(*self._prompt) if self._prompt else []
        return [*table_lines(self._console, [*self._rows.values()], self._totals, len(below)), *below]

    def _prompted(self, *lines: str) -> list[str]:
        width, room = self._console.width - 1, max(1, self._console.height - KEPT_LINES)
        *about, question, answer = map(visible, lines)
        about = [part for line in about for part in formatting.wrapped(line, width, hang=4, hard=True)]
        if len(about) > room:
            about[room - 1 :] = [f"  … {len(about) - room + 1} more lines: ? shows them"]
        if len(answer) > width:
            answer = f"…{answer[1 - width :]}"  # what is typed is at the end
        question = formatting.wrapped(question, width, hard=True)
        return [*(output.painted(line, sys.stderr) for line in about), *question, answer]

    def prompt(self, *lines: str) -> None:
        self._prompt = lines
        self._region.draw()


def display(*, show_outcomes: bool = True, stream: bool = False) -> Display:
    """Returns the table if stderr is a terminal that can move its cursor, else lines.

    Without ``show_outcomes`` the command itself prints how each delegation ended. ``stream`` shows the model's words
    and the output of commands, too.
    """
    if not sys.stderr.isatty():
        return Lines(stream=stream)
    from rich.console import Console

    if Console(stderr=True).is_dumb_terminal:
        return Lines(stream=stream)
    return Table(show_outcomes=show_outcomes, stream=stream)
