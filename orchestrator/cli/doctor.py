"""`deputize doctor`: checks this machine and the service, with a remedy for each problem.

A process of the worker's code tries the promises about runs, and with ``--workspace DIR`` what an agent finds that
works on a copy of a directory. Masking and scopes are the service's own: the functions that it uses are tried here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING

import click

from ...shared.errors import Misconfigured, ScopeMissing, Unauthorized
from ...shared.promises import PROMISES, Finding
from ...shared.text import count
from ..home import FULL
from . import completion, output
from .connect import load_settings, stack_here
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.settings import ModelSettings, Settings
    from ..access_tokens import Caller, Tokens

SPACE_NEEDED = 100 * 1024**2
SPACE_WANTED = 2 * 1024**3
_MOUNTED = Path("/run/secrets")
"""Where containers find their secrets: their user has to be able to read what is another's."""
_END_SECONDS = 15.0
"""For the process to remove what it has made, once it is not needed any more."""
_SERVICE_REMEDY = "run no service before this is mended, and report it"
_OTHERWISE = "correct the named mistake, or report it"
_OF_OTHERS = "ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr"
_OF_WORKERS = ("sandbox", "ripgrep", "pdf", "open files")
"""Rows about what only workers need."""
_SENTENCES = {promise.name: promise.sentence for promise in PROMISES}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each row as one JSON object a line.")
@click.option(
    "-w",
    "--workspace",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Also the tools that an agent finds for a copy of DIR, asked inside the sandbox.",
)
@click.option("--agent", metavar="NAME", help="With --workspace: in the sandbox of this agent.")
@click.option("--profile", metavar="NAME", help="With --workspace: in this profile of the sandbox.")
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=completion.models,
    help="Only the abilities of this model's endpoint, in ten calls.",
)
def doctor(as_json: bool, workspace: Path | None, agent: str | None, profile: str | None, model: str | None) -> Exit:
    """Check this machine and the service, with a remedy for each problem.

    Every promise about security is tried here, by a process like a worker's and by commands in its sandbox.

    A row is ✓ well, ! good enough for now, or ✗ broken; with a ✗ the exit code is 3.
    """
    if (agent or profile) and (workspace is None or (agent and profile)):
        raise click.UsageError("give either --agent or --profile, together with --workspace")
    if model and workspace:
        raise click.UsageError("give either --model or --workspace")
    return asyncio.run(_doctor(as_json, workspace, model, agent=agent, profile=profile))


def _remedy_lines(remedy: str) -> list[str]:
    """Returns the lines that are printed: one is advice, and more are a block to be copied."""
    lines = remedy.split("\n") if remedy else []
    return [f"{'':12} → {remedy}"] if len(lines) == 1 else lines


async def _doctor(as_json: bool, workspace: Path | None, model: str | None, **named: str | None) -> Exit:
    found: list[Finding] = []

    def print_row(row: Finding) -> None:
        found.append(row)
        if as_json:
            output.json_line(json.dumps(row.to_dict(), ensure_ascii=False))
            return
        output.line(f"{row.state} {row.name:10} {row.detail}")
        output.lines(_remedy_lines(row.remedy))

    try:
        settings = load_settings()
    except Misconfigured as error:
        print_row(Finding("✗", "settings", str(error), "correct the named mistake; nothing else can be checked before"))
        return Exit.UNREACHABLE
    if workspace:
        settings, chosen = chosen_sandbox(settings, **named)
        if chosen:
            print_row(chosen)
    if not _is_broken(found):
        async with aclosing(model_rows(settings, model) if model else run_checks(settings, workspace)) as rows:
            async for row in rows:
                print_row(row)
    if not as_json:
        to_do = [row.name for row in found if row.remedy and row.state != "✓"]
        output.line(f"{count(len(to_do), 'thing')} to do: {', '.join(to_do)}" if to_do else "nothing to do")
    return Exit.UNREACHABLE if _is_broken(found) else Exit.SUCCEEDED


def _is_broken(found: Iterable[Finding]) -> bool:
    return any(row.state == "✗" for row in found)


async def run_checks(settings: Settings, workspace: Path | None = None) -> AsyncGenerator[Finding]:
    """Yields every row as soon as it is known. The promises are tried meanwhile."""
    from .doctor_service import credential_rows, git_row, redis_rows, service_rows, signing_row

    home = home_row(settings)
    stack = stack_here(settings) if home.state == "✓" else None
    redis_url = settings.redis_url or (stack.redis_url if stack else None)
    async with promises_asked(settings, redis_url, workspace) as asked:
        python = Finding("✓", "python", ".".join(map(str, sys.version_info[:3])))  # an older one does not get this far
        for row in (
            python,
            git_row(),
            *signing_row(settings),
            *credential_rows(settings),
            home,
            disk_row(settings),
            token_row(settings),
            _model(settings),
            *key_rows(models=settings.models),
        ):
            yield row
        async for row in redis_rows(settings, stack):
            yield row
        async for row in service_rows(settings, stack):
            yield row
        for row in (masking_row(settings), scopes_row(settings)):
            yield replace(row, detail=f"{_SENTENCES[row.name]}: {row.detail}")
        for row in machine_rows(settings, await asked):
            yield row


async def model_rows(settings: Settings, model: str) -> AsyncGenerator[Finding]:
    """Yields what the endpoint of a model is able to do, and what its table is to state."""
    environment = settings.child_environment() | settings.endpoint_variables()
    async with _asked(["--model", model], environment) as answer:
        for row in await answer:
            yield row


def home_row(settings: Settings) -> Finding:
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            return Finding("✓", "home", str(settings.home))
    except OSError as error:
        return Finding("✗", "home", f"{settings.home}: {error.strerror}", "set DEPUTIZE_HOME to a folder you can write")


def disk_row(settings: Settings) -> Finding:
    folder = next(path for path in (settings.workspaces, *settings.workspaces.parents) if _is_visible(path))
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1024**3:.1f} GiB free for workspaces at {folder}"
    if free < SPACE_WANTED:
        return Finding("✗" if free < SPACE_NEEDED else "!", "disk", detail, "free some, or set DEPUTIZE_WORKSPACE_ROOT")
    return Finding("✓", "disk", detail)


def _is_visible(path: Path) -> bool:
    with suppress(OSError):  # below a private folder of another user
        return path.exists()
    return False


def token_row(settings: Settings) -> Finding:
    """Checks that the tokens can be used, and that an open address has one."""
    from ..sockets import TRUSTED, check_binding, is_loopback

    if settings.tokens_file is not None:
        from ..access_tokens import Tokens

        try:
            return Finding("✓", "token", f"{Tokens(settings).count()} accepted")
        except Misconfigured as error:
            return Finding("✗", "token", str(error), "correct the file, or unset DEPUTIZE_TOKENS_FILE")
    if settings.token is not None:
        return Finding("✓", "token", "set")
    if not settings.no_token and is_loopback(settings.host):
        return Finding("✓", "token", "none set: this home keeps one for its stack; `serve` wants DEPUTIZE_TOKEN")
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
    if settings.url and not settings.reaches():
        return Finding("✓", "model", f"the matter of the workers of {settings.url}")
    if not settings.reaches():
        return Finding("!", "model", "no key here, so `run` and `batch` start nothing here", "set ANTHROPIC_API_KEY")
    named = [f"[models.{settings.model}]"] if settings.model in settings.models else sorted(settings.model_endpoint)
    return Finding("✓", "model", f"{settings.model}, by {', '.join(named)}")


def key_rows(mounted: Path = _MOUNTED, models: Mapping[str, ModelSettings] = {}) -> Iterator[Finding]:
    """Yields where keys are kept, if there are any. Files in ``mounted`` that are not ours are as they have to be."""
    from ...shared.settings.loading import secret_variables
    from ...shared.settings.variables import environment

    environ = environment()
    names = [*secret_variables(), *(variable for table in models.values() for variable in table.variables)]
    exposed = [name for name in names if environ.get(name, "").strip()]
    files = {name: path for name in names if (path := environ.get(f"{name}_FILE", "").strip())}
    files |= {f"[models.{name}] ({path})": path for name, table in models.items() for path in table.files}
    if opened := [name for name, path in files.items() if _is_visible(Path(path)) and _is_open(Path(path), mounted)]:
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


@asynccontextmanager
async def promises_asked(
    settings: Settings, redis_url: str | None, directory: Path | None = None
) -> AsyncGenerator[asyncio.Task[list[Finding]]]:
    """Starts trying the promises. Yields the task that returns what was found; afterwards nothing of it is left.

    ``redis_url`` is the one that workers here use, ``directory`` a project to look at from inside the sandbox.
    """
    canary = {"CANARY": f"deputize-canary-{token_hex(8)}"}  # no command may find it
    environment = settings.child_environment() | canary | ({"DEPUTIZE_REDIS_URL": redis_url} if redis_url else {})
    async with _asked([str(directory)] if directory else [], environment) as answer:
        yield answer


@asynccontextmanager
async def _asked(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncGenerator[asyncio.Task[list[Finding]]]:
    """Starts the worker's part with these arguments; yields the task that returns what it found."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "deputize.worker.promises", *arguments),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C ends this process, which then ends that one
    )
    answer = asyncio.create_task(_answer(process))
    try:
        yield answer
    finally:
        answer.cancel()
        await asyncio.shield(_ended(process))


async def _answer(process: asyncio.subprocess.Process) -> list[Finding]:
    assert process.stdout
    assert process.stderr
    output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    if await process.wait():
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = last or f"exit code {process.returncode}"
        is_full = any(os.strerror(number) in why for number in FULL)
        remedy = f"free some space at {tempfile.gettempdir()}, or set TMPDIR" if is_full else _OTHERWISE
        return [Finding("✗", "promises", f"the program that tries them failed: {why}", remedy)]
    return [Finding(**row) for row in json.loads(output)]


async def _ended(process: asyncio.subprocess.Process) -> None:
    assert process.stdin
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def machine_rows(settings: Settings, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yields what was found on this machine.

    Where the workers are elsewhere, what is broken here is only a warning, and their programs are not needed here.
    """
    if settings.url is None:
        yield from found
        return
    detail = f"the rows that follow are about this machine; {settings.url} has workers of its own: run this there, too"
    yield Finding("✓", "elsewhere", detail)
    unneeded = {row.name for row in found if row.name in _OF_WORKERS and row.state != "✓"}
    if "sandbox" in unneeded:
        unneeded |= {promise.name for promise in PROMISES if promise.by_command}
    for row in found:
        if row.name not in unneeded:
            yield replace(row, state="!") if row.state == "✗" else row


def masking_row(settings: Settings, mask: Callable[[str], str] | None = None) -> Finding:
    """Masks every secret of the settings, and a token known by its shape, in JSON; by default as workers do."""
    from ...shared.masking import MIN_SECRET, SecretMask

    secrets = settings.secrets
    mask = mask or SecretMask(secrets).json
    probes = [*(secret for secret in secrets if len(secret) >= MIN_SECRET), _OF_OTHERS]
    for probe in probes:
        encoded = base64.b64encode(f"x {probe}".encode()).decode() if probe != _OF_OTHERS else probe
        event = mask(json.dumps({"text": f"a {probe} b", "encoded": encoded}))
        if probe in event or encoded in event:
            return Finding("✗", "masking", "a secret of these settings was not masked in an event", _SERVICE_REMEDY)
    if len(probes) - 1 < len(secrets):
        detail = f"a secret has fewer than {MIN_SECRET} characters, so it is not masked: it could be any word"
        return Finding("!", "masking", detail, "use a longer one")
    masked = f"{len(secrets)} values of these settings were masked in an event, and a token known by its shape"
    return Finding("✓", "masking", masked)


def scopes_row(settings: Settings) -> Finding:
    """Tries a new token of each scope with all routes, and each token of the file."""
    from ..access_tokens import Caller, TokenFile

    try:
        with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
            problems = [*_of_new_tokens(settings, Path(folder) / "tokens.toml")]
        entries = TokenFile(settings.tokens_file).entries() if settings.tokens_file else []
    except (Misconfigured, OSError) as error:
        return Finding("!", "scopes", f"not tried: {error}", "correct the named mistake")
    problems += [problem for entry in entries for problem in wrong_routes(Caller(entry.name, entry.scopes))]
    if problems:
        return Finding("✗", "scopes", "; ".join(problems), _SERVICE_REMEDY)
    of_file = f"; so are the {len(entries)} of the file" if entries else ""
    return Finding("✓", "scopes", f"new tokens are refused what they are not for: one to read cannot submit{of_file}")


def _of_new_tokens(settings: Settings, path: Path) -> Iterator[str]:
    from ..access_tokens import RequestNote, Tokens, append_entry, caller_of, digest_of, written_entry
    from ..scopes import Scope

    valid = {f"doctor-{scope}": (scope, None) for scope in Scope}
    kinds = valid | {"doctor-expired": (Scope.READ, datetime.now(UTC) - timedelta(days=1))}
    given = {name: token_urlsafe(24).encode() for name in kinds}
    for name, (scope, expires) in kinds.items():
        append_entry(path, written_entry(name, digest_of(given[name]), [scope], expires))
    tokens = Tokens(settings.model_copy(update={"tokens_file": path}))
    for name in valid:
        yield from wrong_routes(caller_of(tokens, given[name], RequestNote("GET", "doctor")))
    for what, token in {"an expired token": given["doctor-expired"], "an unknown token": b"unknown"}.items():
        if is_accepted(tokens, token):
            yield f"{what} is accepted"


def is_accepted(tokens: Tokens, token: bytes) -> bool:
    """Whether the service would know a caller by this token."""
    from ..access_tokens import RequestNote, caller_of

    try:
        caller_of(tokens, token, RequestNote("GET", "doctor"))
    except Unauthorized:
        return False
    return True


def wrong_routes(caller: Caller) -> Iterator[str]:
    """Yields the routes that the caller may use without their scopes, or may not use in spite of them."""
    from ..operations import ROUTES

    for (method, route), needed in ROUTES.items():
        try:
            caller.check(needed)
        except ScopeMissing:
            if needed <= caller.scopes:
                yield f"the token {caller.token!r} may not {method} {route}, in spite of its scopes"
            continue
        if not needed <= caller.scopes:
            yield f"the token {caller.token!r} may {method} {route} without that scope"
