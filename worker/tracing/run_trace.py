"""The spans of one attempt, made of its events: ``invoke_agent``, and below it ``chat`` and ``execute_tool``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from pydantic_core import to_json

from ...shared.delegation import Status, Step, StepStatus
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
from . import conventions as names

CONTENT_CHARS = 8_000
"""The characters of each text that is recorded where content is."""


class RunTrace:
    """The spans of one attempt at a delegation. All are in the trace of who submitted it, else in one of its own.

    An attempt that is not sampled has a span that records nothing, and no others.
    """

    def __init__(self, tracer: Tracer, claim: Claim, mask: SecretMask, *, with_content: bool = False) -> None:
        self._claim = claim
        self._mask = mask
        self._with_content = with_content
        self.model = ""
        agent = claim.request.agent
        self._span = tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}" if agent else names.INVOKE_AGENT,
            context=_context_of(_span_of(claim.trace)),
            attributes={
                names.OPERATION: names.INVOKE_AGENT,
                names.CONVERSATION: claim.id,
                names.ATTEMPT: claim.attempt,
                **({names.AGENT_NAME: agent} if agent else {}),
                **({names.QUEUED: max(0.0, time.time() - moment_of(claim.id))} if claim.attempt == 1 else {}),
                **self._content(names.INPUT_MESSAGES, claim.request.task, "user"),
            },
            links=[Link(before.get_span_context())] if (before := _span_of(claim.attempt_span)) else [],
        )
        self._start = partial(tracer.start_span, context=_context_of(self._span))
        self._records = self._span.is_recording()
        self._chat: Span | None = None
        self._steps: dict[str, Span] = {}
        self._interrupted = True
        self._reason = names.OTHER_ERROR
        """Why what is still open at the end has ended."""

    @property
    def stored(self) -> Mapping[str, str]:
        """Returns fields of the record, by which the next attempt is in the same trace and refers to this one."""
        own = _written(self._span)
        return {ATTEMPT_SPAN: own} if self._claim.trace else {ATTEMPT_SPAN: own, TRACE: own}

    def traceparent_of(self, step: str) -> str:
        """Returns the ``traceparent`` of what a step submits."""
        return _written(self._steps.get(step, self._span))

    def note(self, event: Event) -> None:
        """Begins or ends the span that an event is about."""
        if not self._records:
            return
        match event:
            case TurnStarted():
                self._end_chat()
                self._chat = self._begin_chat(event.turn)
            case ModelRetried():
                if self._chat:
                    self._chat.add_event(names.RETRIED, {names.SECONDS: event.delay_seconds})
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
        for span in self._steps.values():
            _fail(span, self._reason)
            span.end()
        self._steps.clear()
        if self._interrupted:
            self._span.set_attribute(names.INTERRUPTED, True)
        self._span.end()

    def _begin_chat(self, turn: int) -> Span:
        scripted = self.model.partition(":")[0] == names.SCRIPTED
        attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.SCRIPTED if scripted else names.ANTHROPIC,
            names.REQUEST_MODEL: self.model,
            names.STREAM: True,
            names.CONVERSATION: self._claim.id,
            names.TURN: turn,
        }
        return self._start(f"{names.CHAT} {self.model}", kind=SpanKind.CLIENT, attributes=attributes)

    def _reply(self, event: Replied) -> None:
        if chat := self._chat:
            text = self._content(names.OUTPUT_MESSAGES, event.text, "assistant", finish_reason=event.stop_reason)
            chat.set_attributes({names.FINISH_REASONS: [event.stop_reason[:64]], **names.of_usage(event.usage), **text})
            chat.end()
            self._chat = None

    def _end_chat(self) -> None:
        """Ends a model call that got no reply."""
        if self._chat:
            _fail(self._chat, self._reason)
            self._chat.end()
            self._chat = None

    def _begin_step(self, step: Step, since: datetime | None = None) -> Span:
        name = self._mask.text(valid(step.tool_name or step.type))
        attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_TYPE: names.FUNCTION,
            names.TOOL_CALL: step.id,
            names.TURN: step.turn_index,
        }
        if self._with_content:
            attributes[names.TOOL_ARGUMENTS] = self._shown(self._mask.json(to_json(step.arguments).decode()))
        start_time = since and int(since.timestamp() * 1e9)
        return self._start(f"{names.EXECUTE_TOOL} {name}", attributes=attributes, start_time=start_time)

    def _end_step(self, step: Step) -> None:
        """Ends a step's span. One that an earlier attempt has started gets a span of this one."""
        span = self._steps.pop(step.id, None) or self._begin_step(step, step.timestamp)
        if step.status is StepStatus.FAILED:
            _fail(span, names.DENIED if step.denied else names.TOOL_ERROR)
        if self._with_content:
            span.set_attribute(names.TOOL_RESULT, self._shown(self._mask.text(step.result or step.error or "")))
        span.end()

    def _finish(self, event: RunFinished | RunRetried) -> None:
        self._interrupted = False
        if isinstance(event, RunRetried):
            reason, failed = event.reason, True
        else:
            reason, failed = event.result.termination_reason, event.result.status is Status.FAILED
            text = self._content(names.OUTPUT_MESSAGES, event.result.summary, "assistant", finish_reason=reason)
            self._span.set_attributes({**names.of_usage(event.result.usage), **text})
        self._reason = reason.value
        self._span.set_attribute(names.TERMINATION_REASON, reason.value)
        if self.model:
            self._span.set_attribute(names.REQUEST_MODEL, self.model)
        if failed:
            _fail(self._span, reason.value)

    def _content(self, name: str, text: str, role: str, **more: str) -> Mapping[str, str]:
        """Returns a text as an attribute with one message, where content is recorded."""
        if not self._with_content:
            return {}
        part = {"type": "text", "content": self._shown(self._mask.text(text))}
        return {name: to_json([{"role": role, "parts": [part], **more}]).decode()}

    def _shown(self, masked: str) -> str:
        return clip(valid(masked), CONTENT_CHARS)


def _fail(span: Span, kind: str) -> None:
    """Marks a span as failed; what went wrong in words may quote content."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR)


def _span_of(traceparent: str) -> Span | None:
    """Returns the span of another process, to refer to."""
    if not traceparent:
        return None
    trace_id, span_id, flags = parts_of(traceparent)
    return NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags)))


def _context_of(span: Span | None) -> Context:
    return set_span_in_context(span, Context()) if span else Context()


def _written(span: Span) -> str:
    context = span.get_span_context()
    return written(context.trace_id, context.span_id, context.trace_flags)
