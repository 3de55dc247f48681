"""The rate limits of an endpoint, as the headers of its responses state them: requests and tokens per minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self, runtime_checkable

_OF_KIND = {"requests": "requests", "input": "input-tokens", "output": "output-tokens", "tokens": "tokens"}
_NAMES = {
    kind: [
        (f"anthropic-ratelimit-{name}-limit", f"anthropic-ratelimit-{name}-remaining"),
        (f"x-ratelimit-limit-{name}", f"x-ratelimit-remaining-{name}"),
    ]
    for kind, name in _OF_KIND.items()
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

    name: str
    endpoint_id: str
    report_limits: Callable[[RateLimits], None]
    key: int | None
    """Which of several keys it has, from 1; None where there is one."""
    of_keys: Sequence[Self]
    """The same model with each of its keys."""


def limits_in(headers: Mapping[str, str]) -> RateLimits:
    """Returns the limits in the headers of a response; only those that are whole."""
    if not any("ratelimit-" in name.lower() for name in headers):
        return {}
    found = dict[str, RateLimit]()
    for kind, names in _NAMES.items():
        for of_limit, of_remaining in names:
            limit, remaining = _number(headers, of_limit), _number(headers, of_remaining)
            if limit and remaining is not None:
                found[kind] = RateLimit(limit, min(remaining, limit))
                break
    if "input" in found and "output" in found:
        found.pop("tokens", None)
    return found


def _number(headers: Mapping[str, str], name: str) -> float | None:
    # aiohttp's names are case-insensitive, and those of HTTP/1.1 may be written in any way.
    value = headers.get(name, "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
