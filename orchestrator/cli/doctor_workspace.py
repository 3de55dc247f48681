"""`deputize doctor --workspace DIR`: what an agent that works on a copy of a directory finds there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...shared.agents import unknown_agent
from .doctor_promises import network
from .findings import Finding

if TYPE_CHECKING:
    from ...shared.settings import SandboxSettings, Settings

_ALWAYS = ("python", "pytest", "node", "git")
"""Programs whose absence is reported, too."""
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


def chosen_sandbox(
    settings: Settings, agent: str | None = None, profile: str | None = None
) -> tuple[Settings, Finding | None]:
    """Returns the settings with the sandbox of the agent or the profile, and the row about it, if there are profiles.

    With an unknown name the row is ✗.
    """
    if reason := unknown_agent(agent, settings.agents) or settings.sandbox.unknown_profile(profile):
        return settings, Finding("✗", "profile", reason, "name one that the settings define")
    name, known = settings.agents[agent].sandbox if agent else profile, settings.sandbox.profiles
    detail = f"{name or 'none, as in [sandbox]'}; there are {', '.join(known)}"
    sandbox = settings.sandbox.in_profile(name) if name else settings.sandbox
    return settings.model_copy(update={"sandbox": sandbox}), Finding("✓", "profile", detail) if known else None


def project_rows(settings: Settings, directory: Path, found: dict[str, Any]) -> Iterator[Finding]:
    """Yields what commands found of the project, and what its runs may use."""
    own = settings.sandbox
    yield Finding("✓", "limits", _limits(own))
    if own.setup:
        when = "done already" if found["is_set_up"] else "runs before the next run"
        yield Finding("✓", "set-up", f"{own.setup} ({when}; {network([*own.setup_hosts, *own.allowed_hosts])})")
    yield from _project(directory, found)
    yield from _programs(directory, found)


def _limits(own: SandboxSettings) -> str:
    sizes = (own.memory_bytes, own.disk_bytes, own.file_bytes, own.tmp_bytes)
    memory, disk, file, tmp = map(_size, sizes)
    return (
        f"a run has {memory} of memory, {own.cpus:g} processors and {disk} of disk; a command ends after "
        f"{own.command_seconds} s, and has {own.processes} processes, files of {file} each, and {tmp} in /tmp"
    )


def _size(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def _project(directory: Path, found: dict[str, Any]) -> Iterator[Finding]:
    if found["venv"]:
        yield Finding("✓", "venv", f"{found['venv']}, active and read-only")
    elif _is_python(directory):
        remedy = f"make one in {directory} (`python -m venv .venv`, `uv sync`), or name it in DEPUTIZE_SANDBOX_SHOW"
        yield Finding("!", "venv", "none: neither .venv nor venv is a virtual environment of this directory", remedy)
    if (directory / "package.json").is_file():
        if "node_modules" in found["dependencies"]:
            yield Finding("✓", "packages", f"{directory / 'node_modules'}, read-only")
        else:
            yield Finding("!", "packages", "no node_modules", f"install them in {directory}, or by sandbox.setup")
    for note in found["notes"]:
        yield Finding("!", "hidden", note, "or leave it out: the system's programs are there all the same")


def _programs(directory: Path, found: dict[str, Any]) -> Iterator[Finding]:
    for name, version in found["programs"].items():
        if version:
            yield Finding("✓", name, version)
        elif name in _ALWAYS:
            yield Finding("!", name, "not found inside the sandbox", _remedy(name, directory, found))


def _remedy(name: str, directory: Path, found: dict[str, Any]) -> str:
    if name == "pytest":
        return f"install it into {found['venv'] or directory / '.venv'} if agents are to run Python tests"
    return f"install {name}, or name its directory in DEPUTIZE_SANDBOX_SHOW, if agents need it"


def _is_python(directory: Path) -> bool:
    return any((directory / name).exists() for name in _PYTHON_PROJECT)
