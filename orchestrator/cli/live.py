"""Live display of delegations on stderr: a table on a terminal, else a line per change."""

from __future__ import annotations

import asyncio
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Self, TextIO

from ...shared.lines import cut, outcome, short_id
from ...shared.text import visible
from ..run_states import RunState, RunStates
from . import formatting, output
from .event_lines import EventLines

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
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


class Display:
    """Shows events while its block lasts. This one shows notes only."""

    prompts = False
    """Whether it can show a prompt."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, delegation: Delegation) -> None:
        """Adds a delegation; its events follow."""

    def event(self, envelope: Envelope) -> None:
        """Shows an event."""

    def note(self, text: str) -> None:
        """Prints a line that is not an event, without breaking the table."""
        output.note(text)

    def aside(self) -> AbstractContextManager[None]:
        """Clears the table for a block in which the command may print results."""
        return nullcontext()

    def prompt(self, *lines: str) -> None:
        """Shows a question below everything else: lines about it, itself, the line of its answer; none removes it."""


class JsonLines(Display):
    """Events as JSON lines on stdout, for programs."""

    def event(self, envelope: Envelope) -> None:
        output.json_line(envelope.to_json())


class _Live(Display, ABC):
    """A display that is refreshed while nothing happens. Needs a running event loop."""

    def __init__(self, lines: EventLines, seconds: float = TICK_SECONDS) -> None:
        self._states = RunStates()
        self._steps = lines
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._tick()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._refresh()
        self._timer = self._loop.call_later(self._seconds, self._tick)

    @abstractmethod
    def _refresh(self) -> None: ...

    def add(self, delegation: Delegation) -> None:
        self._states.add(delegation)


class Lines(_Live):
    """A line per event, for files, pipes and plain terminals; a line of the state where nothing happens for long."""

    def __init__(self, *, stream: bool = False, quiet_seconds: float = QUIET_SECONDS) -> None:
        super().__init__(EventLines(stream=stream), min(TICK_SECONDS, quiet_seconds))
        self._quiet_seconds = quiet_seconds
        self._printed = self._loop.time()

    def _refresh(self) -> None:
        if self._loop.time() >= self._printed + self._quiet_seconds:
            self._printed = self._loop.time()
            if state := self._states.line():
                self.note(f"… {state}")

    def event(self, envelope: Envelope) -> None:
        state = self._states.take(envelope)
        title = cut(state.title, MAX_TITLE) if state else envelope.delegation_id
        for line in self._steps.of(envelope):
            self.note(f"[{title}] {line}" if self._states.several else line)

    def note(self, text: str) -> None:
        self._printed = self._loop.time()
        super().note(text)

    def aside(self) -> AbstractContextManager[None]:
        self._printed = self._loop.time()
        return super().aside()


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


class Table(_Live):
    """A live table for terminals: a row per unfinished delegation, and totals.

    A finished delegation becomes a line above the table, which scrolls away.
    """

    def __init__(self, *, show_outcomes: bool = True, stream: bool = False) -> None:
        from rich.console import Console

        self.prompts = sys.stdin.isatty()
        super().__init__(EventLines(stream=stream, width=self._width, asks=self.prompts))
        self._show_outcomes = show_outcomes
        self._prompt: Sequence[str] = ()
        self._console = Console(stderr=True)
        self._region = Region(sys.stderr, self._lines)

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGCONT, self._region.redraw)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._region.draw()

    def _refresh(self) -> None:
        self._region.draw()

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
            self.note(formatting.end_line(result, state.title, state.request) if several else outcome(result))

    def _prefix(self, state: RunState) -> str:
        """Returns what names the delegation at the beginning of a line; "" where there is only one."""
        if not self._states.several:
            return ""
        return f"{cut(state.title, min(MAX_TITLE, self._console.width // 3))}  {short_id(state.id)}  "

    def _width(self) -> int:
        return self._console.width - max(map(len, map(self._prefix, self._states.open.values())), default=0)

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            with self._region.aside():
                for line in lines:
                    output.note(line)

    def note(self, text: str) -> None:
        self._print([text])

    def aside(self) -> AbstractContextManager[None]:
        return self._region.aside() if sys.stdout.isatty() else nullcontext()

    def _lines(self) -> list[str]:
        from .table import table_lines

        below = self._prompted(*self._prompt) if self._prompt else []
        return [*table_lines(self._console, self._states, len(below)), *below]

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
