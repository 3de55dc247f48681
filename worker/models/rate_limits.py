"""The rate limits of an endpoint, as the headers of its responses state them: requests and tokens per minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

_NAMES = {
    "requests": ("anthropic-ratelimit-requests-{}", "x-ratelimit-{}-requests"),
    "input": ("anthropic-ratelimit-input-tokens-{}", "x-ratelimit-{}-input-tokens"),
    "output": ("anthropic-ratelimit-output-tokens-{}", "x-ratelimit-{}-output-tokens"),
    "tokens": ("anthropic-ratelimit-tokens-{}", "x-ratelimit-{}-tokens"),
}
"""The headers of each limit, those of gateways last; ``tokens`` is for input and output together."""


class RateLimit(NamedTuple):
    limit: float
    remaining: float


RateLimits = Mapping[str, RateLimit]
"""What an endpoint states, by the names of ``_NAMES``."""


@runtime_checkable
class StatesLimits(Protocol):
    """A model that reports what its endpoint states."""

    report_limits: Callable[[RateLimits], None]


def limits_in(headers: Mapping[str, str]) -> RateLimits:
    """Returns the limits in the headers of a response; only those that are whole."""
    if not any("ratelimit-" in name.lower() for name in headers):
        return {}
    found = dict[str, RateLimit]()
    for kind, names in _NAMES.items():
        for name in names:
            limit, remaining = _number(headers, name.format("limit")), _number(headers, name.format("remaining"))
            if kind not in found and limit and remaining is not None:
                found[kind] = RateLimit(limit, min(remaining, limit))
    if "input" in found and "output" in found:
        found.pop("tokens", None)
    return found


def _number(headers: Mapping[str, str], name: str) -> float | None:
    # aiohttp's names are case-insensitive, and those of HTTP/1.1 may be written in any way.
    value = headers.get(name, "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
