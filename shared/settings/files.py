"""``deputize.toml``: the first of ``--config``, ``DEPUTIZE_CONFIG`` and the user's own, and how such files are read.

One that merely lies in the working directory is not used: it may have come with a repository that is not trusted.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from ..errors import Misconfigured

_MAX_FILE = 1024 * 1024
_NOT_WAITING = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read(config: Path | None, environ: Mapping[str, str], paths: Set[str]) -> dict[str, Any]:
    """Returns the settings of the file that applies.

    Args:
        config: The file that the command line names.
        environ: The variables that may name another one, and the user's own configuration folder.
        paths: Names of the settings that are paths.

    Raises:
        Misconfigured: The file cannot be read.
    """
    named = config or (Path(environ["DEPUTIZE_CONFIG"]) if environ.get("DEPUTIZE_CONFIG") else None)
    if named:
        return _parsed(_bytes_of(named), named, paths)
    own = configuration_folder(environ) / "deputize.toml"
    return _parsed(regular_bytes(own) or b"", own, paths)


def configuration_folder(environ: Mapping[str, str]) -> Path:
    """Returns the user's configuration folder: ``$XDG_CONFIG_HOME/deputize``, by default ``~/.config/deputize``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # Without any home it does not exist; it is never a path below the working directory.
    own = Path("/", os.path.expanduser("~"), ".config")  # noqa: PTH111 - the other one raises without a home
    return (Path(base) if base.startswith("/") else own) / "deputize"


def regular_bytes(path: Path, most: int = _MAX_FILE) -> bytes | None:
    """Returns the bytes of a regular file, or None for anything else: a pipe or a device would block.

    Raises Misconfigured for a file that cannot be read or has more than ``most`` bytes.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NOT_WAITING)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise Misconfigured(f"{path} is larger than {most} bytes")
    return data


def toml_of(data: bytes) -> dict[str, Any]:
    """Parses TOML. Raises ValueError if it is not valid."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
