"""The end of a delegation that no worker has begun: its last events and its result, for the scripts that end it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..delegation import Status, TerminationReason, ToolAgentResult
from ..events import Envelope, Event, RunFinished, capped
from ..message import Message
from ..wire import now
from .keys import EVENTS, INDEX, record_key
from .record import not_found


async def state_of(redis: Any, id: str) -> Mapping[str, str]:
    """Returns what the scripts must still find when they end a delegation. Raises ``NotFound``."""
    names = ["seq", "attempt", "request", "read"]
    values = await redis.hmget(record_key(id), names)
    if values[0] is None:
        raise not_found(id)
    return dict(zip(names, (value or "0" for value in values), strict=True))


def ending(
    id: str,
    state: Mapping[str, str],
    reason: TerminationReason,
    summary: str,
    *,
    retention: int,
    undelivered: Sequence[Message] = (),
    before: Sequence[Event] = (),
) -> dict[str, Any]:
    """Returns the arguments of ``end_unstarted`` (``unstarted.lua``); the events ``before`` precede the last one."""
    result = ToolAgentResult(
        delegation_id=id,
        status=Status.CANCELLED,
        termination_reason=reason,
        summary=summary,
        attempts=int(state["attempt"]),
        output_status=None if json.loads(state["request"]).get("outputSchema") is None else "missing",
        undelivered=[message for message in undelivered if message.text],
    )
    return {
        "id": id,
        "index": INDEX,
        "channel": EVENTS,
        "seq": int(state["seq"]),
        "events": numbered(id, state, [*before, RunFinished(result=result)]),
        "result": result.to_json(),
        "now": now().isoformat(),
        "retention_seconds": retention,
    }


def numbered(id: str, state: Mapping[str, str], events: Sequence[Event]) -> list[str]:
    """Returns the next events of a delegation that no worker has, as they are published."""
    seq, attempt = int(state["seq"]), int(state["attempt"])
    envelopes = [
        Envelope.model_construct(delegation_id=id, seq=seq + at, at=now(), attempt=attempt, event=event)
        for at, event in enumerate(events, 1)
    ]
    return [capped(envelope.to_json()) for envelope in envelopes]
