"""The servers of mcp.json, and the names of their tools."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ...shared.errors import Misconfigured
from ...shared.fleet import MCP
from ...shared.settings.files import regular_bytes
from ...shared.text import did_you_mean, mapped
from ..sandbox.environment import MOUNT

MAX_NAME = 64
_DIGEST = 8
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.IGNORECASE)
_ARGUMENTS = re.compile(r"(?<=.)\(.*\)\s*$")
_SCHEME = re.compile(r"^(Bearer|Basic|Token) ", re.IGNORECASE)
_TYPES = {"stdio": "stdio", "http": "http", "streamablehttp": "http", "sse": "sse"}
"""By the spellings of other clients, in lower case and without - and _."""
_LISTS = {"includeTools": "allow", "excludeTools": "deny"}
"""Keys of other clients, and their names in ``tools``."""
_LIMITING = re.compile(
    r"(?:included?|excluded?|disabled?|enabled?|allow(?:ed)?|deny|denied|block(?:ed)?)_?tools?", re.IGNORECASE
)
"""Keys that would limit a server's tools, in whatever spelling: without effect, they would offer what was excluded."""
_LEAST_MILLISECONDS = 1000
"""A ``timeout`` of this value or more is in milliseconds, as in other clients."""
_FOR_PEOPLE = {"title", "description", "icon", "gallery", "version", "tags", "homepage", "$schema"}
"""Keys that have no effect anywhere."""


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


def _seconds(default: float | None, *names: str) -> Any:
    return Field(default=default, gt=0, allow_inf_nan=False, validation_alias=AliasChoices(*names))


class Server(BaseModel):
    """One server of the file, with all variables expanded. Some keys may have the names of other clients."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    type: Literal["stdio", "http", "sse"]
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    """Its variables, besides the sandbox's own; it inherits nothing else of the worker's environment."""
    cwd: str | None = None
    url: str = Field(default="", validation_alias=AliasChoices("url", "httpUrl"))
    headers: dict[str, str] = {}
    disabled: bool = False
    tools: ToolFilter = ToolFilter()
    trust: bool | list[str] = False
    sandbox: bool = True
    show: list[Path] = []
    connect_seconds: float | None = _seconds(None, "connectSeconds", "connect_timeout")
    """How long the run waits for it to connect and to list its tools; null is the worker's own setting."""
    call_seconds: float | None = _seconds(None, "callSeconds", "execute_timeout", "timeout")
    """How long one call may take in all; null means no limit of its own."""
    idle_seconds: float = _seconds(300, "idleSeconds", "sse_read_timeout")
    """How long a call may go on without a message from the server; by default as long as ``call_seconds``, if set."""

    @model_validator(mode="before")
    @classmethod
    def _with_own_forms(cls, written: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in written.items() if value is not None}
        for key in filter(_LIMITING.fullmatch, given.keys() - _LISTS):
            raise ValueError(f"its key {key} is not known, and would limit its tools; use tools.allow or tools.deny")
        url = given.get("url") or given.get("httpUrl") or ""
        ends_so = isinstance(url, str) and urlsplit(url).path.rstrip("/").endswith("/sse")
        named = given.get("type") or ("stdio" if given.get("command") else "sse" if ends_so else "http")
        way = _TYPES.get(re.sub("[-_]", "", str(named).lower()))
        if way is None:
            raise ValueError(f"type {named!r} is not known; there are stdio, http and sse")
        if not (given.get("command") if way == "stdio" else url):
            raise ValueError("it has neither a command (stdio) nor a url (http, sse)")
        if way != "stdio" and urlsplit(str(url)).scheme not in ("http", "https"):
            raise ValueError("its url begins with neither http:// nor https://")
        if isinstance(tools := given.get("tools", {}), list):
            given["tools"] = {"allow": tools}
        elif isinstance(tools, dict):
            given["tools"] = {name: given[key] for key, name in _LISTS.items() if key in given} | tools
        if isinstance(limit := given.get("timeout"), int | float) and limit >= _LEAST_MILLISECONDS:
            given["timeout"] = limit / 1000
        for key in _names_of("call_seconds"):
            if key in given:
                given.setdefault("idleSeconds", given.get("sse_read_timeout", given[key]))
        return {**given, "type": way}

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
    def secrets(self) -> list[str]:
        """Returns the values to hide in logs: variables, headers and URL parts with names of secrets."""
        given = [*self.env.items(), *self.headers.items(), *parse_qsl(urlsplit(self.url).query)]
        return [_SCHEME.sub("", value) for name, value in given if _SECRET_NAME.search(name)]

    def trusts(self, tool: str) -> bool:
        return self.trust if isinstance(self.trust, bool) else matches(tool, self.trust)


def _names_of(name: str) -> Sequence[str]:
    """Returns the keys of a field of a server."""
    alias = Server.model_fields[name].validation_alias
    return [str(key) for key in alias.choices] if isinstance(alias, AliasChoices) else [name]


def without_effect(given: Mapping[str, Any]) -> Iterator[str]:
    """Yields a message for each key without effect."""
    tools = given.get("tools")
    for key in tools.keys() - ToolFilter.model_fields if isinstance(tools, dict) else ():
        yield f"its key tools.{key[:100]} is not known and has no effect; there are allow and deny"
    known = {"enabled", *_LISTS, *(key for name in Server.model_fields for key in _names_of(name))}
    for key in given:
        if key not in known | _FOR_PEOPLE and not key.startswith(("_", "//", "x-")):
            near = did_you_mean(key[:100], known, 1, cutoff=0.6)
            yield f"its key {key[:100]} is not known and has no effect" + (f"; {near}" if near else "")


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_REMARKS = 10
_FILLED = {"command", "args", "env", "cwd", "url", "httpUrl", "headers", "show"}
"""Keys whose strings may contain variables."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def expanded(value: Any, variables: Mapping[str, str], places: Mapping[str, str]) -> Any:
    """Returns the value with ``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}`` replaced in all strings, at any depth.

    ``places`` are names that are not variables, such as ``workspaceFolder``. Raises ``Misconfigured`` naming a
    variable that is not set: a server that got the literal text instead would fail in ways that are hard to diagnose.
    """
    return mapped(value, lambda text: _REFERENCE.sub(lambda found: _meant(found[1], variables, places), text))


def _meant(inside: str, variables: Mapping[str, str], places: Mapping[str, str]) -> str:
    if inside.startswith("input:"):
        raise Misconfigured(
            f"${{{inside}}} asks a person, which is not possible here; write ${{VARIABLE}} and set it for the worker"
        )
    if inside in places:
        return places[inside]
    name, has_default, default = inside.removeprefix("env:").partition(":-")
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"${{{inside}}} is not understood; there are ${{VAR}}, ${{VAR:-default}} and ${{env:VAR}}")
    if value := variables.get(name):
        return value
    if has_default:
        return default
    if name in variables:
        return ""
    raise Misconfigured(f"the variable {name} is not set; set it for the worker, or write ${{{name}:-default}}")


@dataclass(frozen=True, slots=True)
class Config:
    """The valid servers, in the file's order, and the errors of the others by name."""

    servers: Sequence[Server] = ()
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    remarks: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By server name: messages about keys without effect."""

    @classmethod
    def read(cls, path: Path, environ: Mapping[str, str], workspace: Path) -> Self:
        """Reads the file. ``workspace`` is the directory of the run's files outside of the sandbox.

        Raises ``Misconfigured`` if the file as a whole is invalid; one invalid server is listed in ``problems``.
        """
        servers: list[Server] = []
        problems: dict[str, str] = {}
        remarks: dict[str, Sequence[str]] = {}
        for name, given in entries(path).items():
            if isinstance(given, dict) and (given.get("disabled") is True or given.get("enabled") is False):
                continue
            try:
                server = _server(name, given, environ, workspace)
                if not server.disabled:
                    servers.append(server)
                    messages = [*without_effect(given)][:_MAX_REMARKS]
                    remarks[name] = [f"the MCP server {name!r} of {path}: {each}" for each in messages]
            except (Misconfigured, ValidationError) as error:
                problems[name] = f"the MCP server {name!r} of {path} is left out: {_explained(error)}"
        return cls(servers, problems, remarks)


def find_config_file(configured: Path | None, here: Path, own: Path) -> Path | None:
    """Returns the file to use: the configured one, else the one in the user's ``own`` configuration directory, if any.

    A relative path is searched ``here`` and in ``own``. A file that merely lies ``here`` is not used: it may have come
    with a repository that is not trusted. Raises ``Misconfigured`` for a configured file that is missing.
    """
    if configured is None:
        return path if (path := own / "mcp.json").is_file() else None
    path = next((path for path in (here / configured, own / configured) if path.is_file()), None)
    if path is None:
        raise Misconfigured(f"MCP config file not found: {configured}")
    return path


def entries(path: Path) -> dict[str, Any]:
    """Returns all servers of the file by name, also those that are switched off. Raises ``Misconfigured``."""
    data = regular_bytes(path) or b""
    try:
        whole = json.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise Misconfigured(f"{path} is not valid JSON: {error}") from None
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
    """Raises ``Misconfigured`` for a string with a NUL, or a header with a control character: the rest would be
    parsed as another option or header."""
    if isinstance(value, dict):
        for key, part in value.items():
            _refuse_controls(key, where)
            _refuse_controls(part, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for part in value:
            _refuse_controls(part, where)
    elif isinstance(value, str) and ("\0" in value or (where.startswith("headers") and _CONTROL.search(value))):
        raise Misconfigured(f"{where or 'its name'} contains a control character, which is not allowed there")


def _explained(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    messages = [(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in error.errors()]
    return "; ".join(f"{where}: {what}" if where else what for where, what in messages)[:1000]
