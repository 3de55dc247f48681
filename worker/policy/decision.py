"""The three decisions of the policy and their order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Decision(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = (Decision.ALLOW, Decision.ASK, Decision.DENY)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Returns the strictest of the decisions; without any, ALLOW."""
    return max(decisions, key=_STRICTNESS.index, default=Decision.ALLOW)
