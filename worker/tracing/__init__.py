"""Traces: the spans of runs, for OpenTelemetry. Where no exporter is set, none of that is imported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from ...shared.errors import Misconfigured, extra_remedy
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
    try:
        tracing = await asyncio.to_thread(open_exporter, worker, environment())  # that takes half a second
    except Misconfigured as error:
        log.warning("no traces are sent: %s", error)
        tracing = None
    try:
        yield tracing
    finally:
        if tracing:
            await asyncio.to_thread(tracing.close)


def open_exporter(worker: str, variables: Mapping[str, str]) -> Tracing | None:
    """Returns what sends spans; None where these variables name no endpoint. Raises Misconfigured."""
    if not is_wanted(variables):
        return None
    protocol = next((text for name in PROTOCOLS if (text := variables.get(name, "").strip())), OURS)
    if protocol != OURS:
        raise Misconfigured(f"the protocol is {protocol[:100]}, and only {OURS} is supported")
    try:
        return import_module(".exporter", __package__).Tracing(worker, variables)
    except ImportError as error:
        raise Misconfigured(f"{error}; {extra_remedy('otel')}") from None
    except ValueError as error:
        raise Misconfigured(f"a variable OTEL_… is wrong: {error}") from None


def is_wanted(variables: Mapping[str, str]) -> bool:
    """Returns whether these variables name an endpoint for traces."""
    exporters = variables.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    disabled = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return (
        not disabled and "otlp" in exporters.split(",") and any(variables.get(name, "").strip() for name in ENDPOINTS)
    )
