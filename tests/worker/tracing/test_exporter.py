"""Where traces are sent: the standard variables, and a collector that does not take them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from deputize.shared.log import log
from deputize.worker.tracing import is_wanted, open_tracing
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
    ],
)
def test_the_standard_variables_say_whether_traces_are_sent(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables) is wanted


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
async def test_another_protocol_is_a_line_in_the_log(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", HERE)
    for protocol, warned in (("grpc", True), ("http/protobuf", False)):
        monkeypatch.setenv(name, protocol)
        caplog.clear()
        async with open_tracing("worker-1") as tracing:
            assert (tracing is None) is warned
        line = "no traces are sent: the protocol is grpc, and only http/protobuf is supported"
        assert caplog.messages == [line] * warned


async def test_a_variable_that_cannot_be_read_is_a_line_in_the_log_and_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", HERE)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    async with open_tracing("worker-1") as tracing:
        assert tracing is None
    assert ["no traces are sent" in line and "max_queue_size" in line for line in caplog.messages] == [True]


async def test_without_the_extra_the_log_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", HERE)
    monkeypatch.delitem(sys.modules, "deputize.worker.tracing.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    async with open_tracing("worker-1") as tracing:
        assert tracing is None
    (line,) = caplog.messages
    assert line.startswith("no traces are sent: ")
    assert line.endswith("; `pip install '.[otel]'` in a clone of deputize; images of workers have it with EXTRAS=all")


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
