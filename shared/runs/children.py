"""Nested delegations: which of its children a run handed over itself, and for which of its calls."""

from __future__ import annotations

from shared.delegation import Delegation
from shared.runs.keys import children_key
from shared.runs.store import RunStore

_LONGEST_CALL_ID = 180


def call_key(parent: str, turn: int, call: str) -> str:
    """The idempotency key of the delegation that one call is for: whoever repeats the call finds the same one."""
    return f"{parent}:{turn}:{call[:_LONGEST_CALL_ID]}"


async def handed_over(store: RunStore, parent: str) -> dict[str, Delegation]:
    """What the parent's run has handed over itself, by ``call_key``; children that callers gave it are not its own."""
    children = await store.many(sorted(await store.redis.smembers(children_key(parent))))
    keys = [(child.request.idempotency_key or "", child) for child in children]
    return {key: child for key, child in keys if key.startswith(f"{parent}:")}
