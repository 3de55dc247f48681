"""One server of mcp.json, normalized from the spellings of several clients, and the names of its tools."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ...shared.fleet import MCP
from ...shared.text import did_you_mean

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
"""Keys in snake case, without a unit suffix."""
_UNITS = {"_ms": 0.001, "_milliseconds": 0.001, "_seconds": 1.0, "_sec": 1.0, "_secs": 1.0, "_s": 1.0}
_LEAST_MILLISECONDS = 1000
"""A ``connectTimeout`` of this value or more is in milliseconds, as in most clients that use the key."""
_OURS = (
    *("type", "command", "args", "env", "cwd", "url", "headers", "disabled", "enabled", "tools", "trust", "sandbox"),
    *("show", "idleSeconds"),
)
_OF_TOOLS = ("allow", "deny")
_FOR_PEOPLE = {"name", "title", "description", "icon", "gallery", "version", "tags", "homepage", "$schema"}
"""Keys that have no effect anywhere."""
MAX_NAME = 64
_DIGEST = 8
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.IGNORECASE)
_ARGUMENTS = re.compile(r"(?<=.)\(.*\)\s*$")
_SCHEME = re.compile(r"^(Bearer|Basic|Token) ", re.IGNORECASE)
_TYPES: Mapping[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}


def spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entry with our own keys. Keys that only other clients know are dropped."""
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
    if "call_seconds" in ours:  # an explicit call timeout must not be cut short by the idle timeout
        ours.setdefault("idleSeconds", ours["call_seconds"])
    if ours.pop("enabled", True) is False:
        ours["disabled"] = True
    return {**ours, "name": given.get("name"), "tools": tools}


def without_effect(given: Mapping[str, Any]) -> Iterator[str]:
    """Yields a message for each key without effect."""
    tools = given.get("tools")
    for key in _unknown(tools, _OF_TOOLS) if isinstance(tools, dict) else ():
        yield f"its key tools.{key[:100]} is not known and has no effect; there are allow and deny"
    known = (*_OURS, *_OTHER_NAMES, *_TIMES)
    for key in _unknown(given, known):
        if _time_of(key):
            if _seconds(key, given[key]) is None:
                yield f"its {key} is not a number of seconds above 0 and has no effect"
        elif key not in _FOR_PEOPLE and not key.startswith(("_", "//", "x-")):
            near = did_you_mean(key[:100], known, 1, cutoff=0.6)
            yield f"its key {key[:100]} is not known and has no effect" + (f"; {near}" if near else "")


def unmatched(kind: str, patterns: Iterable[str], tools: Iterable[str], fits: Iterable[str]) -> Iterator[str]:
    """Yields a message for each pattern that matches no tool; ``fits`` are the matching patterns."""
    names, fitting = [*tools], {*fits}
    for pattern in patterns:
        if pattern not in fitting:
            near = did_you_mean(pattern[:100], names, 1, show=repr)
            hint = f"; {near}" if near else ""
            yield f"its {kind} names {pattern[:100]!r}, which is none of its tools{hint}"


def _unknown(given: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    names = {*known} - {*_TIMES}
    return [key for key in given if key not in names]


def _time_of(key: str) -> str | None:
    """Returns our time setting for another client's key, if any."""
    if key in _OURS:
        return None
    stem, _ = _unit(key)
    return _TIMES.get(stem)


def _unit(key: str) -> tuple[str, float | None]:
    """Returns the key in snake case without its unit, and the unit in seconds."""
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


def prefix(server: str) -> str:
    """Returns the prefix of the names of this server's tools."""
    return f"{MCP}{_OTHER.sub('_', server)}__"[: MAX_NAME - _DIGEST - 1]


def exposed(server: str, tool: str, taken: Container[str]) -> str:
    """Returns the name that models see; a long or ``taken`` one ends with a digest.

    The name is not parsed: a tool's server is ``Tool.origin.server``.
    """
    whole = f"{MCP}{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
    if len(whole) <= MAX_NAME and whole not in taken:
        return whole
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()
    return f"{whole[: MAX_NAME - _DIGEST - 1]}_{digest[:_DIGEST]}"


class ToolFilter(BaseModel):
    """Patterns of a server's own tool names. ``allow`` null means all; ``deny`` takes precedence."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    allow: list[str] | None = None
    deny: list[str] = []

    @field_validator("allow", "deny", mode="after")
    @classmethod
    def _names(cls, patterns: list[str] | None) -> list[str] | None:
        """Some clients write ``name()`` or ``name(arguments)``."""
        return patterns and [_ARGUMENTS.sub("", pattern) for pattern in patterns]

    def lets(self, tool: str) -> bool:
        return (self.allow is None or matches(tool, self.allow)) and not matches(tool, self.deny)


class Server(BaseModel):
    """One server of the file, with all variables expanded."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    type: Literal["stdio", "http", "sse"]
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    """Its variables, besides the sandbox's own; it inherits nothing else of the worker's environment."""
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    tools: ToolFilter = ToolFilter()
    trust: bool | list[str] = False
    sandbox: bool = True
    show: list[Path] = []
    idle_seconds: float = Field(default=300, gt=0, alias="idleSeconds")
    """How long a call may go on without a message from the server."""
    connect_seconds: float | None = None
    """How long the run waits for it to connect and to list its tools; null is the worker's own setting."""
    call_seconds: float | None = None
    """How long one call may take in all; null means no limit of its own."""

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, written: dict[str, Any]) -> dict[str, Any]:
        given = spelled({key: value for key, value in written.items() if value is not None})
        url = given.get("url") or ""
        named = given.get("type") or ("stdio" if given.get("command") else _guessed(url))
        way = _TYPES.get(str(named).lower())
        if way is None:
            raise ValueError(f"type {named!r} is not known; there are stdio, http and sse")
        if not (given.get("command") if way == "stdio" else url):
            raise ValueError("it has neither a command (stdio) nor a url (http, sse)")
        if way != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
            raise ValueError("its url begins with neither http:// nor https://")
        return {**given, "type": way, "url": url}

    @field_validator("trust", mode="after")
    @classmethod
    def _trusted_names(cls, trust: bool | list[str]) -> bool | list[str]:
        """A name with arguments would trust the tool with others, too, so it stays and matches none."""
        return trust if isinstance(trust, bool) else [pattern.removesuffix("()") for pattern in trust]

    @field_validator("env", "headers", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: json.dumps(part) if isinstance(part, int | float) else part for name, part in value.items()}

    @property
    def host(self) -> str:
        """``name`` or ``name:port`` of its url."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def secrets(self) -> list[str]:
        """Returns the values to hide in logs: variables, headers and URL parts with names of secrets."""
        given = [*self.env.items(), *self.headers.items(), *parse_qsl(urlsplit(self.url).query)]
        return [_SCHEME.sub("", value) for name, value in given if _SECRET_NAME.search(name)]

    def trusts(self, tool: str) -> bool:
        return self.trust if isinstance(self.trust, bool) else matches(tool, self.trust)


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _guessed(url: Any) -> str:
    return "sse" if isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse") else "http"
