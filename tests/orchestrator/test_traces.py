"""How a caller names its trace: by HTTP, Python, MCP and the command line. What is not valid counts as none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from opentelemetry import context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from deputize import Orchestrator, SyncOrchestrator
from deputize.orchestrator.operations import AcceptedDelegation
from deputize.shared.connection import connect
from deputize.shared.errors import Invalid
from deputize.shared.log import log
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import record_key
from deputize.shared.runs.record import TRACE
from deputize.shared.traceparent import current
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import connected
from tests.orchestrator.serving import served, settings
from tests.shared.log_lines import lines_of

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
GIVEN, OTHER = (f"00-{TRACE_ID}-{span * 16}-01" for span in "12")


class Traced(FakeService):
    """Notes of which trace each delegation is."""

    def __init__(self) -> None:
        super().__init__()
        self.traces: list[str] = []

    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        self.traces.append(current())
        log.warning("accepted")
        return await super().create(request)


@pytest.fixture
def service() -> Traced:
    return Traced()


@contextmanager
def in_span(span: int) -> Iterator[None]:
    """OpenTelemetry's current span is this one."""
    here = SpanContext(int(TRACE_ID, 16), span, is_remote=False, trace_flags=TraceFlags(1))
    token = context.attach(set_span_in_context(NonRecordingSpan(here)))
    try:
        yield
    finally:
        context.detach(token)


async def test_a_request_names_its_trace_by_a_header_and_the_record_keeps_it(
    real: httpx2.AsyncClient, redis_url: str
) -> None:
    async def kept(header: str | None, path: str = "", **body: Any) -> list[Any]:
        headers = {} if header is None else {"traceparent": header}
        answer = (await real.post(f"/v1/delegations{path}", json=body or {"task": "x"}, headers=headers)).json()
        async with connect(redis_url) as redis:
            return [await redis.hget(record_key(each["id"]), TRACE) for each in answer.get("items", [answer])]

    assert await kept(GIVEN) == [GIVEN]
    assert await kept(GIVEN, ":batch", requests=[{"task": "x"}, {"task": "y"}]) == [GIVEN, GIVEN]
    assert await kept(None) == await kept("00-nonsense") == await kept("0" * 5000) == [None]


async def test_a_repeated_request_of_another_span_is_the_same_request(real: httpx2.AsyncClient) -> None:
    request: dict[str, Any] = {"json": {"task": "x", "idempotencyKey": "k"}}
    first = await real.post("/v1/delegations", headers={"traceparent": GIVEN}, **request)
    again = await real.post("/v1/delegations", headers={"traceparent": OTHER}, **request)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


async def test_log_lines_of_a_request_name_its_trace_and_its_delegation(
    http: httpx2.AsyncClient, service: Traced
) -> None:
    with lines_of(logging.getLogger()) as lines:
        answer = await http.post("/v1/delegations", json={"task": "x"}, headers={"traceparent": GIVEN})
        id = answer.json()["id"]
        await http.post(f"/v1/delegations/{id}/cancel", headers={"traceparent": GIVEN})
    of_request = [line for line in lines() if line["message"] == "accepted"]
    assert [(line.get("trace_id"), line.get("delegation")) for line in of_request] == [(TRACE_ID, None)]


async def test_python_names_it_by_a_keyword_or_by_the_current_span(url: str, service: Traced) -> None:
    async with Orchestrator(settings(url=url)) as orchestrator:
        await orchestrator.start("x")
        await orchestrator.start("x", traceparent=GIVEN)
        with in_span(7):
            await orchestrator.start("x")
            await orchestrator.start("x", traceparent=GIVEN)
        await orchestrator.start("x")
        wrong: list[Any] = ["nonsense", 5, b"00"]
        for each in wrong:
            with pytest.raises(Invalid, match=r"^traceparent: is not one of W3C Trace Context, such as 00-"):
                await orchestrator.start("x", traceparent=each)
    assert service.traces == ["", GIVEN, f"00-{TRACE_ID}-0000000000000007-01", GIVEN, ""]


async def test_so_it_is_without_await(url: str, service: Traced) -> None:
    def script() -> None:
        with SyncOrchestrator(settings(url=url)) as orchestrator, in_span(7):
            orchestrator.start("x")
            orchestrator.start("x", traceparent=GIVEN)

    await asyncio.to_thread(script)
    assert service.traces == [f"00-{TRACE_ID}-0000000000000007-01", GIVEN]


@pytest.mark.parametrize("way", ["http", "stdio of 2025"])
async def test_a_client_of_mcp_names_it_in_meta(way: str, url: str, service: Traced) -> None:
    async with connected(way, url) as client:
        for trace in (GIVEN, OTHER):
            await client.call_tool("delegate_start", {"task": "x"}, meta={"traceparent": trace})
        await client.call_tool("delegate_start", {"task": "x"})
    assert service.traces == [GIVEN, OTHER, ""]


async def test_a_command_is_part_of_the_trace_that_its_environment_names(service: Traced) -> None:
    async with served(service) as url:
        for trace in (GIVEN, "nonsense"):
            done = await deputize("run", "x", "--detach", DEPUTIZE_URL=url, DEPUTIZE_TOKEN="t", TRACEPARENT=trace)
            assert done.code == 0, done.err
    assert service.traces == [GIVEN, ""]
