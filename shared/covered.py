"""What a directory asks this project to obey: the files found in it, and those that they name.

A trust is recorded for exactly these bytes. What the named programs load in turn is not covered.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.errors import Misconfigured

CONFIG = "deputize.toml"
SERVERS = ("mcp.json", ".mcp.json")
SKILLS = "skills"
MAX_FILE = 1024 * 1024
"""Bytes of one of the files that are looked for by their names."""
_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_FOLDER = re.compile(r"\$\{(?:env:)?PWD\}|\$\{workspaceFolder\}")
_NAMED_IN_CONFIG = ("mcp_config", "mcp_config_path", "skills_dir", "policy")


def regular_bytes(path: Path, most: int = MAX_FILE) -> bytes | None:
    """The bytes of a regular file, or None where there is none: a pipe or a device is not waited for.

    Raises Misconfigured for a file that cannot be read or is longer than ``most``.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
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
    """Raises ValueError for what is not TOML."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def covered(folder: Path) -> dict[str, bytes]:
    """By absolute path, each covered file's bytes, read once. Raises Misconfigured where that is too much."""
    files: dict[str, bytes] = {}
    _add(files, folder / SKILLS)
    for name in (CONFIG, *SERVERS):
        _add(files, folder / name)
    if data := files.get(str(folder / CONFIG)):
        for path in _named_in_config(data, folder):
            _add(files, path)
    for path in [each for each in files if each.endswith(".json")]:
        for named in _named_in_servers(files[path], folder):
            _add(files, named)
    return files


def _add(files: dict[str, bytes], path: Path) -> None:
    for each in _below(path) if path.is_dir() else [path]:
        name = os.path.normpath(each)
        if name in files or (data := regular_bytes(each, _MAX_BYTES)) is None:
            continue
        files[name] = data
        if len(files) > _MAX_FILES or sum(map(len, files.values())) > _MAX_BYTES:
            raise Misconfigured(
                f"{path} is too much to trust: more than {_MAX_FILES} files or {_MAX_BYTES >> 20} MiB are named; "
                "name the configuration with --config instead"
            )


def _below(folder: Path) -> Iterator[Path]:
    seen = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        if (real := os.path.realpath(place)) in seen:  # links may lead round
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in sorted(names))


def _named_in_config(data: bytes, folder: Path) -> Iterator[Path]:
    try:
        said = toml_of(data)
    except ValueError:
        return
    tools = said.get("tools")
    for table in (said, tools if isinstance(tools, dict) else {}):
        for key in _NAMED_IN_CONFIG:
            if isinstance(path := table.get(key), str) and "\0" not in path:
                yield folder / Path(path).expanduser()


def _named_in_servers(data: bytes, folder: Path) -> Iterator[Path]:
    """What a server's program, arguments or directory name: below the folder, and files that lead out of it."""
    try:
        said: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return
    for root in ("mcpServers", "servers"):
        servers = said.get(root) if isinstance(said, dict) else None
        for server in servers.values() if isinstance(servers, dict) else ():
            yield from _named_by(server, folder) if isinstance(server, dict) else ()


def _named_by(server: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    arguments = server.get("args")
    words = [server.get("command"), server.get("cwd"), *(arguments if isinstance(arguments, list) else ())]
    for word in words:
        if not isinstance(word, str) or "\0" in word:
            continue
        for part in {word, word.rpartition("=")[2]}:
            path = Path(os.path.normpath(folder / _FOLDER.sub(lambda _: str(folder), part)))
            leads_out = ".." in Path(part).parts and path.is_file()
            if path != folder and (path.is_relative_to(folder) or leads_out):
                yield path
