"""mcp.json: which servers there are. The format is the one that other clients use; what is theirs alone is ignored.

Root key ``mcpServers`` or ``servers``, then by name ``command``, ``args``, ``env``, ``cwd`` or ``url``, ``headers``,
with ``type`` ``stdio``, ``http`` or ``sse``. Our own keys: ``disabled``, ``tools`` (``allow`` and ``deny``: patterns),
``trust`` (true, or patterns: no approval needed), ``sandbox`` (false: outside of it), ``show`` (paths that the sandbox
shows read-only), ``idleSeconds`` (how long a call may go on without a word).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shared.covered import SERVERS, regular_bytes
from shared.errors import Misconfigured
from shared.trust import HOW, TrustRecords
from worker.mcp.expansion import expanded
from worker.sandbox.environment import MOUNT

MAX_BYTES = 1024 * 1024
_FILLED = {"command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "show"}
"""Keys whose texts may hold variables."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"^(Bearer|Basic|Token) ", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
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


@dataclass(frozen=True, slots=True)
class Found:
    """The file that was found. One that nobody named or trusted may have come into the working directory with
    somebody's files: nothing of it is run. ``data`` is what was trusted of it."""

    path: Path
    named: bool
    data: bytes | None = None


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
    """The variables it gets, besides the sandbox's own; nothing else of the worker's environment reaches it (P-17)."""
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    tools: ToolFilter = ToolFilter()
    trust: bool | list[str] = Field(default=False, validation_alias=AliasChoices("trust", "alwaysAllow", "autoApprove"))
    sandbox: bool = True
    show: list[Path] = []
    idle_seconds: float = Field(default=300, gt=0, alias="idleSeconds")

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, written: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in written.items() if value is not None}
        url = given.get("url") or given.get("httpUrl") or given.get("serverUrl") or ""
        told = given.get("type") or ("stdio" if given.get("command") else _guessed(url))
        way = _TYPES.get(str(told).lower())
        if way is None:
            raise ValueError(f"type {told!r} is not known; there are stdio, http and sse")
        if not (given.get("command") if way == "stdio" else url):
            raise ValueError("it has neither a command (stdio) nor a url (http, sse)")
        if way != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
            raise ValueError("its url begins with neither http:// nor https://")
        tools = given.get("tools")
        if not isinstance(tools, dict):  # others list the names of all tools here; to us it means nothing
            tools = {"allow": given.get("includeTools"), "deny": given.get("excludeTools") or []}
        return {**given, "type": way, "url": url, "tools": tools}

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


@dataclass(frozen=True, slots=True)
class Config:
    """The servers that can be tried, in the file's order, and by name what is wrong with the others."""

    servers: Sequence[Server] = ()
    problems: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, found: Found, environ: Mapping[str, str], workspace: Path) -> Self:
        """``workspace`` is where a server outside of the sandbox finds the run's files.

        Raises ``Misconfigured`` where the file as a whole says nothing; one bad server is a problem among others.
        """
        servers: list[Server] = []
        problems: dict[str, str] = {}
        for name, given in _entries(found).items():
            if isinstance(given, dict) and given.get("disabled") is True:
                continue
            try:
                _refuse_unless_named(found)
                servers.append(_server(name, given, environ, workspace))
            except (Misconfigured, ValidationError) as error:
                problems[name] = f"the MCP server {name!r} of {found.path} is left out: {_explained(error)}"
        return cls(servers, problems)


def find_config_file(configured: Path | None, here: Path, own: Path, trusted: Path | None = None) -> Found | None:
    """The file to use: the configured one, else mcp.json or .mcp.json ``here``, else the one in the user's ``own``
    configuration directory (S000-018).

    A relative path is looked for ``here`` and in ``own``. What lies ``here`` or in the directory ``trusted`` is read as
    it was trusted. Raises ``Misconfigured`` for a configured file that is nowhere, or whose trust does not hold.
    """
    records = TrustRecords(own)
    if configured is None:
        lying = next((here / name for name in SERVERS if (here / name).is_file()), None)
        if lying is None or here == own:
            path = lying or own / SERVERS[0]
            return Found(path, named=True) if path.is_file() else None
        data = (records.held(here) or {}).get(str(here.resolve() / lying.name))
        return Found(lying, data is not None, data)
    path = next((path for path in (here / configured, own / configured) if path.is_file()), None)
    if path is None:
        raise Misconfigured(f"MCP config file not found: {configured}")
    if trusted is None or not path.is_relative_to(trusted):
        return Found(path, named=True)
    held = records.held(trusted)
    if held is None or str(path) not in held:
        raise Misconfigured(f"{path} is not used: {trusted} is not trusted as it is now; {HOW.format(folder=trusted)}")
    return Found(path, named=True, data=held[str(path)])


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _entries(found: Found) -> dict[str, Any]:
    path = found.path
    data = regular_bytes(path, MAX_BYTES) if found.data is None else found.data
    try:
        whole = json.loads((data or b"").decode("utf-8-sig"))
    except ValueError as error:
        raise Misconfigured(f"{path} is no JSON: {error}") from None
    for key in ("mcpServers", "servers"):
        if isinstance(whole, dict) and isinstance(whole.get(key), dict):
            return whole[key]
    raise Misconfigured(f'{path} has no servers; it needs {{"mcpServers": {{"name": {{"command": …}}}}}}')


def _server(name: str, given: Any, environ: Mapping[str, str], workspace: Path) -> Server:
    if not isinstance(given, dict):
        raise Misconfigured("it must be an object with a command or a url")
    _refuse_controls([name, given])
    folder = str(workspace) if given.get("sandbox") is False else MOUNT
    filled = {key: expanded(given[key], environ, {"workspaceFolder": folder}) for key in _FILLED & given.keys()}
    return Server.model_validate({**given, **filled, "name": name})


def _refuse_controls(value: Any, where: str = "") -> None:
    """Raises ``Misconfigured`` where a text contains a NUL, or one of ``headers`` a control character: what follows
    would count as another option or header."""
    if isinstance(value, dict):
        for key, part in value.items():
            _refuse_controls(key, where)
            _refuse_controls(part, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for part in value:
            _refuse_controls(part, where)
    elif isinstance(value, str) and ("\0" in value or (where.startswith("headers") and _CONTROL.search(value))):
        raise Misconfigured(f"{where or 'its name'} contains a control character, which is not allowed there")


def _guessed(url: Any) -> str:
    return "sse" if isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse") else "http"


def _refuse_unless_named(found: Found) -> None:
    if not found.named:
        raise Misconfigured(
            "this file was only found in the working directory; name it with DEPUTIZE_MCP_CONFIG if it is yours, or "
            + HOW.format(folder=found.path.parent)
        )


def _explained(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    said = [(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in error.errors()]
    return "; ".join(f"{where}: {what}" if where else what for where, what in said)[:1000]
