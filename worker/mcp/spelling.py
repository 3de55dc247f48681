"""The keys of mcp.json as different clients spell them, and what is said of a key that has no effect here."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_OTHER_NAMES: Mapping[str, str] = {
    "httpUrl": "url",
    "serverUrl": "url",
    "alwaysAllow": "trust",
    "autoApprove": "trust",
    **dict.fromkeys(("includeTools", "include_tools", "enabledTools", "enabled_tools", "allowedTools"), "allow"),
    **dict.fromkeys(("excludeTools", "exclude_tools", "disabledTools", "disabled_tools"), "deny"),
}
_TIMES: Mapping[str, str] = {
    **dict.fromkeys(("connect_timeout", "startup_timeout", "init_timeout"), "connect_seconds"),
    **dict.fromkeys(("execute_timeout", "tool_timeout", "call_timeout", "request_timeout", "timeout"), "call_seconds"),
    **dict.fromkeys(("sse_read_timeout", "read_timeout", "idle"), "idleSeconds"),
}
"""Without the unit that may end them, in words joined by ``_``."""
_UNITS = {"_ms": 0.001, "_milliseconds": 0.001, "_seconds": 1.0, "_sec": 1.0, "_secs": 1.0, "_s": 1.0}
_LEAST_MILLISECONDS = 1000
"""A ``connectTimeout`` of that much or more is meant in milliseconds, as most clients that spell it so have it."""
_OURS = (
    *("type", "command", "args", "env", "cwd", "url", "headers", "disabled", "enabled", "tools", "trust", "sandbox"),
    *("show", "idleSeconds"),
)
_OF_TOOLS = ("allow", "deny")
_FOR_PEOPLE = {"name", "title", "description", "icon", "gallery", "version", "tags", "homepage", "$schema"}
"""Keys that have no effect anywhere."""


def spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in our own spelling. What another client alone understands is left out."""
    ours: dict[str, Any] = {key: given[key] for key in _OURS if key in given}
    tools = ours.get("tools")
    tools = dict(tools) if isinstance(tools, dict) else {} if tools is None else {"allow": tools}
    for key, name in _OTHER_NAMES.items():
        if key in given:
            (tools if name in _OF_TOOLS else ours).setdefault(name, given[key])
    for key in given:
        name = _time_of(key)
        if name and name not in ours and (seconds := _seconds(key, given[key])) is not None:
            ours[name] = seconds
    if "call_seconds" in ours:  # who gives a call so long does not mean that silence ends it earlier
        ours.setdefault("idleSeconds", ours["call_seconds"])
    if ours.pop("enabled", True) is False:
        ours["disabled"] = True
    return {**ours, "name": given.get("name"), "tools": tools}


def without_effect(given: Mapping[str, Any]) -> Iterator[str]:
    """Of each key that has no effect here, what must be said of it."""
    tools = given.get("tools")
    for key in _unknown(tools, _OF_TOOLS) if isinstance(tools, dict) else ():
        yield f"its key tools.{key[:100]} is not known and has no effect; there are allow and deny"
    known = (*_OURS, *_OTHER_NAMES, *_TIMES)
    for key in _unknown(given, known):
        if _time_of(key):
            if _seconds(key, given[key]) is None:
                yield f"its {key} is not a number of seconds above 0 and has no effect"
        elif key not in _FOR_PEOPLE and not key.startswith(("_", "//", "x-")):
            near = difflib.get_close_matches(key[:100], known, n=1)
            yield f"its key {key[:100]} is not known and has no effect" + (f"; did you mean {near[0]}?" if near else "")


def unmatched(kind: str, patterns: Iterable[str], tools: Iterable[str], fits: Iterable[str]) -> Iterator[str]:
    """Of each pattern that fits no tool, what must be said of it; ``fits`` are those that do."""
    names, fitting = [*tools], {*fits}
    for pattern in patterns:
        if pattern not in fitting:
            near = difflib.get_close_matches(pattern[:100], names, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield f"its {kind} names {pattern[:100]!r}, which is none of its tools{hint}"


def _unknown(given: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    names = {*known} - {*_TIMES}
    return [key for key in given if key not in names]


def _time_of(key: str) -> str | None:
    """Which of our times another client's key means, if any."""
    if key in _OURS:
        return None
    stem, _ = _unit(key)
    return _TIMES.get(stem)


def _unit(key: str) -> tuple[str, float | None]:
    """The key in words joined by ``_``, without its unit, and the seconds of the unit."""
    words = "".join(f"_{char.lower()}" if char.isupper() else char for char in key).replace("-", "_")
    for ending, seconds in _UNITS.items():
        if words.endswith(ending):
            return words.removesuffix(ending), seconds
    return words, None


def _seconds(key: str, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    unit = _unit(key)[1]
    if unit is None:
        is_other_style = "_" not in key
        unit = 0.001 if is_other_style and value >= _LEAST_MILLISECONDS else 1.0
    return value * unit
