"""What waits for capacity: calls for models' endpoints that limit requests or spending, runs for places in workers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from ..wire import Timestamp, Wire
from .keys import PACES, WAITING_RUNS, outage_key, pace_key, waiting_runs_key

SHOWN_SECONDS = 1.0
"""A time until the next request is stated where it is longer than this."""
PLACES = "workers"
"""Stands for an endpoint where runs wait for places in workers."""
_OWNER = "owner:"


class EndpointCapacity(Wire):
    """One endpoint with one key and model, since it has refused requests or nearly reached a limit.

    Or the places in workers, while runs wait for one.
    """

    endpoint: str
    """Identifies address and key without naming them; ``workers``: the places in workers."""
    model: str
    """The model's name without its date; empty for the places in workers."""
    key: int | None = None
    """The place of its key in the table of the model, from 1; null where the model has one key."""
    rate: float | None = None
    """Requests that are sent in a second; null where only limits hold that the endpoint states."""
    served: int = 0
    """Requests that were sent at this pace and not refused."""
    refused: int = 0
    """Refused requests."""
    waiting: int = 0
    """Model calls that wait for their turn, or runs that wait for a place."""
    owners: dict[str, int] = Field(default_factory=dict)
    """Those of them by owner: of a token of the tokens file, by its owner's name."""
    until: Timestamp | None = None
    """Nothing is sent before this time; null where something may be sent now."""
    error: str = ""
    """The last refusal."""
    spent: bool = False
    """Whether the account's limit on spending is reached: until then nothing is sent with this key."""


async def capacities(redis: Any, owner: str | None = None) -> list[EndpointCapacity]:
    """Returns the places in workers, if runs wait for one, and the endpoints that limit rate or spending, by model.

    ``owner``: shows no other owner's runs and calls.
    """
    endpoints = sorted(await redis.smembers(PACES))
    if not endpoints:
        return await _places(redis, owner)
    async with redis.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.mget([pace_key(endpoint) for endpoint in endpoints])
        for endpoint in endpoints:
            pipe.hmget(outage_key(endpoint), ["spent", "due", "error", "model", "key"])
        (seconds, micros), stored, *spending = await pipe.execute()
    now, found = seconds * 1000 + micros / 1000, list[EndpointCapacity]()
    for endpoint, state, (spent, due, *words) in zip(endpoints, stored, spending, strict=True):
        if spent and int(due) > now:
            found.append(_spent(endpoint, int(due), *words))
        elif state and (read := json.loads(state)).get("ends"):
            found.append(_of(endpoint, read, now, owner))
    found.sort(key=lambda each: (each.model, each.key or 0, each.endpoint))
    return [*await _places(redis, owner), *found]


def _spent(endpoint: str, due: int, error: str, model: str, key: str) -> EndpointCapacity:
    until, place = datetime.fromtimestamp(due / 1000, UTC), int(key) if key else None
    return EndpointCapacity(endpoint=endpoint[:12], model=model, key=place, until=until, error=error, spent=True)


async def _places(redis: Any, owner: str | None) -> list[EndpointCapacity]:
    owners = await redis.zrange(WAITING_RUNS, 0, -1)
    async with redis.pipeline(transaction=False) as pipeline:
        for each in owners:
            pipeline.zcard(waiting_runs_key(each))
        waiting = Counter(dict(zip(owners, await pipeline.execute(), strict=True)))
    if not waiting.total():
        return []
    return [EndpointCapacity(endpoint=PLACES, model="", waiting=waiting.total(), owners=_named(waiting, owner))]


def _named(waiting: Counter[str], owner: str | None) -> dict[str, int]:
    """Returns the numbers by the names of owners: of all, or of this one."""
    named = {name.removeprefix(_OWNER): count for name, count in waiting.items() if name.startswith(_OWNER)}
    return named if owner is None else {name: count for name, count in named.items() if name == owner}


def _of(endpoint: str, state: dict[str, Any], now: float, owner: str | None) -> EndpointCapacity:
    waiting = Counter[str]()
    passed = now - state["began"]
    for process in dict(state["processes"] or {}).values():
        if process["alive"] >= passed:
            waiting.update({name: wanted[0] for name, wanted in dict(process["waiting"] or {}).items()})
    is_later = state["next"] - passed > SHOWN_SECONDS * 1000
    return EndpointCapacity(
        endpoint=endpoint[:12],
        model=state.get("model") or "",
        key=state.get("key"),
        rate=round(state["rate"], 3) if "rate" in state else None,
        served=max(0, int(state["successes"])),
        refused=int(state.get("refusals", 0)),
        waiting=waiting.total(),
        owners=_named(waiting, owner),
        until=datetime.fromtimestamp((state["began"] + state["next"]) / 1000, UTC) if is_later else None,
        error=state.get("error") or "",
    )
