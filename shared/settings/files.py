"""``deputize.toml``: the named file, the user's own, and the harmless keys of one in the working directory.

The file is the first of ``--config``, ``DEPUTIZE_CONFIG`` and the user's own. Where neither of the first two is given,
one in the working directory counts as well: its harmless keys, and all of it where its directory is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deputize.shared.errors import Misconfigured
from deputize.shared.log import log
from deputize.shared.request import Limits
from deputize.shared.text import visible
from deputize.shared.trust import (
    CONFIG,
    HOW,
    SERVERS,
    SKILLS,
    TrustRecords,
    configuration_folder,
    regular_bytes,
    toml_of,
)

_MAX_MODEL = 200


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The files' settings. ``trusted`` is the directory whose files apply because their trust record holds."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    trusted: Path | None = None


def read(config: Path | None, environ: Mapping[str, str], caps: Limits, paths: Set[str]) -> FileSettings:
    """Returns the settings of all files that apply.

    Args:
        config: The file that the command line names.
        environ: The variables that may name another one, and the user's own configuration folder.
        caps: Limits that a found file cannot raise.
        paths: Names of the settings that are paths.

    Raises:
        Misconfigured: A named file, or the user's own, cannot be read.
    """
    named = config or (Path(environ["DEPUTIZE_CONFIG"]) if environ.get("DEPUTIZE_CONFIG") else None)
    if named:
        return FileSettings(_parsed(_bytes_of(named), named, paths))
    own_folder = configuration_folder(environ)
    own = own_folder / CONFIG
    values = _parsed(regular_bytes(own) or b"", own, paths)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return FileSettings(values)
    if here == own_folder:
        return FileSettings(values)
    if (files := TrustRecords(own_folder).held(here)) is not None:
        return FileSettings({**values, **_of_trusted(files, here, paths)}, here)
    return FileSettings({**values, **_found(here, values, caps)})


def _bytes_of(named: Path) -> bytes:
    try:
        return named.read_bytes()
    except FileNotFoundError:
        raise Misconfigured(f"the configuration file {named} does not exist") from None
    except OSError as error:
        raise Misconfigured(f"the configuration file {named} cannot be read: {error.strerror}") from None


def _parsed(data: bytes, path: Path, paths: Set[str]) -> dict[str, Any]:
    """Returns a file's values; its relative paths are relative to its own directory."""
    try:
        values = toml_of(data)
    except ValueError as error:
        raise Misconfigured(f"the configuration file {path} cannot be read: {error}") from None
    if nul := next((key for key, value in values.items() if "\0" in str(value)), None):
        raise Misconfigured(f"the configuration file {path} contains a NUL character in {nul}")
    folder = path.absolute().parent
    if isinstance(rules := values.get("policy"), str):
        values["policy"] = [rules]  # only a variable separates paths by colons
    for table in _tables_of(values):
        table |= {key: _from(folder, table[key]) for key in paths if table.get(key)}
    return values


def _tables_of(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the tables in which paths may be."""
    sandbox = values.get("sandbox")
    profiles = sandbox.get("profiles") if isinstance(sandbox, dict) else None
    in_profiles = profiles.values() if isinstance(profiles, dict) else ()
    tables = (values, values.get("tools"), sandbox, values.get("redis"), *in_profiles)
    yield from (table for table in tables if isinstance(table, dict))


def _from(folder: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_from(folder, each) for each in value]
    return str(folder / Path(value).expanduser()) if isinstance(value, str) else value


def _of_trusted(files: Mapping[str, bytes], folder: Path, paths: Set[str]) -> dict[str, Any]:
    """Returns all settings of a trusted directory's files, with the servers and skills beside them."""
    values = _parsed(files.get(str(folder / CONFIG), b""), folder / CONFIG, paths)
    tools = values.get("tools")
    tools = tools if isinstance(tools, dict) else {}
    servers = next((path for name in SERVERS if (path := str(folder / name)) in files), None)
    if servers and not (values.get("mcp_config") or tools.get("mcp_config_path")):
        values["mcp_config"] = servers
    skills = str(folder / SKILLS)
    if any(path.startswith(f"{skills}/") for path in files) and not (
        values.get("skills_dir") or tools.get("skills_dir")
    ):
        values["skills_dir"] = skills
    return values


def _found(folder: Path, own: Mapping[str, Any], caps: Limits) -> dict[str, Any]:
    """Returns the settings that apply from a file that was only found; logs a warning for the rest."""
    path = folder / CONFIG
    try:
        data = regular_bytes(path)
        values = {} if data is None else toml_of(data)
    except (Misconfigured, ValueError) as error:
        log.warning("%s was only found here and is ignored: %s", path, visible(str(error)))
        return {}
    kept = {key: value for key in values if (value := _harmless(key, values[key], own, caps)) is not None}
    if ignored := [visible(key) for key in values if key not in kept][:20]:
        log.warning(
            "%s was only found here, so these of its keys are ignored: %s. %s; or name the file with --config",
            *(path, ", ".join(ignored), HOW.format(folder=folder)),
        )
    return kept


def _harmless(key: str, value: Any, own: Mapping[str, Any], caps: Limits) -> Any:
    """Returns the value as it applies from a found file, or None if it does not apply."""
    match key, value:
        case "model", str() if value.isprintable() and len(value) <= _MAX_MODEL and not value.startswith("scripted:"):
            return value
        case "context_tokens", int() if value >= 1000:
            return value
        case "agents", dict():
            return _harmless_agents(value, own.get("agents"), caps)
        case "caps", dict():
            return _lowered(value, own.get("caps"), caps)
        case _:
            return None


def _harmless_agents(found: dict[str, Any], own: Any, caps: Limits) -> dict[str, Any] | None:
    """Returns the found agents without tools, approval mode and sandbox, beside the user's own, which stay."""
    own_agents = own if isinstance(own, dict) else {}
    kept = {
        name: agent
        for name, agent in found.items()
        if isinstance(agent, dict)
        and agent.keys() <= {"description", "system_prompt", "model", "limits"}
        and ("model" not in agent or _harmless("model", agent["model"], {}, caps) is not None)
    }
    if ignored := [visible(name) for name in found if name not in kept or name in own_agents][:20]:
        log.warning("agents that were only found here, with rights or under a name of yours, are ignored: %s", ignored)
    return {**kept, **own_agents} or None


def _lowered(found: dict[str, Any], own: Any, caps: Limits) -> dict[str, Any] | None:
    """Returns limits that nowhere exceed the user's own; None if they are not valid limits."""
    try:
        roof = Limits.model_validate({**caps.model_dump(), **(own if isinstance(own, dict) else {})})
        return Limits.model_validate({**roof.model_dump(), **found}).capped(roof).model_dump()
    except ValidationError:
        return None
