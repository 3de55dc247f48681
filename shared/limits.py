"""The limits of a delegation: turns, tool calls, time, tokens and money. ``worker/core/limits.py`` holds them."""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import Field

from .request_options import OPTIONS
from .wire import Request


def bounded(default: Any, pointer: str, **further: Any) -> Any:
    """Returns a field with the bounds of its option on the command line."""
    option = OPTIONS[pointer]
    return Field(default=default, ge=option.least, le=option.most, gt=option.above, **further)


class Limits(Request):
    """Exact bounds of one delegation. Null means: no such bound. A number may be written as text ("5")."""

    max_turns: int = bounded(30, "limits/maxTurns")
    """Replies of the model."""
    max_tool_calls: int = bounded(50, "limits/maxToolCalls")
    """Tool calls of all turns together."""
    timeout_seconds: float = bounded(600, "limits/timeoutSeconds", allow_inf_nan=False)
    """Seconds of work; time in the queue does not count."""
    max_tokens: int | None = bounded(None, "limits/maxTokens")
    """Tokens of all model calls, both ways."""
    max_cost_usd: float | None = bounded(None, "limits/maxCostUsd", allow_inf_nan=False)
    """US dollars of all model calls."""

    def capped(self, caps: Limits) -> Limits:
        """Returns these limits, each lowered to the server's cap if it is above it."""

        def lower(mine: Any, cap: Any) -> Any:
            return cap if mine is None else mine if cap is None else min(mine, cap)

        return Limits(**{name: lower(getattr(self, name), getattr(caps, name)) for name in Limits.model_fields})


class LimitFields(TypedDict, total=False):
    """The fields of ``Limits``."""

    max_turns: int
    max_tool_calls: int
    timeout_seconds: float
    max_tokens: int | None
    max_cost_usd: float | None
