"""A delegation's events as a conversation: the task, what the model wrote, its calls and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...shared.text import count
from . import formatting
from .event_lines import event_line, step_line

if TYPE_CHECKING:
    from ...shared.delegation import Step
    from ...shared.events import Envelope
    from ...shared.request import DelegationRequest

RESULT_LINES = 20
"""Lines of a call's result that are shown."""
LEFT_OUT = {"step_started", "step_summarized", "permission_answered"}


def transcript(envelopes: Iterable[Envelope]) -> Iterator[str]:
    """Yields lines. Text of others is indented, so that it cannot pass for a line of ours."""
    last = ""
    for envelope in envelopes:
        event = envelope.event
        match event.type:
            case "run_queued":
                yield from _task(event.request)
            case "turn_started":
                yield from ("", f"━━ turn {event.turn}  {envelope.at:%H:%M:%S}")
            case "replied":
                last = event.text.strip()
                yield from _indented(last)
            case "step_completed":
                took = (envelope.at - event.step.timestamp).total_seconds()
                yield from _call(event.step, max(0.0, took))
            case "run_finished":
                yield from ("", f"━━ {formatting.outcome(event.result)}")
                if event.result.summary.strip() != last:
                    yield from _indented(event.result.summary.strip())
            case _ if event.type not in LEFT_OUT and (line := event_line(event)) is not None:
                yield f"· {line}"
            case _:
                pass


def _task(request: DelegationRequest) -> Iterator[str]:
    yield "━━ task"
    yield from _indented(request.task.strip())
    for name, text in (("context", request.context), ("expected outcome", request.expected_outcome)):
        if text.strip():
            yield from ("", f"━━ {name}")
            yield from _indented(text.strip())


def _call(step: Step, took: float) -> Iterator[str]:
    yield step_line(step, took)
    lines = [*_indented((step.result or "").rstrip())]
    yield from (f"  {line}".rstrip() for line in lines[:RESULT_LINES])
    if (more := len(lines) - RESULT_LINES) > 0:
        yield f"… {count(more, 'more line')}"


def _indented(text: str) -> Iterator[str]:
    yield from (f"  {line}".rstrip() for line in text.split("\n") if text)
