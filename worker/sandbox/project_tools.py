"""What commands of one run find besides the system: the project's own environment, toolchains, and shown paths.

The project's folder is the one that the workspace was copied from. Its virtual environment and ``node_modules`` are
shown read-only where the copy lacks them. Without an environment of its own it is the one that a tool keeps elsewhere.
The copy itself also appears at the folder's own path, so that editable installs and the first lines of scripts, which
name that path, lead to the copy.

Interpreters and compilers outside of the system directories are found on PATH or by a virtual environment's links. A
checkout may be hostile, and its links may lead anywhere. So an installation counts only where it has the shape of one,
lies where such installations are kept or where the operator's own PATH leads, and of it only the directories that
belong to its kind are shown.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...shared.errors import Misconfigured
from ...shared.settings import Settings, environment
from .environment import (
    MOUNT,
    SANDBOX_OWN,
    SYSTEM,
    BindMount,
    homes,
    is_below,
    refusal_reason,
    secret_places,
    secrets_in,
)
from .kept_environments import inside, is_environment, outside
from .layers import Layer
from .services import Service

VENVS = (".venv", "venv", "env")
"""Names of a project's virtual environment."""
_PACKAGES = "node_modules"
_KNOWN_SECONDS = 3
"""Seconds after which PATH is looked through again. That takes milliseconds, and hundreds of runs may start at once."""
_one_search = threading.Lock()
"""The others wait for the thread that looks through PATH."""
_known: dict[tuple[tuple[tuple[str, str], ...], str, tuple[Path, ...], int], _Judged] = {}
"""What it found, by what it depends on, and the period."""
_MAX_LINKS = 16
_MAX_SETTINGS = 1 << 16
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
class ProjectTools:
    """Mounts, PATH and variables for the commands of one run."""

    mounts: tuple[BindMount, ...] = ()
    path: tuple[str, ...] = ()
    """Directories that come before the system's on PATH."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    alias: str | None = None
    """A further path of the workspace."""
    dependencies: Mapping[str, BindMount] = field(default_factory=dict[str, BindMount])
    """Directories of the project, by name, that are shown where the workspace lacks them."""
    shown: tuple[Path, ...] = ()
    """Directories that the operator shows."""
    layers: tuple[Layer, ...] = ()
    """What was prepared for the runs of an environment."""
    overlays: bool = False
    """Whether commands may write over it."""
    maintenance: str = ""
    """A script that is run before the commands of a run, and before each check."""
    services: tuple[Service, ...] = ()
    """What runs beside the commands of a run, and beside each check."""
    notes: tuple[str, ...] = ()
    """Sentences about what was found and is not shown."""

    def folder_for_changes(self, folder: Path) -> Path | None:
        """Returns the folder, made where needed, for what commands write over the layers; None where they may not."""
        if not self.layers or not self.overlays:
            return None
        folder.mkdir(mode=0o755, exist_ok=True)
        return folder

    def missing(self, workspace: Path) -> list[tuple[BindMount, list[str]]]:
        """Returns the mounts of what the workspace lacks, with the paths at which each is to appear."""
        return [
            (mount, [f"{MOUNT}/{name}"] + [mount.target] * (not is_below(mount.source, SANDBOX_OWN)))
            for name, mount in self.dependencies.items()
            if _is_missing(workspace / name) and _can_have(workspace, Path(name).parent)
        ]


def _can_have(workspace: Path, folder: Path) -> bool:
    """Whether a mount can be made in this folder: a link of the run's making would lead it elsewhere."""
    path = workspace / folder
    return folder == Path() or (not path.is_symlink() and (path.is_dir() or not path.exists()))


NO_TOOLS = ProjectTools()


def tools_for(settings: Settings, source: Path | None) -> ProjectTools:
    """Returns what the settings let commands find that work on a copy of ``source``. Reads the file system."""
    show = [path for path in settings.sandbox.show if not _unreadable(path)]
    source, environ = (source, environment()) if settings.sandbox.find_tools else (None, {})
    return find_tools(source, environ, show, settings.private)


def check_shown(settings: Settings) -> None:
    """Raises Misconfigured for a path, of the sandbox or of a profile, that does not exist or must not be shown."""
    private, sandbox = settings.private, settings.sandbox
    shown_paths(sandbox.show, private)
    for name, profile in sandbox.profiles.items():
        shown_paths(profile.show, private, f"sandbox.profiles.{name}.show")


def shown_paths(paths: Sequence[Path], private: Iterable[Path], setting: str = "sandbox.show") -> list[BindMount]:
    """Returns the mounts of the paths that the setting names.

    Raises Misconfigured for a path that does not exist, cannot be read or must not be shown.
    """
    secrets = secret_places(private) if paths else ()
    for path in paths:
        if why := _unreadable(path):
            raise Misconfigured(f"{setting} names {path}, which {why}; correct or remove it")
        if why := refusal_reason(path, secrets) or refusal_reason(Path(os.path.normpath(path)), secrets):
            raise Misconfigured(
                f"{setting} names {path}, which is never shown: {why}; name the needed directories in it"
            )
    return [
        BindMount(f"show-{number}", path, os.path.normpath(path))
        for number, path in enumerate(paths)
        if not is_below(path, SYSTEM)
    ]


def _unreadable(path: Path) -> str | None:
    """Returns why the worker cannot read the path, or None."""
    try:
        needed = os.R_OK | os.X_OK * stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        return f"cannot be read here ({error.strerror})"
    return None if os.access(path, needed) else f"user {os.geteuid()} may not read"


def find_tools(
    source: Path | None, environ: Mapping[str, str], show: Sequence[Path], private: Sequence[Path]
) -> ProjectTools:
    """Finds the tools for a workspace that was copied from ``source``, or for an empty one. Reads the file system.

    Raises Misconfigured for paths to ``show`` that cannot be shown.
    """
    shown = shown_paths(show, private)
    real = source.resolve() if source else None
    pinned = _first_word(real / ".python-version") if real else ""
    found = [_on_machine(environ, pinned, private)]
    dependencies = _dependencies(real, private) if real else {}
    inner = next((name for name in dependencies if name != _PACKAGES), None)
    venv = dependencies[inner] if inner else _kept_elsewhere(real, environ, private) if real else None
    notes: list[str] = []
    if venv and (base := python_of(venv.source)):
        if is_kept(base, environ, found[0].installations):
            found.insert(0, _judged([base], private, "interpreter"))
        elif not any(base.prefix.is_relative_to(each.source.resolve()) for each in shown):
            notes.append(_hidden_interpreter(venv, base))
    mounts = [
        *shown,
        *([venv] if venv and not inner else []),
        *{mount.target: mount for each in reversed(found) for mount in each.mounts}.values(),
    ]
    path = [f"{venv.target}/bin", *[f"{MOUNT}/{inner}/bin"] * bool(inner)] if venv else []
    path += [str(Path(each.target, "bin")) for each in shown if (each.source / "bin").is_dir()]
    path += [each.target for each in shown if each.target.endswith("/bin")]
    path += [str(each.names[0] / "bin") for some in found for each in some.installations]
    return ProjectTools(
        mounts=tuple(mounts),
        path=tuple(dict.fromkeys(path)),
        variables=({"VIRTUAL_ENV": venv.target} if venv else {}) | _java_home(environ, found),
        alias=_alias(real, mounts) if real and (dependencies or venv) else None,
        dependencies=dependencies,
        shown=tuple(Path(os.path.normpath(path)) for path in show if path.is_dir()),
        notes=(*notes, *(note for each in found for note in each.notes)),
    )


def _hidden_interpreter(venv: BindMount, base: Installation) -> str:
    return (
        f"the interpreter of {venv.source} is {base.prefix}, which is none of the places where interpreters are kept; "
        "name it in sandbox.show if it may be shown"
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """Installations with the mounts of what may be shown of them, and sentences about the rest."""

    installations: tuple[Installation, ...]
    mounts: tuple[BindMount, ...]
    notes: tuple[str, ...]


def _on_machine(environ: Mapping[str, str], pinned: str, private: Sequence[Path]) -> _Judged:
    """Returns the installations that PATH leads to, as they were at most some seconds ago."""
    variables = tuple((name, environ[name]) for name in PATH_VARIABLES if name in environ)
    key = variables, pinned, tuple(private), int(time.monotonic() / _KNOWN_SECONDS)
    if found := _known.get(key):
        return found
    with _one_search:
        if (found := _known.get(key)) is None:
            found = _judged([*on_path(dict(variables), pinned)], private, "tools")
            for old in [each for each in _known if each[-1] < key[-1]]:
                del _known[old]
            _known[key] = found
        return found


def _dependencies(source: Path, private: Sequence[Path]) -> dict[str, BindMount]:
    """Returns the project's environment and packages: directories of its own, not links to others."""
    names = [name for name in VENVS if is_environment(source / name)]
    names += [made] if not names and (made := inside(source)) else []
    names += [_PACKAGES] if (source / _PACKAGES).is_dir() and not (source / _PACKAGES).is_symlink() else []
    secrets = secret_places(private) if names else ()
    return {
        name: BindMount(f"project-{name.replace('/', '-')}", source / name, str(source / name))
        for name in names
        if not secrets_in(source / name, secrets)
    }


def _kept_elsewhere(source: Path, environ: Mapping[str, str], private: Sequence[Path]) -> BindMount | None:
    """Returns the environment that a tool keeps for the project in another place, if it may be shown."""
    if not environ:
        return None
    path = outside(source, environ)
    return BindMount("environment", path, str(path)) if path and not secrets_in(path, secret_places(private)) else None


def _java_home(environ: Mapping[str, str], found: Sequence[_Judged]) -> dict[str, str]:
    """Returns the variable by which builds find their JDK, where commands see that JDK."""
    home = Path(environ.get("JAVA_HOME", ""))
    names = {name for some in found for each in some.installations for name in each.names}
    is_seen = home in names or (is_below(home, SYSTEM) and (home / "bin/java").exists())
    return {"JAVA_HOME": str(home)} if is_seen else {}


def _judged(installations: Sequence[Installation], private: Sequence[Path], name: str) -> _Judged:
    mounts: dict[str, BindMount] = {}
    notes: list[str] = []
    secrets = secret_places(private)
    for each in installations:
        for part in each.parts:
            source = each.prefix / part
            if why := refusal_reason(source, secrets):
                notes.append(f"{source} is not shown: {why}")
                continue
            for prefix in each.names:
                target = str(prefix / part)
                mounts.setdefault(target, BindMount(f"{name}-{len(mounts)}", source, target))
    return _Judged((*installations,), (*mounts.values(),), (*notes,))


def _alias(source: Path, mounts: Sequence[BindMount]) -> str | None:
    """Returns the project's own path, unless mounting there would hide what commands need."""
    if source.parent == Path("/") or is_below(source, (*SYSTEM, *SANDBOX_OWN)):
        return None
    overlapping = (Path(each.target).is_relative_to(source) or source.is_relative_to(each.target) for each in mounts)
    return None if any(overlapping) else str(source)


def _is_missing(path: Path) -> bool:
    """Returns whether there is nothing, or the empty directory in which an earlier command saw the mount."""
    with suppress(OSError):
        return not path.is_symlink() and not any(path.iterdir())
    return not path.is_symlink() and not path.exists()


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of installation: files that it must have (patterns), and the parts of it that are shown."""

    marks: tuple[str, ...]
    parts: tuple[str, ...]


_PYTHON = _Kind(("lib/python3*/os.py", "bin/python3"), ("bin", "lib", "lib64", "include"))
_PROGRAMS: Mapping[str, _Kind] = {
    "python3": _PYTHON,
    "node": _Kind(("lib/node_modules/npm", "bin/node"), ("bin", "lib", "include")),
    "cargo": _Kind(("lib/rustlib", "bin/rustc"), ("bin", "lib", "libexec")),
    "go": _Kind(("src/runtime", "bin/go", "VERSION"), ("bin", "pkg", "src", "lib", "VERSION", "go.env")),
    "java": _Kind(("lib/modules", "bin/java", "release"), ("bin", "lib", "conf", "jmods", "include", "release")),
}
PATH_VARIABLES = ("PATH", "PYENV_VERSION", "RUSTUP_HOME", "JAVA_HOME")
"""The variables by which they are found."""


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation: the names of its prefix (``prefix`` is where they all lead), and its parts."""

    prefix: Path
    names: tuple[Path, ...]
    parts: tuple[str, ...]


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


def on_path(environ: Mapping[str, str], pinned: str = "") -> Iterator[Installation]:
    """Yields the installations that PATH leads to and the system directories lack.

    ``pinned`` is the project's version of Python. Of the variables only ``PATH_VARIABLES`` count.
    """
    folders = [Path(part) for part in environ.get("PATH", "").split(":") if part.startswith("/")]
    for name, kind in _PROGRAMS.items():
        first = [Path(environ["JAVA_HOME"], "bin")] if name == "java" and environ.get("JAVA_HOME") else []
        for folder in (*first, *folders):
            if is_below(folder, SYSTEM):
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
    if program.parent.name != "bin" or is_below(prefix, SYSTEM) or prefix == Path("/"):
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
        with (venv / "pyvenv.cfg").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_SETTINGS).splitlines()  # its content is untrusted
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
