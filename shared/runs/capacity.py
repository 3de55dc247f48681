"""The capacity of the models' endpoints that limit the rate of requests: what they serve, and what waits for them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from ..wire import Timestamp, Wire
from .keys import PACES, pace_key

SHOWN_SECONDS = 1.0
"""A time until the next request is stated where it is longer than this."""
_OWNER = "owner:"


class EndpointCapacity(Wire):
    """One endpoint with one key and model, since it has refused requests or nearly reached a limit that it states."""

    endpoint: str
    """Identifies address and key without naming them."""
    model: str
    """The model's name without its date."""
    rate: float | None = None
    """Requests that are sent in a second; null where only limits hold that the endpoint states."""
    served: int = 0
    """Requests that were sent at this pace and not refused."""
    refused: int = 0
    """Refused requests."""
    waiting: int = 0
    """Model calls that wait for their turn."""
    owners: dict[str, int] = Field(default_factory=dict)
    """Those of them by owner: of a token of the tokens file, by its owner's name."""
    until: Timestamp | None = None
    """Nothing is sent before this time; null where something may be sent now."""
    error: str = ""
    """The last refusal."""


async def capacities(redis: Any, owner: str | None = None) -> list[EndpointCapacity]:
    """Returns the endpoints whose rate is limited, by model. ``owner``: shows no other owner's calls."""
    endpoints = sorted(await redis.smembers(PACES))
    stored = await redis.mget([pace_key(endpoint) for endpoint in endpoints]) if endpoints else []
    seconds, micros = await redis.time()
    now = seconds * 1000 + micros / 1000
    states = ((endpoint, json.loads(state)) for endpoint, state in zip(endpoints, stored, strict=True) if state)
    found = [_of(endpoint, state, now, owner) for endpoint, state in states if state.get("ends")]
    return sorted(found, key=lambda each: (each.model, each.endpoint))


def _of(endpoint: str, state: dict[str, Any], now: float, owner: str | None) -> EndpointCapacity:
    waiting = Counter[str]()
    passed = now - state["began"]
    for process in dict(state["processes"] or {}).values():
        if process["alive"] >= passed:
            waiting.update({name: wanted[0] for name, wanted in dict(process["waiting"] or {}).items()})
    named = {name.removeprefix(_OWNER): count for name, count in waiting.items() if name.startswith(_OWNER)}
    is_later = state["next"] - passed > SHOWN_SECONDS * 1000
    return EndpointCapacity(
        endpoint=endpoint[:12],
        model=state.get("model") or "",
        rate=round(state["rate"], 3) if "rate" in state else None,
        served=max(0, int(state["successes"])),
        refused=int(state.get("refusals", 0)),
        waiting=waiting.total(),
        owners=named if owner is None else {name: count for name, count in named.items() if name == owner},
        until=datetime.fromtimestamp((state["began"] + state["next"]) / 1000, UTC) if is_later else None,
        error=state.get("error") or "",
    )
