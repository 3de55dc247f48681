"""One server of mcp.json, in one spelling, whichever client's the file has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from worker.mcp.spelling import spelled

_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.IGNORECASE)
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


class ToolFilter(BaseModel):
    """Patterns of a server's own tool names. ``allow`` null is all of them; ``deny`` wins."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    allow: list[str] | None = None
    deny: list[str] = []

    def lets(self, tool: str) -> bool:
        return (self.allow is None or matches(tool, self.allow)) and not matches(tool, self.deny)


class Server(BaseModel):
    """One server as the file describes it, with all variables filled in."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    type: Literal["stdio", "http", "sse"]
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    """The variables it gets, besides the sandbox's own; nothing else of the worker's environment reaches it."""
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    tools: ToolFilter = ToolFilter()
    trust: bool | list[str] = False
    sandbox: bool = True
    show: list[Path] = []
    idle_seconds: float = Field(default=300, gt=0, alias="idleSeconds")
    """How long a call may go on without a word."""
    connect_seconds: float | None = None
    """How long the run waits for it to connect and to list its tools; null is the worker's own setting."""
    call_seconds: float | None = None
    """How long one call may take in all; null is no limit of its own."""

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, written: dict[str, Any]) -> dict[str, Any]:
        given = spelled({key: value for key, value in written.items() if value is not None})
        url = given.get("url") or ""
        told = given.get("type") or ("stdio" if given.get("command") else _guessed(url))
        way = _TYPES.get(str(told).lower())
        if way is None:
            raise ValueError(f"type {told!r} is not known; there are stdio, http and sse")
        if not (given.get("command") if way == "stdio" else url):
            raise ValueError("it has neither a command (stdio) nor a url (http, sse)")
        if way != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
            raise ValueError("its url begins with neither http:// nor https://")
        return {**given, "type": way, "url": url}

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
        """What it is given that nobody must read: variables, headers and parts of the url that are called like it."""
        given = [*self.env.items(), *self.headers.items(), *parse_qsl(urlsplit(self.url).query)]
        return [_SCHEME.sub("", value) for name, value in given if _SECRET_NAME.search(name)]

    @property
    def is_free(self) -> bool:
        """Whether it is a program that runs outside of the sandbox."""
        return self.type == "stdio" and not self.sandbox

    def trusts(self, tool: str) -> bool:
        return self.trust if isinstance(self.trust, bool) else matches(tool, self.trust)


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _guessed(url: Any) -> str:
    return "sse" if isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse") else "http"
