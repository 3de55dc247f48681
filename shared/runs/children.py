"""Child delegations: which ones a run created itself, and for which of its calls."""

from __future__ import annotations

from ..delegation import Delegation
from .keys import children_key
from .store import RunStore

_LONGEST_CALL_ID = 180


def call_key(parent: str, turn: int, call: str) -> str:
    """Returns the idempotency key of one call's child delegation, so that a repeated call finds the same one."""
    return f"{parent}:{turn}:{call[:_LONGEST_CALL_ID]}"


async def children_of(store: RunStore, parent: str) -> dict[str, Delegation]:
    """Returns the child delegations that the parent's run created itself, by ``call_key``; not those of callers."""
    found = await store.many(sorted(await store.redis.smembers(children_key(parent))))
    keys = [(child.request.idempotency_key or "", child) for child in found]
    return {key: child for key, child in keys if key.startswith(f"{parent}:")}
