"""Interpreters and compilers outside of the system directories, found on PATH or by a virtual environment's links.

A checkout may be hostile, and its links may lead anywhere. So an installation counts only where it has the shape of
one, lies where such installations are kept or where the operator's own PATH leads, and of it only the directories that
belong to its kind are shown.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .host_paths import SYSTEM, homes

_MAX_LINKS = 16
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEPT_IN = (
    *(".pyenv/versions", ".local/share/uv/python", ".local/share/mise/installs", ".asdf/installs"),
    *("miniconda3", "anaconda3", "miniforge3", "mambaforge", ".conda/envs", "micromamba/envs"),
    *(".nvm/versions/node", ".local/share/fnm/node-versions", ".volta/tools/image", ".rustup/toolchains"),
    *(".sdkman/candidates", ".local/go", "sdk", ".rye/py", ".local/share/rtx/installs"),
)
"""Below a home: where version managers keep installations."""
_KEPT_BY_VARIABLE = {
    "PYENV_ROOT": "versions",
    "UV_PYTHON_INSTALL_DIR": "",
    "NVM_DIR": "versions/node",
    "RUSTUP_HOME": "toolchains",
    "CONDA_PREFIX": "",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of installation: files that it must have (patterns), and the parts of it that are shown."""

    marks: tuple[str, ...]
    parts: tuple[str, ...]


_PYTHON = _Kind(("lib/python3*/os.py", "bin/python3"), ("bin", "lib", "lib64", "include"))
_NODE = _Kind(("lib/node_modules/npm", "bin/node"), ("bin", "lib", "include"))
_RUST = _Kind(("lib/rustlib", "bin/rustc"), ("bin", "lib", "libexec"))
_GO = _Kind(("src/runtime", "bin/go", "VERSION"), ("bin", "pkg", "src", "lib", "VERSION", "go.env"))
_JAVA = _Kind(("lib/modules", "bin/java", "release"), ("bin", "lib", "conf", "jmods", "include", "release"))
_PROGRAMS: Mapping[str, _Kind] = {
    "python3": _PYTHON,
    "node": _NODE,
    "cargo": _RUST,
    "go": _GO,
    "java": _JAVA,
}
PROGRAMS = tuple(_PROGRAMS)
"""Programs that are looked for on PATH."""
PATH_VARIABLES = ("PATH", "PYENV_VERSION", "RUSTUP_HOME")
"""The variables by which they are found."""


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation: the names of its prefix (``prefix`` is where they all lead), and its parts."""

    prefix: Path
    names: tuple[Path, ...]
    parts: tuple[str, ...]

    @property
    def bin(self) -> str:
        return str(self.names[0] / "bin")


def python_of(venv: Path) -> Installation | None:
    """Returns the installation that a virtual environment was made from.

    None if it is complete in the system, or where this user cannot look.
    """
    names = [Path(home).parent for home in _settings_of(venv).get("home", "").splitlines() if home.startswith("/")]
    with suppress(OSError):
        program, names = _followed(venv / "bin/python", names)
        if program.is_relative_to(venv.resolve()):  # made with --copies
            program, names = _followed(names[0] / "bin/python3", names) if names else (program, names)
        return _installation(program, _PYTHON, [name for name in names if not name.is_relative_to(venv.parent)])
    return None


def pinned_version(source: Path | None) -> str:
    """Returns the version of Python that a project names for pyenv; "" if none."""
    return _first_word(source / ".python-version") if source else ""


def on_path(environ: Mapping[str, str], pinned: str = "") -> Iterator[Installation]:
    """Yields the installations that PATH leads to and the system directories lack.

    ``pinned`` is the project's version of Python. Of the variables only ``PATH_VARIABLES`` count.
    """
    folders = [Path(part) for part in environ.get("PATH", "").split(":") if part.startswith("/")]
    for name, kind in _PROGRAMS.items():
        for folder in folders:
            if _is_below(folder, SYSTEM):
                if os.access(folder / name, os.X_OK):
                    break
                continue
            if found := _of_program(folder / name, kind, environ, pinned):
                yield found
                break


def is_kept(found: Installation, environ: Mapping[str, str], known: Iterable[Installation]) -> bool:
    """Returns whether it lies where installations are kept, in one that PATH leads to, or in this process's own."""
    folders = [home / name for home in homes() for name in _KEPT_IN]
    folders += [Path(base, below) for name, below in _KEPT_BY_VARIABLE.items() if (base := environ.get(name, ""))]
    folders += [Path("/opt"), Path(sys.base_prefix)]
    folders += [each.prefix for each in known]
    return any(found.prefix.is_relative_to(folder.resolve()) for folder in folders if folder.is_absolute())


def _of_program(program: Path, kind: _Kind, environ: Mapping[str, str], pinned: str) -> Installation | None:
    """Returns the installation that a program leads to, if it is one; None where this user cannot look."""
    with suppress(OSError):  # PATH may name another user's directories, as after `su`; or it is just being removed
        program, names = _followed(_managed(program, environ, pinned), [])
        return _installation(program, kind, names) if os.access(program, os.X_OK) else None
    return None


def _installation(program: Path, kind: _Kind, names: list[Path]) -> Installation | None:
    """Returns the installation of a program, without links on its way, if it has the shape of its kind."""
    prefix = program.parent.parent
    if program.parent.name != "bin" or _is_below(prefix, SYSTEM) or prefix == Path("/"):
        return None
    if (prefix / "pyvenv.cfg").exists() or not all(any(prefix.glob(mark)) for mark in kind.marks):
        return None
    # A part that is a link would show the directory that it leads to.
    parts = tuple(part for part in kind.parts if (prefix / part).exists() and not (prefix / part).is_symlink())
    known = dict.fromkeys(name for name in (*names, prefix) if name.resolve() == prefix)
    return Installation(prefix, tuple(known), parts)


def _followed(program: Path, names: list[Path]) -> tuple[Path, list[Path]]:
    """Follows the links of a program. Returns where they end, and the prefixes that they name on the way."""
    names = [*names]
    for _ in range(_MAX_LINKS):
        names.append(program.parent.parent)
        if not program.is_symlink():
            break
        program = Path(os.path.normpath(program.parent / program.readlink()))
    return program.resolve(), [name for name in names if ".." not in name.parts]


def _managed(program: Path, environ: Mapping[str, str], pinned: str) -> Path:
    """Returns the program that a version manager's stand-in would start; others as they are."""
    root = program.parent.parent
    if program.parent.name == "shims" and (root / "versions").is_dir():
        for version in (_first_word(environ.get("PYENV_VERSION", "")), pinned, _first_word(root / "version")):
            if version and (root / "versions" / version / "bin" / program.name).exists():
                return root / "versions" / version / "bin" / program.name
    if program.resolve().name == "rustup":
        home = Path(environ.get("RUSTUP_HOME") or program.parent.parent.with_name(".rustup"))
        with suppress(OSError, ValueError):
            name = tomllib.loads((home / "settings.toml").read_text("utf-8")).get("default_toolchain", "")
            if isinstance(name, str) and _VERSION.fullmatch(name):
                return home / "toolchains" / name / "bin" / program.name
    return program


def _first_word(text: str | Path) -> str:
    """Returns the first version in a text or a file; "" for anything that is not one."""
    if isinstance(text, Path):
        try:
            with open(text, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                text = file.read(1000).decode("ascii", "replace")
        except OSError:
            text = ""
    word = next(iter(text.replace(":", " ").split()), "")
    return word if _VERSION.fullmatch(word) else ""


def _settings_of(venv: Path) -> dict[str, str]:
    try:
        lines = (venv / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def _is_below(path: Path, roots: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
