"""What sends spans: OpenTelemetry's own batches in a thread of theirs, bounded and set by its variables (``OTEL_…``).

A run only adds its spans to a queue. Where that is full, because they cannot be sent, spans are lost; no run waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext

from ...shared.fleet import own_version
from ...shared.log import log
from ...shared.masking import SecretMask
from ...shared.runs.record import Claim
from .conventions import CONTENT, CONTENT_IN_SPANS, SCHEMA_URL
from .run_trace import RunTrace

CLOSING_SECONDS = 3.0
"""How long a worker that stops waits until the last spans are sent."""
_MAX_INT = 2**63 - 1
"""Larger numbers cannot be sent; an endpoint may report any count."""
_KNOWN, _REMOTE = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK, SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class Tracing:
    """Traces the runs of one worker process. Blocks while it is made and closed."""

    def __init__(self, worker: str, variables: Mapping[str, str]) -> None:
        """Raises ValueError for a variable that OpenTelemetry cannot read."""
        own = {"service.name": "deputize", "service.version": own_version(), "service.instance.id": worker}
        resource = Resource.create(own).merge(OTELResourceDetector().detect())  # what the variables say counts
        # Not the process's own provider: the SDK of MCP would write spans with that, outside of any run's trace.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._batches = BatchSpanProcessor(_Exporter())
        self._provider.add_span_processor(self._batches)
        self._tracer = self._provider.get_tracer("deputize", own_version(), SCHEMA_URL)
        self._with_content = variables.get(CONTENT, "").strip().lower() in CONTENT_IN_SPANS

    def begin(self, claim: Claim, mask: SecretMask) -> RunTrace:
        """Begins the span of an attempt. ``mask`` hides the secrets of what is recorded."""
        return RunTrace(self._tracer, self._batches.on_end, claim, mask, with_content=self._with_content)

    def close(self) -> None:
        """Sends what is left, for CLOSING_SECONDS at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(CLOSING_SECONDS)


class _Exporter(SpanExporter):
    """Sends spans by OTLP over HTTP. An outage is one line of the log, instead of four for each batch."""

    def __init__(self) -> None:
        self._exporter = trace_exporter.OTLPSpanExporter()
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with _own_lines() as causes:
            # What sends what it has encoded, with retries: its own encoder copies each value four times.
            sent = self._exporter._client.export(encoded(spans)).success  # pyright: ignore[reportPrivateUsage]
        if sent and self._fails:
            log.info("traces are sent again")
        elif not (sent or self._fails):
            cause = {"cause": next(iter(causes), "")}
            log.warning("traces cannot be sent; until they can, spans are lost, and runs go on", extra=cause)
        self._fails = not sent
        return SpanExportResult.SUCCESS if sent else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


@contextmanager
def _own_lines() -> Generator[list[str]]:
    """Yields what the exporter would log during the block."""
    logger, lines = logging.getLogger(trace_exporter.__name__), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        yield lines
    finally:
        logger.removeFilter(keep)


def encoded(spans: Sequence[ReadableSpan]) -> bytes:
    """Returns the request of OTLP for spans of one resource and one scope."""
    resource, scope = spans[0].resource, spans[0].instrumentation_scope
    assert scope
    of_scope = {"scope": {"name": scope.name, "version": scope.version}, "schema_url": scope.schema_url}
    of_resource: dict[str, Any] = {
        "resource": {"attributes": _pairs(resource.attributes)},
        "schema_url": resource.schema_url,
    }
    of_resource["scope_spans"] = [{**of_scope, "spans": [_span(span) for span in spans]}]
    made: Any = [of_resource]  # what is built of dictionaries is not copied
    return ExportTraceServiceRequest(resource_spans=made).SerializeToString()


def _span(span: ReadableSpan) -> dict[str, Any]:
    own, parent = span.context, span.parent
    assert own
    return {
        **_ids(own),
        "parent_span_id": parent.span_id.to_bytes(8) if parent else b"",
        "name": span.name,
        "kind": span.kind.value + 1,  # 0 is "unspecified" there
        "start_time_unix_nano": span.start_time,
        "end_time_unix_nano": span.end_time,
        "attributes": _pairs(span.attributes),
        "events": [_event(event) for event in span.events],
        "dropped_events_count": span.dropped_events,
        "links": [_link(link) for link in span.links],
        "status": {"code": span.status.status_code.value},
        "flags": _flags(parent),
    }


def _event(event: Event) -> dict[str, Any]:
    return {"name": event.name, "time_unix_nano": event.timestamp, "attributes": _pairs(event.attributes)}


def _link(link: Link) -> dict[str, Any]:
    return {**_ids(link.context), "flags": _flags(link.context)}


def _ids(context: SpanContext) -> dict[str, Any]:
    return {"trace_id": context.trace_id.to_bytes(16), "span_id": context.span_id.to_bytes(8)}


def _flags(context: SpanContext | None) -> int:
    return _KNOWN | _REMOTE if context and context.is_remote else _KNOWN


def _pairs(attributes: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in (attributes or {}).items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"string_value": value}
        case bool():
            return {"bool_value": value}
        case int():
            return {"int_value": min(value, _MAX_INT)}
        case float():
            return {"double_value": value}
        case _:
            return {"array_value": {"values": [_value(each) for each in value]}}
