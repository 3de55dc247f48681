"""The day's caps on spending, counted for the whole fleet in Redis; ``spend.lua`` reserves before each model call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..connection import Script
from ..errors import SpendCapReached
from ..request import DelegationRequest
from ..wire import now
from .keys import RESERVED_MONEY, idempotency_key, owned_idempotency_key, record_key, spend_key

if TYPE_CHECKING:
    from ..settings import SpendSettings

SPEND = Script("spend")
BILLIONTHS = 1_000_000_000
DAY_SECONDS = 8 * 24 * 3600
"""How long a day's counters are kept."""
EVERYTHING = "*"
"""The counter of all delegations; those of labels are ``KEY:VALUE``."""


@dataclass(frozen=True, slots=True)
class Cap:
    """US dollars a day. ``name`` is the setting, ``counter`` what counts for it."""

    name: str
    counter: str
    usd: float


def caps_of(spend: SpendSettings, labels: Mapping[str, str]) -> list[Cap]:
    """Returns the caps that hold for a delegation. A cap on a label's value takes precedence over one on its key."""
    caps = [] if spend.daily_usd is None else [Cap("spend.daily_usd", EVERYTHING, spend.daily_usd)]
    for key, value in labels.items():
        counter = f"{key}:{value}"
        for name in (counter, key):
            if name in spend.per_label:
                caps.append(Cap(f"spend.per_label {name}", counter, spend.per_label[name]))
                break
    return caps


def spend_call(
    id: str, fence: str, total: float, wanted: float, least: float, caps: Sequence[Cap]
) -> tuple[list[str], dict[str, Any]]:
    """Returns keys and arguments of the script, for amounts in US dollars."""
    keys = [spend_key(f"{now():%Y-%m-%d}"), RESERVED_MONEY, record_key(id)]
    return keys, {
        "fence": fence,
        "total": round(total * BILLIONTHS),
        "wanted": round(wanted * BILLIONTHS),
        "least": round(least * BILLIONTHS),
        "counters": [cap.counter for cap in caps],
        "caps": [{"counter": cap.counter, "most": round(cap.usd * BILLIONTHS)} for cap in caps],
        "seconds": DAY_SECONDS,
    }


def kept_under(request: DelegationRequest, owner: str) -> str | None:
    """Returns the key in Redis that has the delegation of a request's idempotency key; None where it has none.

    ``owner`` is the caller's token of the tokens file; "" is for all other callers, and for runs.
    """
    return None if request.idempotency_key is None else kept_for(request.idempotency_key, owner)


def kept_for(key: str, owner: str) -> str:
    """Returns the key in Redis that has the delegation of an owner's idempotency key."""
    return owned_idempotency_key(owner, key) if owner else idempotency_key(key)


async def check_caps(redis: Any, spend: SpendSettings, requests: Sequence[DelegationRequest], owner: str = "") -> None:
    """Raises ``SpendCapReached`` for a new delegation whose cap is reached; one that was accepted before may be asked
    for again. ``owner`` is whose idempotency keys they have.
    """
    if spend.daily_usd is None and not spend.per_label:
        return
    spent = await redis.hgetall(spend_key(f"{now():%Y-%m-%d}"))
    for request in requests:
        for cap in caps_of(spend, request.labels):
            used = int(spent.get(cap.counter, 0)) / BILLIONTHS
            if used < cap.usd:
                continue
            key = kept_under(request, owner)
            if key is None or not await redis.exists(key):
                raise SpendCapReached(
                    f"{cap.name}: ${used:.4f} of ${cap.usd:g} a day is spent; nothing more starts before "
                    "midnight UTC. Raise the cap in the service's and the workers' settings to go on now"
                )


def seconds_to_midnight() -> int:
    """Returns the seconds until the next day begins, in UTC."""
    moment = datetime.now(UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return max(1, round((midnight - moment).total_seconds()))
