"""What sends spans: OpenTelemetry's own batches in a thread of theirs, bounded and set by its variables (``OTEL_…``).

A run only adds its spans to a queue. Where that is full, because they cannot be sent, spans are lost; no run waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ...shared.fleet import own_version
from ...shared.log import log
from ...shared.masking import SecretMask
from ...shared.runs.record import Claim
from .conventions import CONTENT, CONTENT_IN_SPANS, SCHEMA_URL
from .run_trace import RunTrace

CLOSING_SECONDS = 3.0
"""How long a worker that stops waits until the last spans are sent."""


class Tracing:
    """Traces the runs of one worker process. Blocks while it is made and closed."""

    def __init__(self, worker: str, variables: Mapping[str, str]) -> None:
        """Raises ValueError for a variable that OpenTelemetry cannot read."""
        own = {"service.name": "deputize", "service.version": own_version(), "service.instance.id": worker}
        resource = Resource.create(own).merge(OTELResourceDetector().detect())  # what the variables say counts
        # Not the process's own provider: the SDK of MCP would write spans with that, outside of any run's trace.
        hashed = _HashedOnce(resource.attributes, resource.schema_url)
        self._provider = TracerProvider(resource=hashed, shutdown_on_exit=False)
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


class _HashedOnce(Resource):
    """A resource whose hash is computed once: what encodes spans needs it for each, and it is that of a JSON text."""

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash

    _hash: int | None = None


class _Exporter(SpanExporter):
    """Sends spans by OTLP over HTTP. An outage is one line of the log, instead of four for each batch."""

    def __init__(self) -> None:
        self._exporter = trace_exporter.OTLPSpanExporter()
        self._fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with _own_lines() as causes:
            result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._fails:
                log.info("traces are sent again")
        elif not self._fails:
            cause = {"cause": next(iter(causes), "")}
            log.warning("traces cannot be sent; until they can, spans are lost, and runs go on", extra=cause)
        self._fails = result is not SpanExportResult.SUCCESS
        return result

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
