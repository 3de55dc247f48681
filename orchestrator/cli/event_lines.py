"""Lines for a delegation's events, and for the model's words and the output of commands as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...shared.text import terminal_text
from . import formatting
from .formatting import SHORT_PERMISSION_ID, cut, outcome, seconds, wrapped

if TYPE_CHECKING:
    from ...shared.delegation import Step
    from ...shared.events import (
        AnyEvent,
        Envelope,
        ErrorSeen,
        ModelRetried,
        PermissionAnswered,
        PermissionRequested,
        ProgressMade,
        Replied,
        ResumedWaiting,
        Waiting,
    )
    from ...shared.permission import PermissionQuestion


WORDS, OUTPUT = "> ", "| "
"""Before each line of the model's words, and of a command's output."""
MIN_WIDTH = 20
OVERLAP_CHARS = 200
"""Characters at the end of the output so far that are looked for in the result of a command."""


def is_failure_reason(event: AnyEvent) -> bool:
    """Returns whether the event is the reason of the run's failure, which its result contains as well."""
    from ...shared.delegation import TerminationReason

    return event.type == "error" and event.kind in [*TerminationReason]


def step_line(step: Step, took: float | None = None) -> str:
    """`✓ read pricing.py  0.1 s`."""
    sign = {"completed": "✓", "failed": "✗"}.get(step.status, "…")
    trouble = f": {cut(step.error, 160)}" if step.error else ""
    duration = "" if took is None else f"  {seconds(took)}"
    return f"{sign} {cut(step.title or step.tool_name, 100)}{duration}{trouble}"


def event_line(event: AnyEvent) -> str | None:
    """Returns one line for an event, or None for events that are only for programs."""
    match event.type:
        case "run_queued":
            return f"queued: {event.request.title}"
        case "run_started":
            return f"running on {event.worker} with {event.model}"
        case "run_resumed":
            return f"taken over by {event.worker} at turn {event.from_turn}: {event.reason}"
        case "run_retried":
            again = f"done again from the start in {seconds(event.delay_seconds)} (retry {event.retry} of {event.of})"
            return f"{again}, after {event.reason}: {event.error}"
        case "run_finished":
            return outcome(event.result)
        case "step_completed":
            return f"turn {event.step.turn_index}  {step_line(event.step)}"
        case "waiting" | "resumed_waiting":
            return _waiting_line(event)
        case "permission_requested" | "permission_answered" | "model_retried" | "progress" | "error":
            return _status_line(event)
        case _:
            return None


def reply_line(event: Replied) -> str:
    """`I look at it first. → read_file, bash`."""
    calls = ", ".join(call.name for call in event.tool_calls)
    return " → ".join(part for part in (cut(event.text, 160), calls) if part)


def _waiting_line(event: Waiting | ResumedWaiting) -> str:
    if event.type == "resumed_waiting":
        return f"goes on after {seconds(event.seconds)}"
    thing = {"rate": "the model's endpoint", "shared_prefix": "a cached prefix"}.get(event.why, event.why)
    return f"waits for {thing}{f': {event.detail}' if event.detail else ''}"


def _status_line(event: PermissionRequested | PermissionAnswered | ModelRetried | ProgressMade | ErrorSeen) -> str:
    match event.type:
        case "permission_requested":
            id = event.permission_id[-SHORT_PERMISSION_ID:]
            return f"asks for permission: {event.step.title} (`deputize approve {id}` or `deputize deny {id}`)"
        case "permission_answered":
            from ...shared.permission import answer_words

            words = answer_words(event.outcome, event.by, event.reason)
            return f"permission {event.permission_id[-SHORT_PERMISSION_ID:]}: {words}"
        case "model_retried":
            return f"turn {event.turn}  the model is asked again in {seconds(event.delay_seconds)}: {event.error}"
        case "progress":
            return event.message
        case "error":
            return event.message if event.kind == "rate" else f"{event.kind}: {event.message}"


class EventLines:
    """Returns the lines to print for each event: of a permission request one when it is asked, one when answered.

    ``asks``: the command shows it as a question, so that it needs no line before its answer.
    """

    def __init__(self, *, stream: bool, width: Callable[[], int | None] = lambda: None, asks: bool = False) -> None:
        self._stream = stream
        self._width = width
        """Columns at which streamed text is wrapped; None to print whole lines only."""
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
        if event.type == "step_completed":
            took = (envelope.at - event.step.timestamp).total_seconds()
            lines.append(f"turn {event.step.turn_index}  {step_line(event.step, max(0.0, took))}")
        elif (line := self._line(envelope.delegation_id, event)) is not None:
            lines.append(line)
        return lines

    def _line(self, id: str, event: AnyEvent) -> str | None:
        line = event_line(event)
        match event.type:
            case "permission_requested":
                self._calls[event.permission_id] = event.step.title
                return None if self._asks else line
            case "permission_answered" if call := self._calls.pop(event.permission_id, ""):
                return f"{call}: {(line or '').partition(': ')[2]}"
            case "waiting":
                self._waits[id] = event.why
                known = event.detail and event.detail == self._failures.get(id, ("", 0))[0]
                shown = event_line(event.model_copy(update={"detail": ""})) if known else line
                return None if event.why == "permission" else shown
            case "model_retried":
                error, times = self._failures.get(id, ("", 0))
                times = times + 1 if event.error == error else 1
                self._failures[id] = event.error, times
                again = f"the same error, {times} times so far"
                return line if times == 1 else event_line(event.model_copy(update={"error": again}))
            case "replied" | "run_finished":
                self._failures.pop(id, None)
                return line
            case "resumed_waiting" if self._waits.pop(id, "") == "permission":
                return None
            case _:
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

    def take(self, event: AnyEvent, width: int | None) -> list[str]:
        return [*self._taken(event, width)]

    def _taken(self, event: AnyEvent, width: int | None) -> Iterator[str]:
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

    def _output(self, step_id: str, tail: str, width: int | None) -> Iterator[str]:
        if step_id != self._command:
            yield from self._close()
        self._command = step_id
        before = self._outputs.get(step_id, "")
        self._outputs[step_id] = tail
        yield from self._add(OUTPUT, _news(before, tail), width)

    def _rest(self, step: Step, width: int | None) -> Iterator[str]:
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

    def _add(self, mark: str, text: str, width: int | None) -> Iterator[str]:
        if mark != self.mark:
            yield from self._close()
            self.mark = mark
        *lines, self.open = (self.open + text).split("\n")
        room = None if width is None else max(MIN_WIDTH, width - len(mark))
        for line in lines:
            yield from (mark + part for part in _parts(line, room))
        *parts, self.open = _parts(self.open, room)
        yield from (mark + part for part in parts)

    def _close(self) -> Iterator[str]:
        line, self.open = self.open, ""
        if line.strip():
            yield self.mark + line


def _parts(line: str, width: int | None) -> list[str]:
    return [line] if width is None else wrapped(line, width, hard=True)


def _news(before: str, tail: str) -> str:
    """Returns what the tail of an output has beyond the tail before it."""
    for start in range(len(before)):
        if tail.startswith(before[start:]):
            return tail[len(before) - start :]
    return tail


def _plain(output: str) -> str:
    """Returns output without colours, and of each line what a terminal would show at the end."""
    return terminal_text(output).replace("\r\n", "\n")


def short_ids(ids: Sequence[str]) -> list[str]:
    """Returns the ends of the ids of requests by which none is mistaken for another one."""
    length = formatting.SHORT_PERMISSION_ID
    while len({id[-length:] for id in ids}) < len({*ids}):
        length += 1
    return [id[-length:] for id in ids]


def in_task(asked: PermissionQuestion, title: str) -> str:
    """Returns `write CHANGELOG.md in "Write the changelog"`: the call, and the task of the delegation that asks."""
    return f'{asked.step.title} in "{title}"'


def question_lines(asked: PermissionQuestion, title: str) -> list[str]:
    """Returns the lines of a request; ``title``: of the delegation that asks."""
    (short,) = short_ids([asked.permission_id])
    lines = [f"permission {short}: {in_task(asked, title)}"]
    if len(asked.path) > 1:
        lines.append(f"  asked by {formatting.short_id(asked.path[-1])}, a child of {asked.path[-2]}")
    if asked.reason:
        lines.append(f"  because {asked.reason}" + (f" (rule {asked.rule})" if asked.rule else ""))
    # Of answers that permit the same only the first one.
    lasting = {", ".join(grants): outcome for outcome, grants in reversed(asked.remembers.items())}
    names = {outcome: outcome[len("proceed_") :].replace("always_", "always, this ") for outcome in lasting.values()}
    lines += [f"  {names[outcome]}: {grants}" for grants, outcome in reversed(lasting.items())]
    return lines + [f"  | {line}" for line in _text(asked)]


def _text(asked: PermissionQuestion) -> Sequence[str]:
    details = asked.details
    match details.type:
        case "execute":
            asking = [each for each in details.commands if each.decision != "allow"]
            parts = [f"# {each.reason}" for each in asking] + [f"# it {effect}" for effect in details.effects]
            return [*details.command.splitlines(), *dict.fromkeys(parts)]
        case "edit":
            return details.diff.splitlines() or details.paths
        case "mcp":
            return [f"{details.server}: {details.tool}", *_arguments(details.arguments)]
        case "info":
            more = {name: value for name, value in details.arguments.items() if value not in details.urls}
            return [*(url for url in details.urls if url not in asked.step.title), *_arguments(more)]


def _arguments(arguments: dict[str, object]) -> list[str]:
    return json.dumps(arguments, ensure_ascii=False, indent=1).splitlines() if arguments else []
