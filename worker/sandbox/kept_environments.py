"""Virtual environments that tools make for a project: Poetry, Pipenv, virtualenvwrapper, Hatch, tox and nox.

A checkout may be hostile, so nothing in it may name the environment of another project. One outside of it counts only
where its own path has the digest of the project's path, or a file in it has that path.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from .environment import homes

_MOST = 2000
"""Environments of one folder that are looked at."""
_MAX_PATH = 4096
_OF_TESTS = re.compile(r"(?:py|test|default|unit)")


def is_environment(path: Path) -> bool:
    """Whether a directory is a virtual environment; a link to one does not count."""
    return not path.is_symlink() and (path / "pyvenv.cfg").is_file() and os.path.lexists(path / "bin/python")


def inside(project: Path) -> str | None:
    """Returns the environment that tox or nox made below the project, relative to it; of several one for tests, and of
    these the newest.
    """
    found = [each for name in (".nox", ".tox") if not (project / name).is_symlink() for each in _in(project / name)]
    found = [each for each in found if is_environment(each)]
    best = max(found, key=lambda each: (bool(_OF_TESTS.match(each.name)), _made(each)), default=None)
    return str(best.relative_to(project)) if best else None


def outside(project: Path, environ: Mapping[str, str]) -> Path | None:
    """Returns the newest environment that a tool keeps elsewhere for a project; ``project`` has no links in it."""
    found = {each.resolve() for each in _kept_for(project, environ) if is_environment(each)}
    return max(found, key=_made, default=None)


def _kept_for(project: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(os.fsencode(project)).digest()).decode()[:8]
    caches = _folders(environ, "XDG_CACHE_HOME", ".cache")
    data = _folders(environ, "XDG_DATA_HOME", ".local/share")
    cache = environ.get("POETRY_CACHE_DIR")
    poetry = [Path(cache)] if cache else [each / "pypoetry" for each in caches]
    poetry = _named(environ, "POETRY_VIRTUALENVS_PATH") or [each / "virtualenvs" for each in poetry]
    for folder in poetry:
        yield from (each for each in _in(folder) if f"-{digest}-py" in each.name)
    hatch = _named(environ, "HATCH_DATA_DIR") or [each / "hatch" for each in data]
    for folder in hatch:
        for of_project in _in(folder / "env/virtual"):
            yield from _in(of_project / digest)
    others = _named(environ, "WORKON_HOME") or [each / "virtualenvs" for each in data]
    for folder in (*others, *(home / ".virtualenvs" for home in homes())):
        yield from (each for each in _in(folder) if _first_line(each / ".project") == str(project))


def _named(environ: Mapping[str, str], name: str) -> list[Path]:
    return [Path(environ[name])] if environ.get(name, "").startswith("/") else []


def _folders(environ: Mapping[str, str], name: str, usual: str) -> list[Path]:
    return _named(environ, name) or [home / usual for home in homes()]


def _in(folder: Path) -> list[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in islice(entries, _MOST)]
    return []


def _made(environment: Path) -> float:
    with suppress(OSError):
        return (environment / "pyvenv.cfg").stat().st_mtime
    return 0.0


def _first_line(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return os.fsdecode(file.read(_MAX_PATH)).strip()
    return ""
