"""`deputize doctor`: checks this machine and the service, with a remedy for each problem.

With ``--workspace DIR`` it also checks what an agent that works on a copy of a directory finds there.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...shared.errors import Misconfigured
from . import output
from .connect import load_settings, stack_here
from .errors import Exit
from .findings import Finding

if TYPE_CHECKING:
    from ...shared.promises import ProjectFacts
    from ...shared.settings import SandboxSettings, Settings

SPACE_NEEDED = 100 * 1024**2
SPACE_WANTED = 2 * 1024**3
_MOUNTED = Path("/run/secrets")
"""Where containers find their secrets: their user has to be able to read what is another's."""
_ALWAYS = ("python", "pytest", "node", "git")
"""Programs whose absence is reported, too."""
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each row as one JSON object a line.")
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Also what an agent finds that works on a copy of DIR, asked inside the sandbox.",
)
@click.option("--agent", metavar="NAME", help="With --workspace: in the sandbox of this agent.")
@click.option("--profile", metavar="NAME", help="With --workspace: in this profile of the sandbox.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, workspace: Path | None, agent: str | None, profile: str | None) -> Exit:
    """Check this machine and the service, with a remedy for each problem.

    Every promise about security is tried here, by a process like a worker's and by commands in its sandbox.

    A row is ✓ well, ! good enough for now, or ✗ broken; with a ✗ the exit code is 3.
    """
    if (agent or profile) and (workspace is None or (agent and profile)):
        raise click.UsageError("give either --agent or --profile, together with --workspace", ctx)
    return asyncio.run(_doctor(ctx, as_json, workspace, agent=agent, profile=profile))


async def _doctor(ctx: click.Context, as_json: bool, workspace: Path | None, **named: str | None) -> Exit:
    broken = False

    def print_row(row: Finding) -> None:
        nonlocal broken
        broken = broken or row.state == "✗"
        if as_json:
            output.json_line(json.dumps(row.to_dict(), ensure_ascii=False))
            return
        output.line(f"{row.state} {row.name:10} {row.detail}")
        if row.remedy:
            output.line(f"{'':12} → {row.remedy}")

    try:
        settings = load_settings(ctx)
    except Misconfigured as error:
        print_row(Finding("✗", "settings", str(error), "correct what it names; nothing else can be checked before"))
        return Exit.UNREACHABLE
    if workspace:
        settings, chosen = chosen_sandbox(settings, **named)
        if chosen:
            print_row(chosen)
    if not broken:
        async with aclosing(run_checks(settings, workspace)) as rows:
            async for row in rows:
                print_row(row)
    return Exit.UNREACHABLE if broken else Exit.SUCCEEDED


async def run_checks(settings: Settings, workspace: Path | None = None) -> AsyncGenerator[Finding]:
    """Yields every row as soon as it is known. The promises are tried meanwhile."""
    from .doctor_promises import masking_row, promise_rows, promises_asked, scopes_row
    from .doctor_service import redis_rows, service_rows

    home = _home(settings)
    stack = stack_here(settings) if home.state == "✓" else None
    redis_url = settings.redis_url or (stack.redis_url if stack else None)
    async with promises_asked(settings, redis_url, workspace) as asked:
        for row in (_python(), home, _disk(settings), token_row(settings), _model(settings), *key_rows()):
            yield row
        async for row in redis_rows(settings, stack):
            yield row
        async for row in service_rows(settings, stack):
            yield row
        here = {"masking": masking_row(settings), "scopes": scopes_row(settings)}
        report = await asked
    for row in promise_rows(settings, report, here, for_project=workspace is not None):
        yield row
    if workspace and report.project:
        for row in project_rows(settings, workspace, report.project):
            yield row


def _python() -> Finding:
    return Finding("✓", "python", ".".join(map(str, sys.version_info[:3])))  # an older one does not get this far


def _home(settings: Settings) -> Finding:
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            return Finding("✓", "home", str(settings.home))
    except OSError as error:
        return Finding("✗", "home", f"{settings.home}: {error.strerror}", "set DEPUTIZE_HOME to a folder you can write")


def _disk(settings: Settings) -> Finding:
    folder = next(path for path in (settings.workspaces, *settings.workspaces.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1024**3:.1f} GiB free for workspaces at {folder}"
    if free < SPACE_WANTED:
        return Finding("✗" if free < SPACE_NEEDED else "!", "disk", detail, "free some, or set DEPUTIZE_WORKSPACE_ROOT")
    return Finding("✓", "disk", detail)


def token_row(settings: Settings) -> Finding:
    """Checks that the tokens can be used, and that an open address has one."""
    from ..sockets import TRUSTED, check_binding, is_loopback

    if settings.tokens_file is not None:
        from ..token_file import Tokens

        try:
            return Finding("✓", "token", f"{Tokens(settings).count()} accepted")
        except Misconfigured as error:
            return Finding("✗", "token", str(error), "correct the file, or unset DEPUTIZE_TOKENS_FILE")
    if settings.token is not None:
        return Finding("✓", "token", "set")
    if not settings.no_token and is_loopback(settings.host):
        return Finding("✓", "token", "none set: the stack on this machine makes its own; `serve` wants DEPUTIZE_TOKEN")
    try:
        check_binding(settings)
    except Misconfigured as error:
        return Finding("✗", "token", f"none, and the API is to listen on {settings.host}", str(error))
    return Finding("!", "token", f"none: {TRUSTED}", "unset DEPUTIZE_NO_TOKEN")


def _model(settings: Settings) -> Finding:
    if settings.model.startswith("scripted"):
        return Finding(
            "!", "model", f"{settings.model}: a script, not a language model", "set DEPUTIZE_MODEL to a model"
        )
    if settings.url and not settings.has_model_endpoint:
        return Finding("✓", "model", f"the matter of the workers of {settings.url}")
    if not settings.has_model_endpoint:
        return Finding("!", "model", "no key here, so `run` and `batch` start nothing here", "set ANTHROPIC_API_KEY")
    return Finding("✓", "model", f"{settings.model}, by {', '.join(sorted(settings.model_endpoint))}")


def key_rows(mounted: Path = _MOUNTED) -> Iterator[Finding]:
    """Yields where keys are kept, if there are any. Files in ``mounted`` that are not ours are as they have to be."""
    from ...shared.settings.loading import secret_variables
    from ...shared.settings.variables import environment

    environ = environment()
    exposed = [name for name in secret_variables() if environ.get(name, "").strip()]
    files = {name: path for name in secret_variables() if (path := environ.get(f"{name}_FILE", "").strip())}
    if opened := [name for name, path in files.items() if _is_open(Path(path), mounted)]:
        paths = " ".join(files[name] for name in opened)
        yield Finding("!", "keys", f"other users may read the file of {', '.join(opened)}", f"chmod 600 {paths}")
    if exposed:
        detail = f"{', '.join(exposed)} in the environment, which every program started from here inherits"
        yield Finding("✓", "keys", f"{detail}; a file named by {exposed[0]}_FILE is more private")
    elif files and not opened:
        yield Finding("✓", "keys", f"from files: {', '.join(files)}")


def _is_open(path: Path, mounted: Path) -> bool:
    """Whether other users may read a file whose mode is ours to change."""
    found = path.stat()
    is_ours = found.st_uid == os.geteuid() or not path.is_relative_to(mounted)
    return is_ours and bool(found.st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def chosen_sandbox(
    settings: Settings, agent: str | None = None, profile: str | None = None
) -> tuple[Settings, Finding | None]:
    """Returns the settings with the sandbox of the agent or the profile, and the row about it, if there are profiles.

    With an unknown name the row is ✗.
    """
    from ...shared.request_rules import unknown_agent

    if reason := unknown_agent(agent, settings.agents) or settings.sandbox.unknown_profile(profile):
        return settings, Finding("✗", "profile", reason, "name one that the settings define")
    name, known = settings.agents[agent].sandbox if agent else profile, settings.sandbox.profiles
    detail = f"{name or 'none, as in [sandbox]'}; there are {', '.join(known)}"
    sandbox = settings.sandbox.in_profile(name) if name else settings.sandbox
    return settings.model_copy(update={"sandbox": sandbox}), Finding("✓", "profile", detail) if known else None


def project_rows(settings: Settings, directory: Path, found: ProjectFacts) -> Iterator[Finding]:
    """Yields what commands found of the project, and what its runs may use."""
    from .doctor_promises import network

    own = settings.sandbox
    yield Finding("✓", "limits", _limits(own))
    if own.setup:
        when = "done already" if found.is_set_up else "runs before the next run"
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


def _project(directory: Path, found: ProjectFacts) -> Iterator[Finding]:
    if found.venv:
        yield Finding("✓", "venv", f"{found.venv}, active and read-only")
    elif _is_python(directory):
        remedy = f"make one in {directory} (`python -m venv .venv`, `uv sync`), or name it in DEPUTIZE_SANDBOX_SHOW"
        yield Finding("!", "venv", "none: neither .venv nor venv is a virtual environment of this directory", remedy)
    if (directory / "package.json").is_file():
        if "node_modules" in found.dependencies:
            yield Finding("✓", "packages", f"{directory / 'node_modules'}, read-only")
        else:
            yield Finding("!", "packages", "no node_modules", f"install them in {directory}, or by sandbox.setup")
    for note in found.notes:
        yield Finding("!", "hidden", note, "or leave it out: the system's programs are there all the same")


def _programs(directory: Path, found: ProjectFacts) -> Iterator[Finding]:
    for name, version in found.programs.items():
        if version:
            yield Finding("✓", name, version)
        elif name in _ALWAYS:
            yield Finding("!", name, "not found inside the sandbox", _remedy(name, directory, found))


def _remedy(name: str, directory: Path, found: ProjectFacts) -> str:
    if name == "pytest":
        return f"install it into {found.venv or directory / '.venv'} if agents are to run Python tests"
    return f"install {name}, or name its directory in DEPUTIZE_SANDBOX_SHOW, if agents need it"


def _is_python(directory: Path) -> bool:
    return any((directory / name).exists() for name in _PYTHON_PROJECT)
