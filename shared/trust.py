"""Trust records for configuration files that were only found in a directory.

Such files apply only after the user has reviewed them: their digests are recorded below the user's own configuration
directory, and they apply as long as their bytes are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deputize.shared.errors import Misconfigured
from deputize.shared.log import log
from deputize.shared.wire import now

CONFIG = "deputize.toml"
SERVERS = ("mcp.json", ".mcp.json")
SKILLS = "skills"
MAX_FILE = 1024 * 1024
"""Maximum bytes of one of the files that are looked for by their names."""
_MAX_FILES = 2000
_MAX_BYTES = 32 * 1024 * 1024
_FOLDER = re.compile(r"\$\{(?:env:)?PWD\}|\$\{workspaceFolder\}")
_NAMED_IN_CONFIG = ("mcp_config", "mcp_config_path", "skills_dir", "policy")
HOW = "`deputize trust {folder}` shows it and records that it is yours"
_MAX_RECORDS = 64 * 1024 * 1024
_MAX_TEXT = 64 * 1024
"""Maximum bytes of a file whose text is kept, to show later changes."""


def regular_bytes(path: Path, most: int = MAX_FILE) -> bytes | None:
    """Returns the bytes of a regular file, or None for anything else: a pipe or a device would block.

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
    """Parses TOML. Raises ValueError if it is not valid."""
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def covered(folder: Path) -> dict[str, bytes]:
    """Returns each covered file's bytes by absolute path, read once. Raises Misconfigured over the caps."""
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
        if (real := os.path.realpath(place)) in seen:  # links may form a cycle
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in sorted(names))


def _named_in_config(data: bytes, folder: Path) -> Iterator[Path]:
    try:
        values = toml_of(data)
    except ValueError:
        return
    tools = values.get("tools")
    for table in (values, tools if isinstance(tools, dict) else {}):
        for key in _NAMED_IN_CONFIG:
            value = table.get(key)
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str) and "\0" not in path:
                    yield folder / Path(path).expanduser()


def _named_in_servers(data: bytes, folder: Path) -> Iterator[Path]:
    """Yields the files that a server's program, arguments or directory name: below the folder, or linked from it."""
    try:
        values: Any = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return
    for root in ("mcpServers", "servers"):
        servers = values.get(root) if isinstance(values, dict) else None
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


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """One directory's trust record: digests by path, and the texts at that time."""

    at: datetime
    digests: Mapping[str, str]
    texts: Mapping[str, str]


def configuration_folder(environ: Mapping[str, str]) -> Path:
    """Returns the user's configuration folder: ``$XDG_CONFIG_HOME/deputize``, by default ``~/.config/deputize``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # Without any home it does not exist; it is never a path below the working directory.
    own = Path("/", os.path.expanduser("~"), ".config")  # noqa: PTH111 - the other one raises without a home
    return (Path(base) if base.startswith("/") else own) / "deputize"


class TrustRecords:
    """The trust records of one user, in a file that only this user may write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "trusted.json"

    def of(self, folder: Path) -> TrustRecord | None:
        """Returns a directory's record, or None."""
        kept = self._read().get(_key(folder))
        return _recorded(kept) if isinstance(kept, dict) else None

    def folders(self) -> Sequence[str]:
        return sorted(self._read())

    def held(self, folder: Path) -> Mapping[str, bytes] | None:
        """Returns a trusted directory's files by absolute path, or None if the trust does not hold.

        Use these bytes and do not read the files again: they may have changed by then.
        """
        recorded = self.of(folder)
        if recorded is None:
            return None
        try:
            files = covered(Path(_key(folder)))
        except Misconfigured as error:
            log.warning("the trust in %s does not hold: %s", folder, error)
            return None
        if digests(files) != recorded.digests:
            log.warning("%s has changed since it was trusted; %s", folder, HOW.format(folder=folder))
            return None
        return files

    def record(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Records these bytes as trusted, after the user has reviewed them."""
        texts = {path: text for path, data in files.items() if (text := text_of(data)) is not None}
        kept = {"at": now().isoformat(), "digests": digests(files), "texts": texts}
        self._write({**self._read(), _key(folder): kept})

    def revoke(self, folder: Path) -> bool:
        """Removes a directory's record. Returns whether there was one."""
        kept = self._read()
        was = kept.pop(_key(folder), None) is not None
        if was:
            self._write(kept)
        return was

    def _read(self) -> dict[str, Any]:
        try:
            mode = self._file.stat()
            if mode.st_uid != os.geteuid() or mode.st_mode & 0o022:
                log.warning("%s is not used: others than its user may have written it", self._file)
                return {}
            kept: Any = json.loads(regular_bytes(self._file, _MAX_RECORDS) or b"{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, Misconfigured) as error:
            log.warning("%s is not used: %s", self._file, error)
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, kept: Mapping[str, Any]) -> None:
        """Writes the file atomically."""
        new = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(kept, file)
            new.replace(self._file)
        except OSError as error:
            raise Misconfigured(f"{self._file} cannot be written: {error.strerror}") from None


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}


def text_of(data: bytes) -> str | None:
    """Returns a file's text if it is readable; None for binary and for long files."""
    try:
        return data.decode() if len(data) <= _MAX_TEXT and b"\0" not in data else None
    except UnicodeDecodeError:
        return None


def _key(folder: Path) -> str:
    return os.path.realpath(folder)


def _recorded(kept: Mapping[str, Any]) -> TrustRecord | None:
    try:
        return TrustRecord(datetime.fromisoformat(kept["at"]), dict(kept["digests"]), dict(kept["texts"]))
    except (KeyError, TypeError, ValueError):
        return None
