"""Traces: the spans of runs, for OpenTelemetry. Where no exporter is set, none of that is imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from ...shared.log import log
from ...shared.settings import environment

if TYPE_CHECKING:
    from .exporter import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OURS = "http/protobuf"


@asynccontextmanager
async def open_tracing(worker: str) -> AsyncGenerator[Tracing | None]:
    """Opens what sends spans, where OpenTelemetry's variables name an endpoint, and closes it with the block.

    Spans of a worker have its name. What cannot be opened is a line in the log, and the worker works without traces.
    """
    if not is_wanted(environment()):
        yield None
        return
    try:
        # In a thread: that takes half a second. A wrong variable is a ValueError.
        exporter = await asyncio.to_thread(import_module, ".exporter", __package__)
        tracing: Tracing = await asyncio.to_thread(exporter.Tracing, worker, environment())
    except (ImportError, ValueError) as error:
        log.warning("no traces are sent (`pip install 'deputize[otel]'` has what that needs): %s", error)
        yield None
        return
    try:
        yield tracing
    finally:
        await asyncio.to_thread(tracing.close)


def is_wanted(variables: Mapping[str, str]) -> bool:
    """Returns whether these variables name an endpoint for traces. Logs where it has a protocol that is not ours."""
    given = {name: variables.get(name, "").strip() for name in (*ENDPOINTS, *PROTOCOLS)}
    exporters = variables.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    disabled = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or "otlp" not in exporters.split(",") or not any(given[name] for name in ENDPOINTS):
        return False
    protocol = next((given[name] for name in PROTOCOLS if given[name]), OURS)
    if protocol != OURS:
        log.warning("no traces are sent: the protocol is %s, and only %s is supported", protocol[:100], OURS)
    return protocol == OURS
