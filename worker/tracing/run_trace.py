"""The spans of one attempt, made of its events: ``invoke_agent``, and below it ``chat`` and ``execute_tool``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace import Span as RecordedSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from pydantic_core import to_json

from ...shared import delegation
from ...shared.delegation import Step, StepStatus
from ...shared.events import (
    Event,
    ModelRetried,
    Replied,
    RunFinished,
    RunRetried,
    StepCompleted,
    StepStarted,
    TurnStarted,
    Waiting,
)
from ...shared.ids import moment_of
from ...shared.masking import SecretMask
from ...shared.runs.record import ATTEMPT_SPAN, TRACE, Claim
from ...shared.text import clip, valid
from ...shared.traceparent import parts_of, written
from ..core.part import Part
from . import conventions as names

CONTENT_CHARS = 8_000
"""The characters of each text that is recorded where content is."""


_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
"""What went wrong is never in words: they may quote content."""
_new_id = RandomIdGenerator().generate_span_id


@dataclass(slots=True)
class _Open:
    """A span that has begun."""

    name: str
    attributes: Mapping[str, Any]
    kind: SpanKind = SpanKind.INTERNAL
    since: int = field(default_factory=time.time_ns)
    id: int = field(default_factory=_new_id)
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])


class RunTrace(Part):
    """The spans of one attempt at a delegation. All are in the trace of who submitted it, else in one of its own.

    The attempt's span is sampled as any other; where it is not, nothing is recorded. Those below it, two for each turn,
    are made without the SDK's tracer, which takes three times as long.
    """

    def __init__(
        self,
        tracer: Tracer,
        ended: Callable[[ReadableSpan], None],
        claim: Claim,
        mask: SecretMask,
        *,
        with_content: bool = False,
    ) -> None:
        """``ended`` takes the spans that have ended."""
        self._ended = ended
        self._claim = claim
        self._mask = mask
        self._with_content = with_content
        self._model, self._provider = "", names.ANTHROPIC
        self._span = self._begin(tracer)
        self._context = self._span.get_span_context()
        self._chat: _Open | None = None
        self._steps: dict[str, _Open] = {}
        self._interrupted = True
        self._reason = names.OTHER_ERROR
        """Why what is still open at the end has ended."""

    def _begin(self, tracer: Tracer) -> Span:
        claim, agent = self._claim, self._claim.request.agent
        before = _span_of(claim.kept.get(ATTEMPT_SPAN, ""))
        attributes: dict[str, str | int | float] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.CONVERSATION: claim.id,
            names.ATTEMPT: claim.attempt,
            **self._content(names.INPUT_MESSAGES, claim.request.task, "user"),
        }
        if agent:
            attributes[names.AGENT_NAME] = agent
        if claim.attempt == 1:
            attributes[names.QUEUED] = max(0.0, time.time() - moment_of(claim.id))
        return tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}" if agent else names.INVOKE_AGENT,
            context=_context_of(_span_of(claim.kept.get(TRACE, ""))),
            attributes=attributes,
            links=[Link(before.get_span_context())] if before else [],
        )

    @property
    def stored(self) -> Mapping[str, str]:
        """Returns fields of the record, by which the next attempt is in the same trace and refers to this one."""
        own = self._written(self._context.span_id)
        return {ATTEMPT_SPAN: own} if TRACE in self._claim.kept else {ATTEMPT_SPAN: own, TRACE: own}

    def name_model(self, name: str, platform: str) -> None:
        """Takes the name of the model whose calls follow, and the platform of its endpoint."""
        scripted = name.partition(":")[0] == names.SCRIPTED
        self._provider = names.SCRIPTED if scripted else names.PROVIDERS.get(platform, names.ANTHROPIC)
        self._model = name

    def traceparent_of(self, step: str) -> str:
        """Returns the ``traceparent`` of what a step submits."""
        return self._written(self._steps[step].id if step in self._steps else self._context.span_id)

    def hears(self, event: Event, number: int | None) -> None:
        """Begins or ends the span that an event is about."""
        if not self._span.is_recording():
            return
        match event:
            case TurnStarted():
                self._end_chat()
                self._chat = self._begin_chat(event.turn)
            case ModelRetried():
                if self._chat:
                    self._chat.events.append(SpanEvent(names.RETRIED, {names.SECONDS: event.delay_seconds}))
            case Replied():
                self._reply(event)
            case StepStarted():
                self._steps[event.step.id] = self._begin_step(event.step)
            case StepCompleted():
                self._end_step(event.step)
            case Waiting():
                self._span.add_event(names.WAITING, {names.WHY: event.why})
            case RunFinished() | RunRetried():
                self._finish(event)
            case _:
                pass

    def close(self) -> None:
        """Ends what is open: the attempt has ended, with its run or before it."""
        self._end_chat()
        for step in self._steps.values():
            self._end(step, {}, self._reason)
        self._steps.clear()
        if self._interrupted:
            self._span.set_attribute(names.INTERRUPTED, True)
        self._span.end()

    def _begin_chat(self, turn: int) -> _Open:
        attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: self._provider,
            names.REQUEST_MODEL: self._model,
            names.STREAM: True,
            names.CONVERSATION: self._claim.id,
            names.TURN: turn,
        }
        return _Open(f"{names.CHAT} {self._model}", attributes, SpanKind.CLIENT)

    def _reply(self, event: Replied) -> None:
        if self._chat:
            reason = event.stop_reason[:64]
            text = self._content(names.OUTPUT_MESSAGES, event.text, "assistant", finish_reason=reason)
            self._end(self._chat, {names.FINISH_REASONS: [reason], **names.of_usage(event.usage), **text})
            self._chat = None

    def _end_chat(self) -> None:
        """Ends a model call that got no reply."""
        if self._chat:
            self._end(self._chat, {}, self._reason)
            self._chat = None

    def _begin_step(self, step: Step) -> _Open:
        name = self._mask.text(valid(step.tool_name or step.type))
        attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name, names.TOOL_CALL: step.id}
        if self._with_content:
            attributes[names.TOOL_ARGUMENTS] = self._shown(self._mask.json(to_json(step.arguments).decode()))
        return _Open(f"{names.EXECUTE_TOOL} {name}", attributes)

    def _end_step(self, step: Step) -> None:
        """Ends a step's span. One that an earlier attempt has started gets a span of this one."""
        if (begun := self._steps.pop(step.id, None)) is None:
            begun = self._begin_step(step)
            begun.since = int(step.timestamp.timestamp() * 1e9)
        failed = step.status is StepStatus.FAILED
        result = self._shown(self._mask.text(step.result or step.error or "")) if self._with_content else None
        more = {} if result is None else {names.TOOL_RESULT: result}
        self._end(begun, more, (names.DENIED if step.denied else names.TOOL_ERROR) if failed else "")

    def _end(self, span: _Open, more: Mapping[str, Any], error: str = "") -> None:
        above = self._span
        assert isinstance(above, RecordedSpan)
        self._ended(
            ReadableSpan(
                span.name,
                SpanContext(self._context.trace_id, span.id, is_remote=False, trace_flags=self._context.trace_flags),
                self._context,
                above.resource,
                {**span.attributes, **more, **({names.ERROR_TYPE: error} if error else {})},
                span.events,
                kind=span.kind,
                status=_FAILED if error else _UNSET,
                start_time=span.since,
                end_time=time.time_ns(),
                instrumentation_scope=above.instrumentation_scope,
            )
        )

    def _finish(self, event: RunFinished | RunRetried) -> None:
        self._interrupted = False
        if isinstance(event, RunRetried):
            reason, failed = event.reason, True
        else:
            reason, failed = event.result.termination_reason, event.result.status is delegation.Status.FAILED
            text = self._content(names.OUTPUT_MESSAGES, event.result.summary, "assistant", finish_reason=reason)
            self._span.set_attributes({**names.of_usage(event.result.usage), **text})
        self._reason = reason.value
        self._span.set_attribute(names.TERMINATION_REASON, reason.value)
        if self._model:
            self._span.set_attribute(names.REQUEST_MODEL, self._model)
        if failed:
            self._span.set_attribute(names.ERROR_TYPE, reason.value)
            self._span.set_status(_FAILED)

    def _content(self, name: str, text: str, role: str, **more: str) -> Mapping[str, str]:
        """Returns a text as an attribute with one message, where content is recorded."""
        if not self._with_content:
            return {}
        part = {"type": "text", "content": self._shown(self._mask.text(text))}
        return {name: to_json([{"role": role, "parts": [part], **more}]).decode()}

    def _shown(self, masked: str) -> str:
        return clip(valid(masked), CONTENT_CHARS)

    def _written(self, span_id: int) -> str:
        return written(self._context.trace_id, span_id, self._context.trace_flags)


def _span_of(traceparent: str) -> Span | None:
    """Returns the span of another process, to refer to."""
    if not traceparent:
        return None
    trace_id, span_id, flags = parts_of(traceparent)
    return NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags)))


def _context_of(span: Span | None) -> Context:
    return set_span_in_context(span, Context()) if span else Context()
