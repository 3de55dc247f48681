"""Delegations of callers with a trace."""

from __future__ import annotations

from typing import Any

from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.runs.bench import Bench

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE_ID}-{CALLER}-{flags}" for flags in ("01", "00"))


async def accept(bench: Bench, trace: str = SAMPLED, **fields: Any) -> str:
    request = DelegationRequest.model_validate({"task": "parent", **fields})
    return (await bench.store.accept([(new_id(), request, request.limits)], 30, trace=trace))[0].id


async def run(bench: Bench, trace: str = SAMPLED, **fields: Any) -> str:
    id = await accept(bench, trace, **fields)
    await carry_out(bench.services, id)
    return id
