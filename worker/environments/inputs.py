"""The inputs of an environment: the files that its set-up sees, and the digest that names what it makes of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...shared.errors import ToolError
from ...shared.libc import beneath, closing_fd
from ...shared.settings.environments import EnvironmentSettings
from ..sandbox.environment import owner
from ..sandbox.project_tools import ProjectTools
from ..search.glob_pattern import GlobPattern, GlobState
from ..threads import give_way

_FORMAT = "1"
"""A part of each digest: raised where an older version could not use what is kept."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WILD = re.compile(r"[*?\[\]{}\\]")
_CHUNK = 1 << 20
_DIGITS = 20
_SYSTEM = ("/etc/os-release", "/usr/lib/os-release")


def input_files(base: int, patterns: Sequence[str]) -> list[str]:
    """Returns the regular files below an open directory that the patterns name, sorted; links are left out.

    Directories are only listed where a pattern can match below them.
    """
    plain = [pattern for pattern in patterns if not _WILD.search(pattern)]
    found = {path for path in plain if _is_file(base, path)}
    with suppress(ToolError):  # too many alternatives in braces
        states = [GlobPattern(pattern).at() for pattern in patterns if _WILD.search(pattern)]
        found.update(_matching(base, "", states))
    return sorted(found)


def _is_file(base: int, path: str) -> bool:
    with suppress(OSError), closing_fd(beneath(base, path, _FILE, links=False)) as fd:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    return False


def _matching(folder: int, above: str, states: Sequence[GlobState]) -> Iterator[str]:
    if not states:
        return
    with os.scandir(folder) as entries:
        found = [*entries]
    for entry in found:
        give_way()
        if entry.is_file(follow_symlinks=False) and any(state.fits(entry.name) for state in states):
            yield above + entry.name
        elif entry.is_dir(follow_symlinks=False) and entry.name != ".git":
            inner = [inside for state in states if not (inside := state.inside(entry.name)).is_over]
            if inner:
                with closing_fd(os.open(entry.name, _FOLDER, dir_fd=folder)) as fd:
                    yield from _matching(fd, f"{above}{entry.name}/", inner)


def digest_of(name: str, table: EnvironmentSettings, base: int, files: Sequence[str], tools: ProjectTools) -> str:
    """Returns the digest of all that decides about the result: the table, the inputs, the machine and its programs."""
    fixed = {
        "format": _FORMAT,
        "name": name,
        "setup": table.setup,
        "variables": table.variables,
        "secrets": sorted(table.secrets),
        "show": [str(path) for path in table.show],
        "path": tools.path,
        "machine": [platform.machine(), *(_text(path) for path in _SYSTEM)],
    }
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode())
    for path in files:
        give_way()
        with closing_fd(beneath(base, path, _FILE, links=False)) as fd:
            is_program = bool(os.fstat(fd).st_mode & stat.S_IXUSR)
            inner = hashlib.sha256()
            while data := os.read(fd, _CHUNK):
                inner.update(data)
        digest.update(b"\0%s\0%d\0%s" % (os.fsencode(path), is_program, inner.digest()))
    return digest.hexdigest()[:_DIGITS]


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text("utf-8", "replace")
    return ""


def copy_inputs(base: int, files: Sequence[str], target: Path) -> None:
    """Copies the files into a new directory, for the user of commands."""
    ids = owner()
    for path in files:
        give_way()
        place = target / path
        for above in reversed([each for each in place.parents if each.is_relative_to(target)]):
            if not above.exists():
                above.mkdir(mode=0o755)
                if ids:
                    os.chown(above, *ids)
        with closing_fd(beneath(base, path, _FILE, links=False)) as source, place.open("xb") as file:
            while data := os.read(source, _CHUNK):
                file.write(data)
            os.fchmod(file.fileno(), 0o755 if os.fstat(source).st_mode & stat.S_IXUSR else 0o644)
            if ids:
                os.fchown(file.fileno(), *ids)
