"""mcp.json: the configured servers, in the format of other clients. Keys without effect are reported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from ...shared.errors import Misconfigured
from ...shared.settings.files import regular_bytes
from ..sandbox.environment import MOUNT
from .entry import Server, without_effect

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_REMARKS = 10
_FILLED = {"command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "show"}
"""Keys whose strings may contain variables."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def expanded(value: Any, variables: Mapping[str, str], places: Mapping[str, str]) -> Any:
    """Returns the value with ``${VAR}``, ``${VAR:-default}`` and ``${env:VAR}`` replaced in all strings, at any depth.

    ``places`` are names that are not variables, such as ``workspaceFolder``. Raises ``Misconfigured`` naming a
    variable that is not set: a server that got the literal text instead would fail in ways that are hard to diagnose.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _meant(found[1], variables, places), value)
    if isinstance(value, list):
        return [expanded(part, variables, places) for part in value]
    if isinstance(value, dict):
        return {name: expanded(part, variables, places) for name, part in value.items()}
    return value


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
        for name, given in _entries(path).items():
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


def server_names(path: Path) -> list[str]:
    """Returns the names of all servers in the file, also of those that are switched off. Raises ``Misconfigured``."""
    return [*_entries(path)]


def _entries(path: Path) -> dict[str, Any]:
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
