"""What commands show on stderr while they follow delegations: a line per event, or the live table of `table.py`."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ...shared.text import terminal_text
from ...shared.wording import cut, line_of, step_line
from ..run_states import RunStates
from . import output

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, Step
    from ...shared.errors import Unavailable
    from ...shared.events import AnyEvent, Envelope

TICK_SECONDS = 0.25
QUIET_SECONDS = 20.0
"""A pipe gets a line at least this often while something runs; where all waits, only if that has changed."""
MAX_TITLE = 32
WORDS, OUTPUT = "> ", "| "
"""Before each line of the model's words, and of a command's output."""
MIN_WIDTH = 20
OVERLAP_CHARS = 200
"""Characters at the end of the output so far that are looked for in the result of a command."""
WITHOUT_LINE = {"turn_started", "replied", "step_started"}
"""Events that other lines include: the end of a step has its turn, and the words of a reply are shown by `--stream`."""


class EventLines:
    """Returns the lines to print for each event: of a permission request one when it is asked, one when answered.

    ``asks``: the command shows it as a question, so that it needs no line before its answer.
    """

    def __init__(self, *, stream: bool, width: Callable[[], int] = lambda: sys.maxsize, asks: bool = False) -> None:
        self._stream = stream
        self._width = width
        """Columns at which streamed text is wrapped."""
        self._asks = asks
        self._streams: dict[str, _Stream] = {}
        self._calls: dict[str, str] = {}
        """The calls that wait, by permission request."""
        self._waits: dict[str, str] = {}
        """What each delegation waits for."""
        self._failures: dict[str, tuple[str, int]] = {}
        """The last error of each delegation's model calls, and how often in a row it came: it is printed once."""

    def of(self, envelope: Envelope) -> list[str]:
        event = envelope.event
        lines: list[str] = []
        if self._stream:
            lines += self._streams.setdefault(envelope.delegation_id, _Stream()).take(event, self._width())
        if event.type == "run_finished":
            self._streams.pop(envelope.delegation_id, None)
        if (line := self._line(envelope)) is not None:
            lines.append(line)
        return lines

    def _line(self, envelope: Envelope) -> str | None:
        id, event = envelope.delegation_id, envelope.event
        line = None if event.type in WITHOUT_LINE else line_of(event, envelope.at)
        match event.type:
            case "permission_requested":
                self._calls[event.permission_id] = event.step.title
                return None if self._asks else line
            case "permission_answered" if call := self._calls.pop(event.permission_id, ""):
                return f"{call}: {(line or '').partition(': ')[2]}"
            case "waiting":
                self._waits[id] = event.why
                known = event.detail and event.detail == self._failures.get(id, ("", 0))[0]
                shown = line_of(event.model_copy(update={"detail": ""})) if known else line
                return None if event.why == "permission" else shown
            case "model_retried":
                error, times = self._failures.get(id, ("", 0))
                times = times + 1 if event.error == error else 1
                self._failures[id] = event.error, times
                again = f"the same error, {times} times so far"
                return line if times == 1 else line_of(event.model_copy(update={"error": again}))
            case "replied" | "run_finished":
                self._failures.pop(id, None)
            case "resumed_waiting" if self._waits.pop(id, "") == "permission":
                return None
            case _:
                pass
        return line

    def unfinished(self, id: str) -> str:
        """Returns the start of the line that is streamed now."""
        stream = self._streams.get(id)
        return stream.mark + stream.open if stream and stream.open else ""


@dataclass(slots=True)
class _Stream:
    """The text of one delegation, cut into lines."""

    mark: str = WORDS
    open: str = ""
    """The line that has no end yet."""
    _reply: str = ""
    """The model's words of this turn."""
    _outputs: dict[str, str] = field(default_factory=dict[str, str])
    """The end of each running command's output so far, by step."""
    _command: str = ""
    """The command whose output is in the open line."""

    def take(self, event: AnyEvent, width: int) -> Iterator[str]:
        """Yields the lines that an event completes, wrapped at ``width``."""
        match event.type:
            case "text_delta":
                self._reply += event.text
                yield from self._add(WORDS, event.text, width)
            case "replied":
                # All of it for those who joined late, the end for those who missed some of it.
                missed = event.text.startswith(self._reply)
                yield from self._add(WORDS, event.text.removeprefix(self._reply) if missed else "", width)
                yield from self._close()
                self._reply = ""
            case "step_started":
                yield from self._close()
                yield step_line(event.step)
            case "step_updated":
                if isinstance(output := event.metadata.get("output"), str):
                    yield from self._output(event.step_id, _plain(output), width)
            case "step_completed":
                yield from self._rest(event.step, width)
                yield from self._close()
            case "turn_started" | "run_finished":
                self._reply = ""
                yield from self._close()
            case _:
                pass

    def _output(self, step_id: str, tail: str, width: int) -> Iterator[str]:
        if step_id != self._command:
            yield from self._close()
        self._command = step_id
        before = self._outputs.get(step_id, "")
        self._outputs[step_id] = tail
        yield from self._add(OUTPUT, _news(before, tail), width)

    def _rest(self, step: Step, width: int) -> Iterator[str]:
        """The last output of a command is only in its result."""
        before = self._outputs.pop(step.id, None)
        if step.type not in ("bash", "bash-confirm") or not step.result:
            return
        result = _plain(step.result)
        if before is None:
            yield from self._add(OUTPUT, result, width)
            return
        known = before[-OVERLAP_CHARS:].rstrip()
        if known and (at := result.rfind(known)) >= 0:
            yield from self._add(OUTPUT, result[at + len(known) :].removeprefix("\n"), width)

    def _add(self, mark: str, text: str, width: int) -> Iterator[str]:
        if mark != self.mark:
            yield from self._close()
            self.mark = mark
        *lines, self.open = (self.open + text).split("\n")
        room = max(MIN_WIDTH, width - len(mark))
        for line in lines:
            yield from (mark + part for part in output.wrapped(line, room, hard=True))
        *parts, self.open = output.wrapped(self.open, room, hard=True)
        yield from (mark + part for part in parts)

    def _close(self) -> Iterator[str]:
        line, self.open = self.open, ""
        if line.strip():
            yield self.mark + line


def _news(before: str, tail: str) -> str:
    """Returns what the tail of an output has beyond the tail before it."""
    for start in range(len(before)):
        if tail.startswith(before[start:]):
            return tail[len(before) - start :]
    return tail


def _plain(output: str) -> str:
    """Returns output without colours, and of each line what a terminal would show at the end."""
    return terminal_text(output).replace("\r\n", "\n")


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

    def connection(self, lost: Unavailable | None) -> None:
        """Takes that the connection to the service was lost, and why, or that it is there again."""
        self.note(f"{lost}; trying again …" if lost else "connected again")

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


class Live(Display, ABC):
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

    def connection(self, lost: Unavailable | None) -> None:
        # What goes on there is not known: a clock that goes on would state that something does.
        self._states.stop_clocks(stopped=lost is not None)
        super().connection(lost)


class Lines(Live):
    """A line per event, for files, pipes and plain terminals; a line of the state where nothing happens for long."""

    def __init__(self, *, stream: bool = False, quiet_seconds: float = QUIET_SECONDS) -> None:
        super().__init__(EventLines(stream=stream), min(TICK_SECONDS, quiet_seconds))
        self._quiet_seconds = quiet_seconds
        self._printed = self._loop.time()
        self._state = ""
        """What was the last line of the state."""

    def _refresh(self) -> None:
        if not self._states.stopped and self._loop.time() >= self._printed + self._quiet_seconds:
            self._printed = self._loop.time()
            before, self._state = self._state, self._states.line()
            if self._state and (self._state != before or self._states.is_running):
                self.note(f"… {self._state}")

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
