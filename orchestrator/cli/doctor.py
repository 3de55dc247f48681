"""`deputize doctor`: checks this machine and the service, with a remedy for each problem."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
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
    from ...shared.settings import Settings

SPACE_NEEDED = 100 * 1024**2
SPACE_WANTED = 2 * 1024**3


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
    else:
        async with aclosing(_rows(settings, workspace, **named)) as rows:
            async for row in rows:
                print_row(row)
    return Exit.UNREACHABLE if broken else Exit.SUCCEEDED


async def _rows(settings: Settings, workspace: Path | None, **named: str | None) -> AsyncGenerator[Finding]:
    from .doctor_workspace import chosen_sandbox

    chosen = None
    if workspace:
        settings, chosen = chosen_sandbox(settings, **named)
    if chosen:
        yield chosen
    if chosen is None or chosen.state != "✗":
        async with aclosing(run_checks(settings, workspace)) as rows:
            async for row in rows:
                yield row


async def run_checks(settings: Settings, workspace: Path | None = None) -> AsyncGenerator[Finding]:
    """Yields every row as soon as it is known. The promises are tried meanwhile."""
    from . import doctor_promises, doctor_secrets
    from .doctor_scopes import scopes_row
    from .doctor_service import redis_rows, service_rows

    home = _home(settings)
    stack = stack_here(settings) if home.state == "✓" else None
    redis_url = settings.redis_url or (stack.redis_url if stack else None)
    async with doctor_promises.promises_asked(settings, redis_url, workspace) as asked:
        for row in (
            _python(),
            home,
            _disk(settings),
            token_row(settings),
            _model(settings),
            *doctor_secrets.key_rows(),
        ):
            yield row
        async for row in redis_rows(settings, stack):
            yield row
        async for row in service_rows(settings, stack):
            yield row
        here = {"masking": doctor_secrets.masking_row(settings), "scopes": scopes_row(settings)}
        found = await asked
    for row in doctor_promises.promise_rows(settings, found, here):
        yield row
    if workspace and (project := found["more"].get("project")):
        from .doctor_workspace import project_rows

        for row in project_rows(settings, workspace, project):
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
