"""The trace that a caller's work belongs to: ``traceparent`` of W3C Trace Context, as text of at most 55 characters.

It comes with what submits a delegation, is kept in its record, and the run's spans and log lines are part of its trace.
``tracestate`` is not passed on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "traceparent"
"""The HTTP header. In the environment it is ``TRACEPARENT``, in a request of MCP ``_meta.traceparent``."""
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.{0,200})?")
"""Later versions may have more behind it; version ``ff`` is not valid."""
_KNOWN_FLAGS = 0b11
"""Sampled, and that the trace id is random."""

_joined: ContextVar[str] = ContextVar("traceparent", default="")


def parsed(text: str | None) -> str:
    """Returns a caller's ``traceparent`` in version 00; "" for one that is not valid, which counts as none."""
    found = _FORM.fullmatch((text or "").strip())
    if found is None:
        return ""
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not (int(trace_id, 16) and int(span_id, 16)):
        return ""
    return written(int(trace_id, 16), int(span_id, 16), int(flags, 16))


def written(trace_id: int, span_id: int, flags: int) -> str:
    """Returns the ids of a span as a ``traceparent``."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & _KNOWN_FLAGS:02x}"


def parts_of(traceparent: str) -> tuple[int, int, int]:
    """Returns trace id, span id and flags of a valid ``traceparent``."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return int(trace_id, 16), int(span_id, 16), int(flags, 16)


def trace_id_of(traceparent: str) -> str:
    """Returns the trace id, as logs and user interfaces of traces show it; "" for none."""
    return traceparent[3:35]


def current() -> str:
    """Returns the caller's trace: what was given, else OpenTelemetry's current span, if there is one; "" for none."""
    if joined := _joined.get():
        return joined
    # Where it is not imported there is no span. In a call of an MCP tool it is what the client sent.
    if (opentelemetry := sys.modules.get("opentelemetry.trace")) is None:
        return ""
    context = opentelemetry.get_current_span().get_span_context()
    return written(context.trace_id, context.span_id, context.trace_flags) if context.is_valid else ""


def join(text: str | None) -> str:
    """Makes a caller's ``traceparent`` that of this task, and of those that it starts. Returns it as ``parsed``."""
    _joined.set(joined := parsed(text))
    return joined


@contextmanager
def part_of(text: str | None) -> Generator[None]:
    """Does the same for the block."""
    before = _joined.set(parsed(text))
    try:
        yield
    finally:
        _joined.reset(before)
