"""How long a conversation each model takes, as published by 21 November 2026."""

from __future__ import annotations

import re

_KNOWN = (
    (re.compile(r"claude-(fable|mythos|opus|sonnet|haiku)-5(-|$)"), 1_000_000),
    (re.compile(r"claude-"), 200_000),
)
UNKNOWN = 128_000
"""For models whose window nobody has told us: too low a guess costs a summary, too high a one a refused call."""


def window_of(model: str) -> int:
    """The model's window in tokens, replies included."""
    return next((tokens for name, tokens in _KNOWN if name.match(model)), UNKNOWN)
