"""What commands of one run find besides the system: the project's own environment, toolchains, and shown paths.

The project's folder is the one that the workspace was copied from. Its virtual environment and ``node_modules`` are
shown read-only where the copy lacks them. The copy itself also appears at the folder's own path, so that editable
installs and the first lines of scripts, which name that path, lead to the copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from deputize.shared.errors import Misconfigured
from deputize.shared.settings import Settings, environment
from deputize.worker.sandbox.environment import MOUNT, BindMount
from deputize.worker.sandbox.host_paths import SANDBOX_OWN, SYSTEM, refusal_reason, secrets_in
from deputize.worker.sandbox.toolchains import Installation, is_kept, on_path, python_of

VENVS = (".venv", "venv")
"""Names of a project's virtual environment."""
_DEPENDENCIES = (*VENVS, "node_modules")


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
    notes: tuple[str, ...] = ()
    """Sentences about what was found and is not shown."""

    def missing(self, workspace: Path) -> list[tuple[BindMount, list[str]]]:
        """Returns the mounts of what the workspace lacks, with the paths at which each is to appear."""
        return [
            (mount, [f"{MOUNT}/{name}"] + [mount.target] * (not _is_below(mount.source, SANDBOX_OWN)))
            for name, mount in self.dependencies.items()
            if _is_missing(workspace / name)
        ]


NO_TOOLS = ProjectTools()


def tools_for(settings: Settings, source: Path | None) -> ProjectTools:
    """Returns what the settings let commands find that work on a copy of ``source``. Reads the file system."""
    private = (settings.home, settings.workspaces)
    if source is None and settings.sandbox.find_tools and not settings.sandbox.show:
        return _tools_of_machine(environment().get("PATH", ""), private)
    if not settings.sandbox.find_tools:
        source, environ = None, {}
    else:
        environ = environment()
    return find_tools(source, environ, [path for path in settings.sandbox.show if path.exists()], private)


@lru_cache(maxsize=4)
def _tools_of_machine(path: str, private: tuple[Path, ...]) -> ProjectTools:
    """Cached, as looking through PATH takes 10 ms of every run, and a worker's machine stays as it is."""
    return find_tools(None, {**environment(), "PATH": path}, [], private)


def check_shown(settings: Settings) -> None:
    """Raises Misconfigured for a path, of the sandbox or of a profile, that does not exist or must not be shown."""
    private, sandbox = (settings.home, settings.workspaces), settings.sandbox
    shown_paths(sandbox.show, private)
    for name, profile in sandbox.profiles.items():
        shown_paths(profile.show, private, f"sandbox.profiles.{name}.show")


def shown_paths(paths: Sequence[Path], private: Iterable[Path], setting: str = "sandbox.show") -> list[BindMount]:
    """Returns the mounts of the paths that the setting names.

    Raises Misconfigured for a path that does not exist or must not be shown.
    """
    for path in paths:
        if not path.exists():
            raise Misconfigured(f"{setting} names {path}, which does not exist; correct or remove it")
        if why := refusal_reason(path, private) or refusal_reason(Path(os.path.normpath(path)), private):
            raise Misconfigured(f"{setting} names {path}, which is never shown: {why}; name what is needed of it")
    return [
        BindMount(f"show-{number}", path, os.path.normpath(path))
        for number, path in enumerate(paths)
        if not _is_below(path, SYSTEM)
    ]


def find_tools(
    source: Path | None, environ: Mapping[str, str], show: Sequence[Path], private: Sequence[Path]
) -> ProjectTools:
    """Finds the tools for a workspace that was copied from ``source``, or for an empty one. Reads the file system.

    Raises Misconfigured for paths to ``show`` that cannot be shown.
    """
    shown = shown_paths(show, private)
    real = source.resolve() if source else None
    installations = list(on_path(environ, real))
    dependencies = _dependencies(real, private) if real else {}
    venv = next((dependencies[name] for name in VENVS if name in dependencies), None)
    notes: list[str] = []
    if venv and (base := python_of(venv.source)):
        if is_kept(base, environ):
            installations.insert(0, base)
        elif not any(base.prefix.is_relative_to(each.source.resolve()) for each in shown):
            notes.append(
                f"the interpreter of {venv.source} is {base.prefix}, which is none of the places where interpreters "
                "are kept; name it in sandbox.show if it may be shown"
            )
    mounts = [*shown, *_installed(installations, private, notes)]
    path = [f"{venv.target}/bin", f"{MOUNT}/{venv.source.name}/bin"] if venv else []
    path += [str(Path(each.target, "bin")) for each in shown if (each.source / "bin").is_dir()]
    path += [each.target for each in shown if each.target.endswith("/bin")]
    path += [each.bin for each in installations]
    return ProjectTools(
        mounts=tuple(mounts),
        path=tuple(dict.fromkeys(path)),
        variables={"VIRTUAL_ENV": venv.target} if venv else {},
        alias=_alias(real, mounts) if real and dependencies else None,
        dependencies=dependencies,
        shown=tuple(Path(os.path.normpath(path)) for path in show if path.is_dir()),
        notes=tuple(notes),
    )


def _dependencies(source: Path, private: Sequence[Path]) -> dict[str, BindMount]:
    """Returns the project's environment and packages: directories of its own, not links to others."""
    found: dict[str, BindMount] = {}
    for name in _DEPENDENCIES:
        path = source / name
        if path.is_symlink() or not path.is_dir() or secrets_in(path, private):
            continue
        if name in VENVS and not ((path / "pyvenv.cfg").is_file() and os.path.lexists(path / "bin/python")):
            continue
        found[name] = BindMount(f"project-{name}", path, str(path))
    return found


def _installed(found: Iterable[Installation], private: Sequence[Path], notes: list[str]) -> list[BindMount]:
    mounts: dict[str, BindMount] = {}
    for each in found:
        for part in each.parts:
            source = each.prefix / part
            if why := refusal_reason(source, private):
                notes.append(f"{source} is not shown: {why}")
                continue
            for name in each.names:
                target = str(name / part)
                mounts.setdefault(target, BindMount(f"tools-{len(mounts)}", source, target))
    return list(mounts.values())


def _alias(source: Path, mounts: Sequence[BindMount]) -> str | None:
    """Returns the project's own path, unless mounting there would hide what commands need."""
    if source.parent == Path("/") or _is_below(source, (*SYSTEM, *SANDBOX_OWN)):
        return None
    overlapping = (Path(each.target).is_relative_to(source) or source.is_relative_to(each.target) for each in mounts)
    return None if any(overlapping) else str(source)


def _is_missing(path: Path) -> bool:
    """Returns whether there is nothing, or the empty directory in which an earlier command saw the mount."""
    with suppress(OSError):
        return not path.is_symlink() and not any(path.iterdir())
    return not path.is_symlink() and not path.exists()


def _is_below(path: Path, roots: Iterable[str]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
