"""Rows of `deputize doctor` about the promises of the README, each tried on this machine.

A process like a worker's tries those about runs. Masking and scopes are the service's own: the functions that it uses
judge here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import TYPE_CHECKING, Protocol

from ...shared.errors import Misconfigured, ScopeMissing, Unauthorized
from ...shared.promises import PROMISES, REPORT, Promise, Report
from ...shared.wire import now
from .findings import Finding

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..caller import Caller
    from ..token_file import Tokens

_END_SECONDS = 15.0
"""For the process to remove what it has made, once it is not needed any more."""
_REMEDY = "run no foreign code here before this is mended, and report it"
_SERVICE_REMEDY = "run no service before this is mended, and report it"
_OF_OTHERS = "ghp_Zk9hWq2LpXv7RtY4uMbN8cDsEfGhJkLmNpQr"
HERE = ("masking", "scopes")
"""The promises of the service itself: they are tried in this process."""


@asynccontextmanager
async def promises_asked(
    settings: Settings, redis_url: str | None, directory: Path | None = None
) -> AsyncGenerator[asyncio.Task[Report]]:
    """Starts trying the promises. Yields the task that returns what was found; afterwards nothing of it is left.

    ``redis_url`` is the one that workers here use, ``directory`` a project to look at from inside the sandbox.
    """
    canary = {"CANARY": f"deputize-canary-{token_hex(8)}"}  # no command may find it
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "deputize.worker.promises", *([str(directory)] if directory else [])),
        env=settings.child_environment() | canary | ({"DEPUTIZE_REDIS_URL": redis_url} if redis_url else {}),
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


async def _answer(process: asyncio.subprocess.Process) -> Report:
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    if await process.wait():
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Report(error=f"what tries commands failed: {last or f'exit code {process.returncode}'}")
    return REPORT.validate_json(output)


async def _ended(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def promise_rows(
    settings: Settings, report: Report, here: Mapping[str, Finding], *, for_project: bool = False
) -> Iterator[Finding]:
    """Yields a row for each promise, in the README's order. ``here`` are those of the promises in ``HERE``.

    Where the workers are elsewhere, what is broken on this machine is only a warning. ``for_project``: commands are
    needed here.
    """
    rows = [*_machine_rows(settings, report, for_project=for_project), *_tried_rows(report, here)]
    if settings.url is None:
        yield from rows
        return
    detail = f"the rows that follow are about this machine; {settings.url} has workers of its own: run this there, too"
    yield Finding("✓", "elsewhere", detail)
    unneeded = {"sandbox", *(each.name for each in PROMISES if each.by_command)} if report.sandbox else {}
    for row in rows:
        if row.name not in unneeded:
            yield replace(row, state="!") if row.state == "✗" else row


def _machine_rows(settings: Settings, report: Report, *, for_project: bool) -> Iterator[Finding]:
    if report.error:
        yield Finding("✗", "settings", report.error, "correct what it names; commands cannot be tried before")
    state = "✗" if settings.sandbox.enabled == "required" or for_project else "!"
    if not settings.sandbox.enabled:
        yield Finding(state, "sandbox", "switched off, so agents cannot run commands", "unset DEPUTIZE_SANDBOX")
    elif report.sandbox:
        yield Finding(state, "sandbox", "agents cannot run commands here", report.sandbox)
    elif report.sandbox is not None:
        own = settings.sandbox
        yield Finding("✓", "sandbox", f"works; {network(own.allowed_hosts)}, and only the workspace can be written")
    if report.is_memory_private:
        yield Finding("✓", "memory", "other programs of this user cannot read that of our processes, nor their keys")
    elif report.is_memory_private is not None:
        detail = "programs of this user can read that of our processes, and the keys in it"
        yield Finding("!", "memory", detail, "run workers as a user that runs nothing else")


def _tried_rows(report: Report, here: Mapping[str, Finding]) -> Iterator[Finding]:
    for promise in PROMISES:
        text = promise.text.replace("`", "")
        if promise.name in HERE:
            row = here[promise.name]
            yield replace(row, detail=f"{text}: {row.detail}")
        elif problems := report.problems.get(promise.name):
            yield Finding("✗", promise.name, f"it is not true here that {text}: {'; '.join(problems)}", _REMEDY)
        elif reason := _why_untried(promise, report):
            yield Finding("!", promise.name, f"not tried: {text}", reason)
        else:
            yield Finding("✓", promise.name, text + _how(promise, report))


def _why_untried(promise: Promise, report: Report) -> str:
    if promise.name in report.problems:
        return report.untried.get(promise.name, "")
    if promise.by_command and report.sandbox:
        return "no command runs without the sandbox: mend what its row names"
    return report.untried.get(promise.name, "correct the row settings first")


def _how(promise: Promise, report: Report) -> str:
    """Returns what there is to add about how it was tried."""
    if promise.name == "secrets":
        return f"; they find {', '.join(report.variables)}"
    if promise.name == "files" and report.is_redis_here:
        return " (Redis, too, answers outside of it)"
    if promise.name == "bounds":
        how = "a control group" if report.has_groups else "measuring: no control group is delegated to this process"
        return f"; memory by {how}"
    return f" (all but {promise.untried})" if promise.untried else ""


def network(hosts: list[str]) -> str:
    return f"network: only {', '.join(hosts)}" if hosts else "no network"


class Mask(Protocol):
    """What masks the JSON that a run publishes."""

    def json(self, text: str) -> str: ...


def masking_row(settings: Settings, mask: Mask | None = None) -> Finding:
    """Masks every secret of the settings, and a token known by its shape; by default as workers do."""
    from ...shared.masking import MIN_SECRET, SecretMask

    secrets = settings.secrets
    mask = mask or SecretMask(secrets)
    probes = [*(secret for secret in secrets if len(secret) >= MIN_SECRET), _OF_OTHERS]
    for probe in probes:
        encoded = base64.b64encode(f"x {probe}".encode()).decode() if probe != _OF_OTHERS else probe
        event = mask.json(json.dumps({"text": f"a {probe} b", "encoded": encoded}))
        if probe in event or encoded in event:
            detail = "a secret of these settings was not masked in an event"
            return Finding("✗", "masking", detail, _SERVICE_REMEDY)
    if len(probes) - 1 < len(secrets):
        detail = f"a secret has fewer than {MIN_SECRET} characters, so it is not masked: it could be any word"
        return Finding("!", "masking", detail, "use a longer one")
    detail = f"{len(secrets)} values of these settings were masked in an event, and a token known by its shape"
    return Finding("✓", "masking", detail)


def scopes_row(settings: Settings) -> Finding:
    """Tries a new token of each scope with all routes, and each token of the file."""
    from ..caller import Caller
    from ..token_file import TokenFile

    try:
        with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
            problems = [*_of_new_tokens(settings, Path(folder) / "tokens.toml")]
        entries = TokenFile(settings.tokens_file).entries() if settings.tokens_file else []
    except (Misconfigured, OSError) as error:
        return Finding("!", "scopes", f"not tried: {error}", "correct what it names")
    problems += [problem for entry in entries for problem in wrong_routes(Caller(entry.name, entry.scopes))]
    if problems:
        return Finding("✗", "scopes", "; ".join(problems), _SERVICE_REMEDY)
    of_file = f"; so are the {len(entries)} of the file" if entries else ""
    return Finding("✓", "scopes", f"new tokens are refused what they are not for: one to read cannot submit{of_file}")


def _of_new_tokens(settings: Settings, path: Path) -> Iterator[str]:
    from ..caller import RequestNote, caller_of
    from ..scopes import Scope
    from ..token_file import Tokens, append_entry, digest_of, written_entry

    valid = {f"doctor-{scope}": (scope, None) for scope in Scope}
    kinds = valid | {"doctor-expired": (Scope.READ, now() - timedelta(days=1))}
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
    from ..caller import RequestNote, caller_of

    try:
        caller_of(tokens, token, RequestNote("GET", "doctor"))
    except Unauthorized:
        return False
    return True


def wrong_routes(caller: Caller) -> Iterator[str]:
    """Yields the routes that the caller may use without their scopes, or may not use in spite of them."""
    from ..scopes import ROUTES

    for (method, route), needed in ROUTES.items():
        try:
            caller.check(needed)
        except ScopeMissing:
            if needed <= caller.scopes:
                yield f"the token {caller.token!r} may not {method} {route}, in spite of its scopes"
            continue
        if not needed <= caller.scopes:
            yield f"the token {caller.token!r} may {method} {route} without that scope"
