"""`deputize doctor --workspace DIR`: what an agent that works on a copy of a directory finds there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deputize.orchestrator.cli.findings import Finding
from deputize.shared.agents import unknown_agent

if TYPE_CHECKING:
    from deputize.shared.settings import SandboxSettings, Settings

_ALWAYS = ("python", "pytest", "node", "git")
"""Programs whose absence is reported, too."""
_CANARY = "deputize-canary-" + token_hex(8)
"""The value of a variable that the asked process has, and its commands must not."""
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


async def workspace_checks(
    settings: Settings, directory: Path, agent: str | None = None, profile: str | None = None
) -> AsyncGenerator[Finding]:
    """Yields every row, about the sandbox of the ``agent`` or of the ``profile`` where one is named."""
    if reason := unknown_agent(agent, settings.agents) or settings.sandbox.unknown_profile(profile):
        yield Finding("✗", "profile", reason, "name one that the settings define")
        return
    name, known = settings.agents[agent].sandbox if agent else profile, settings.sandbox.profiles
    if known:
        yield Finding("✓", "profile", f"{name or 'none, as in [sandbox]'}; there are {', '.join(known)}")
    sandbox = settings.sandbox.in_profile(name) if name else settings.sandbox
    async for row in _sandbox_checks(settings.model_copy(update={"sandbox": sandbox}), directory):
        yield row


async def _sandbox_checks(settings: Settings, directory: Path) -> AsyncGenerator[Finding]:
    """Asks a process like a worker's, and that one asks inside the sandbox."""
    if settings.url:
        detail = f"{settings.url} has workers of its own; these rows are about this machine"
        yield Finding("!", "service", detail, "run this on the workers' machine")
    if not settings.sandbox.enabled:
        yield Finding("✗", "sandbox", "switched off, so agents cannot run commands", "unset DEPUTIZE_SANDBOX")
        return
    found = await _asked(settings, directory)
    if error := found.get("error"):
        yield Finding("✗", "settings", error, "correct what it names; nothing else can be checked before")
        return
    if reason := found["sandbox"]:
        yield Finding("✗", "sandbox", "agents cannot run commands here", reason)
        return
    own = settings.sandbox
    yield Finding("✓", "sandbox", f"works; {_network(own.allowed_hosts)}, and only the workspace can be written")
    yield _variables(settings, found["variables"])
    yield Finding("✓", "limits", _limits(own))
    for finding in _protections(found["protections"]):
        yield finding
    if own.setup:
        when = "done already" if found["is_set_up"] else "runs before the next run"
        yield Finding("✓", "set-up", f"{own.setup} ({when}; {_network([*own.setup_hosts, *own.allowed_hosts])})")
    for finding in (*_project(directory, found), *_programs(directory, found)):
        yield finding


def _protections(tried: dict[str, bool]) -> Iterator[Finding]:
    """Yields a row for each protection that was tried with a command."""
    how = "a control group" if tried["groups"] else "measuring: no control group is delegated to this process"
    rows = {
        "isolated": ("namespaces", "commands have users, processes, mounts and a network of their own"),
        "seccomp": ("seccomp", "system calls are filtered, and no namespace can be created"),
        "egress": ("egress", "a command could not connect to a server of this machine"),
        "memory": ("memory", f"a command that took more than its limit was killed, by {how}"),
        "disk": ("disk", "a command that wrote more than its limit was killed, by measuring"),
    }
    for name, (key, detail) in rows.items():
        if tried[key]:
            yield Finding("✓", name, detail)
        else:
            yield Finding("✗", name, f"tried, and not true: {detail}", "run no foreign code here, and report this")


def _variables(settings: Settings, inside: str) -> Finding:
    """Compares what commands find with what the process had that started them."""
    if _CANARY in inside or any(secret in inside for secret in settings.secrets):
        remedy = "run no workers before this is mended, and report it"
        return Finding("✗", "variables", "commands find variables of the worker", remedy)
    names = sorted({line.partition("=")[0] for line in inside.replace("\0", "\n").splitlines() if "=" in line})
    return Finding("✓", "variables", f"commands find {', '.join(names)}, and none of the worker's")


def _network(hosts: list[str]) -> str:
    return f"network: only {', '.join(hosts)}" if hosts else "no network"


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


async def _asked(settings: Settings, directory: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deputize.worker.sandbox", str(directory)),
        env=settings.child_environment() | {"CANARY": _CANARY},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {"error": f"what runs commands cannot be started: {last or f'exit code {process.returncode}'}"}
    return json.loads(output)
