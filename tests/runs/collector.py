"""A collector of traces: a real HTTP server in a thread, which reads OTLP with the protocol's own classes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass
class Collected:
    """A span as a test looks at it."""

    name: str
    id: str
    trace: str
    parent: str
    kind: str
    failed: bool
    attributes: dict[str, Any]
    links: list[str]
    events: list[tuple[str, dict[str, Any]]]
    start: int
    end: int
    resource: dict[str, Any]


@dataclass
class Collector:
    url: str
    status: int = 200
    """What requests are answered."""
    refused: list[int] = field(default_factory=list[int])
    """The other answers that were given."""
    spans: list[Collected] = field(default_factory=list[Collected])
    schemas: set[str] = field(default_factory=set[str])

    @property
    def variables(self) -> Mapping[str, str]:
        """Of a worker that sends its traces here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str) -> list[Collected]:
        """The spans of that name, in the order of their starts."""
        return sorted((each for each in self.spans if each.name == name), key=lambda each: each.start)

    def the(self, name: str) -> Collected:
        (span,) = self.named(name)
        return span

    def tree(self) -> list[str]:
        """The names of all spans, each below its parent, in the order of their starts."""
        known = {each.id for each in self.spans}

        def below(parent: str | None, depth: int) -> Iterator[str]:
            for each in sorted(self.spans, key=lambda each: each.start):
                if each.parent == parent or (parent is None and each.parent not in known):
                    yield "  " * depth + each.name
                    yield from below(each.id, depth + 1)

        return list(below(None, 0))

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.schemas.add(scope.schema_url)
                self.spans += [collected(span, of(resource.resource.attributes)) for span in scope.spans]


def of(attributes: Any) -> dict[str, Any]:
    def value(pair: KeyValue) -> Any:
        kind = pair.value.WhichOneof("value")
        found = getattr(pair.value, kind or "string_value")
        return [each.string_value for each in found.values] if kind == "array_value" else found

    return {pair.key: value(pair) for pair in attributes}


def collected(span: Span, resource: dict[str, Any]) -> Collected:
    return Collected(
        name=span.name,
        id=span.span_id.hex(),
        trace=span.trace_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=of(span.attributes),
        links=[link.span_id.hex() for link in span.links],
        events=[(event.name, of(event.attributes)) for event in span.events],
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        resource=resource,
    )


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if collector.status == 200:
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                collector.take(body)
            else:
                collector.refused.append(collector.status)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield collector
        finally:
            server.shutdown()
            serving.join()
