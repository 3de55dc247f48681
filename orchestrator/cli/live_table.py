"""The live table of a terminal: a row per unfinished delegation at its bottom, redrawn in place, and questions below.

Everything that draws with rich is here, whose import would delay the commands that draw nothing.
"""

from __future__ import annotations

import signal
import sys
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from ...shared.text import visible
from ...shared.wording import SHORT_ID, cut, dollars, outcome, seconds, short_id
from ..run_states import ChildState, RunState
from . import output
from .live import MAX_TITLE, EventLines, Live

if TYPE_CHECKING:
    from ...shared.events import Envelope

SHOWN_BY_ROWS = {"run_queued", "run_started"}
"""Events without a line above the table: its rows show them."""
KEPT_LINES = 12
"""Lines of a terminal that the lines about a question leave for all others."""
UP = "\x1b[{}A"
CLEAR_BELOW = "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
STATUS_STYLES = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
}
NARROW = 100
"""Columns below which the table leaves some out."""
OTHER_LINES = 6
"""Lines for the header, the totals, the cursor, and some of the output above."""
CHILD = "↳ "
"""Before the title of a child, below its parent."""
ORDER = {"waiting": 0, "running": 1}


Family = tuple[RunState, list[ChildState]]
"""A row, and its children below it."""


class Table(Live):
    """A live table for terminals: a row per unfinished delegation, and totals.

    A finished delegation becomes a line above the table, which scrolls away. The cursor stays on an empty line below
    the table, so that key echoes vanish with the next redraw; it is never hidden, so that a stopped or killed command
    has nothing to restore.
    """

    def __init__(self, *, show_outcomes: bool = True, stream: bool = False) -> None:
        self.prompts = sys.stdin.isatty()
        super().__init__(EventLines(stream=stream, width=self._width, asks=self.prompts))
        self._show_outcomes = show_outcomes
        self._prompt: Sequence[str] = ()
        self._console = Console(stderr=True)
        self._drawn: list[str] = []

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGCONT, self._redraw)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._refresh()

    def _refresh(self) -> None:
        lines = self._lines()
        if lines != self._drawn:
            # The terminal may compute another character width; a wrapped line would break the line count.
            self._write(NO_WRAP + "".join(f"{line}\n" for line in lines) + WRAP)
            self._drawn = lines

    def _redraw(self) -> None:
        """Draws at the cursor without erasing: the old lines are not above it any more, as after Ctrl-Z and `fg`."""
        self._drawn = []
        self._refresh()

    @contextmanager
    def _erased(self) -> Generator[None]:
        """Erases the lines for the block, in which others may print to this terminal."""
        self._write("")
        self._drawn = []
        try:
            yield
        finally:
            self._refresh()

    def _write(self, text: str) -> None:
        """Writes in place of the lines that are drawn."""
        up = UP.format(len(self._drawn)) if self._drawn else ""
        with suppress(OSError):  # the terminal is gone; the work continues
            sys.stderr.write(f"\r{up}{CLEAR_BELOW}{text}")
            sys.stderr.flush()

    def event(self, envelope: Envelope) -> None:
        if (state := self._states.take(envelope)) is None:
            return
        several, type = self._states.several, envelope.event.type
        lines = self._steps.of(envelope)
        if type == "run_finished" or (several and type in SHOWN_BY_ROWS):
            lines = lines[:-1]  # the line of the end is another one
        self._print([f"{self._prefix(state)}{line}" for line in lines])
        if open := self._steps.unfinished(state.id):
            state.step = open
        if envelope.event.type == "run_finished" and self._show_outcomes:
            result = envelope.event.result
            self.note(output.end_line(result, state.title, state.request) if several else outcome(result))

    def _prefix(self, state: RunState) -> str:
        """Returns what names the delegation at the beginning of a line; "" where there is only one."""
        if not self._states.several:
            return ""
        return f"{cut(state.title, min(MAX_TITLE, self._console.width // 3))}  {short_id(state.id)}  "

    def _width(self) -> int:
        return self._console.width - max(map(len, map(self._prefix, self._states.open.values())), default=0)

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            with self._erased():
                output.lines(lines, err=True)

    def note(self, text: str) -> None:
        self._print([text])

    def aside(self) -> AbstractContextManager[None]:
        return self._erased() if sys.stdout.isatty() else nullcontext()

    def _lines(self) -> list[str]:
        below = self._prompted(*self._prompt) if self._prompt else []
        return [*self._rows(len(below)), *below]

    def _rows(self, taken: int) -> list[str]:
        """Returns the lines about the delegations where so many lines of the terminal are taken; one for one row."""
        rows, console = [*self._states.open.values()], self._console
        with console.capture() as captured:
            if self._states.several:
                room = max(1, console.height - OTHER_LINES - taken)
                rows.sort(key=lambda row: ORDER.get(row.status, len(ORDER)))
                families = [(row, self._states.children_of(row)) for row in rows]
                first = _within(room, families)
                if first:
                    console.print(_grid(first, narrow=console.width < NARROW))
                footer = self._states.totals(len(rows) - len(first))
                console.print(Text(footer, "bold", no_wrap=True, overflow="ellipsis"))
            else:
                for row in rows:
                    line = Text(visible(row.line()), no_wrap=True, overflow="ellipsis")
                    line.stylize(STATUS_STYLES.get(row.status, ""), 0, len(row.status))
                    console.print(line)
                    for child in self._states.children_of(row)[: max(0, console.height - OTHER_LINES - taken)]:
                        text = ": ".join(filter(None, (child.title, child.step)))
                        console.print(Text(f"  {CHILD}{visible(text)}", "dim", no_wrap=True, overflow="ellipsis"))
        return captured.get().splitlines()

    def _prompted(self, *lines: str) -> list[str]:
        width, room = self._console.width - 1, max(1, self._console.height - KEPT_LINES)
        *about, question, answer = map(visible, lines)
        about = [part for line in about for part in output.wrapped(line, width, hang=4, hard=True)]
        if len(about) > room:
            about[room - 1 :] = [f"  … {len(about) - room + 1} more lines: ? shows them"]
        if len(answer) > width:
            answer = f"…{answer[1 - width :]}"  # what is typed is at the end
        question = output.wrapped(question, width, hard=True)
        return [*(output.painted(line, sys.stderr) for line in about), *question, answer]

    def prompt(self, *lines: str) -> None:
        self._prompt = lines
        self._refresh()


def _within(room: int, families: Sequence[Family]) -> Sequence[Family]:
    """Returns the first that fit into so many lines, at least one."""
    lines = [*accumulate(1 + len(children) for _, children in families)]
    return families[: max(1, bisect_right(lines, room))]


def _grid(families: Sequence[Family], *, narrow: bool) -> Grid:
    """A narrow terminal leaves out what matters least."""
    grid = Grid(box=None, pad_edge=False, expand=True)
    grid.add_column("TASK", no_wrap=True, ratio=4)
    grid.add_column("ID", no_wrap=True, width=SHORT_ID + 1)
    grid.add_column("STATUS", no_wrap=True, width=9)
    grid.add_column("LAST STEP", no_wrap=True, ratio=3)
    if not narrow:
        grid.add_column("TURN", no_wrap=True, justify="right")
    grid.add_column("TIME", no_wrap=True, justify="right", min_width=8)
    grid.add_column("COST", no_wrap=True, justify="right")
    for row, children in families:
        grid.add_row(
            Text(visible(row.title)),
            Text(short_id(row.id), "dim"),
            Text(row.status, STATUS_STYLES.get(row.status, "")),
            Text(visible(row.step), "dim"),
            *(() if narrow else (str(row.turn or ""),)),
            seconds(row.elapsed()),
            dollars(row.cost),
        )
        for child in children:
            id = short_id(child.id) if child.id else ""
            grid.add_row(*(Text(text, "dim") for text in (CHILD + visible(child.title), id, "", visible(child.step))))
    return grid
