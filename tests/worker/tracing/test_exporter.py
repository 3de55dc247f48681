"""Where traces are sent: the standard variables, and a collector that does not take them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from deputize.shared.log import log
from deputize.worker.tracing import is_wanted, open_tracing
from deputize.worker.tracing.exporter import encoded
from tests.runs.bench import say, script
from tests.runs.collector import Collector
from tests.waiting import until
from tests.worker.tracing.conftest import OpenTraced
from tests.worker.tracing.submitting import run

HERE = "http://127.0.0.1:4318"
"""Nothing is sent there."""


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": HERE}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_TRACES_EXPORTER": "console,otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
    ],
)
def test_the_standard_variables_say_whether_traces_are_sent(
    variables: dict[str, str], wanted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_wanted(variables) is wanted
    warned = ["the protocol is grpc, and only http/protobuf is supported" in line for line in caplog.messages]
    assert warned == [True] * ("grpc" in variables.values())


async def test_a_variable_that_cannot_be_read_is_a_line_in_the_log_and_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", HERE)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    async with open_tracing("worker-1") as tracing:
        assert tracing is None
    assert ["no traces are sent" in line and "max_queue_size" in line for line in caplog.messages] == [True]


async def test_a_collector_that_refuses_is_one_line_and_runs_go_on(
    traced: OpenTraced, collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, log.name)
    collector.status = 403

    def lines(words: str) -> list[str]:
        return [each.message for each in caplog.records if words in each.message]

    async with traced() as bench:
        model = script(tmp_path, [say("done")])
        for _ in range(2):
            before = len(collector.refused)
            id = await run(bench, model=model)
            assert (await bench.result(id)).success
            await until(lambda seen=before: len(collector.refused) > seen)
        collector.status = 200
        await run(bench, model=model)
        await until(lambda: lines("traces are sent again"))
    (failed,) = lines("traces cannot be sent")
    assert "runs go on" in failed
    (record,) = (each for each in caplog.records if each.message == failed)
    assert "403" in record.__dict__["cause"]
    assert collector.named("invoke_agent")
    assert not lines("Failed to export")


def test_spans_are_encoded_as_the_sdk_encodes_them() -> None:
    provider = TracerProvider(resource=Resource({"service.name": "deputize", "tags": ["a", "b"]}, "of:resource"))
    tracer = provider.get_tracer("deputize", "1.0", "of:scope")
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    caller = set_span_in_context(NonRecordingSpan(remote), Context())
    values = {
        "text": "ü",
        "true": True,
        "whole": 3,
        "negative": -1,
        "part": 0.5,
        "texts": ["a", "b"],
        "numbers": [1, 2],
    }
    first = tracer.start_span("first", caller, SpanKind.CLIENT, values, [Link(remote)], 1)
    second = tracer.start_span("second", set_span_in_context(first, Context()))
    second.set_status(StatusCode.ERROR)
    for number in range(130):  # two more than are kept
        second.add_event("waiting", {"number": number})
    found = list[ReadableSpan]()
    for span in (first, second, tracer.start_span("third", Context())):
        span.end()
        assert isinstance(span, ReadableSpan)
        found.append(span)
    assert ExportTraceServiceRequest.FromString(encoded(found)) == encode_spans(found)


def test_a_count_that_is_too_large_to_be_sent_loses_no_spans() -> None:
    span = TracerProvider().get_tracer("deputize").start_span("chat", Context(), attributes={"tokens": 2**70})
    assert isinstance(span, ReadableSpan)
    (resource,) = ExportTraceServiceRequest.FromString(encoded([span])).resource_spans
    assert resource.scope_spans[0].spans[0].attributes[0].value.int_value == 2**63 - 1
