"""What the conversation of a run has read, in its record: for later attempts, for children and continuations."""

from __future__ import annotations

from typing import Any

from ..facts import Trust
from .keys import record_key

TRUST = "trust"
"""The field of the record."""


async def trust_of(redis: Any, id: str) -> Trust:
    """Returns what the conversation of a delegation had read; nothing where it never began or is gone."""
    text: str | None = await redis.hget(record_key(id), TRUST)
    return Trust.model_validate_json(text) if text else Trust()
