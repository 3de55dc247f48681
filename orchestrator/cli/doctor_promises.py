"""Rows of `deputize doctor` about the promises of the README: a process like a worker's tries them on this machine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from .findings import Finding

if TYPE_CHECKING:
    from ...shared.settings import Settings

_END_SECONDS = 15.0
"""For the process to remove what it has made, once it is not needed any more."""
_REMEDY = "run no foreign code here before this is mended, and report it"


@dataclass(frozen=True, slots=True)
class Promise:
    """One row of the README's table. ``by_command``: it is tried with a command. ``untried``: what is not, and why."""

    name: str
    text: str
    by_command: bool = False
    untried: str = ""


PROMISES = (
    Promise("secrets", "no secret of the worker is visible to a command: environments, memory, files", True),
    Promise("files", "no private file of the machine, no other run, no Redis is visible either", True),
    Promise(
        "links",
        "no name, link, pattern or race leads file tools out of the workspace",
        untried="patterns and races, which take longer",
    ),
    Promise("network", "commands have no network but the hosts of `sandbox.allowed_hosts`", True),
    Promise("kernel", "the kernel refuses namespaces, mounts, ptrace, unusual socket families, …", True),
    Promise(
        "bounds",
        "memory, processors, processes and disk of a run are bounded, and nothing goes on after it",
        True,
    ),
    Promise("planted", "configuration, hooks and rules in a workspace are ignored"),
    Promise("forbidden", "forbidden commands (`sudo`, `mkfs`, `rm -rf /`) are denied wherever a command line has them"),
    Promise(
        "permission",
        "what needs permission is not executed without a person's answer, through every restart",
        untried="restarts, which would end what runs here",
    ),
    Promise("masking", "known secrets and shapes of tokens are masked in all that is published"),
    Promise("scopes", "a token opens the routes of its scopes and no others"),
)
HERE = ("masking", "scopes")
"""The promises of the service itself: they are tried in this process."""


@asynccontextmanager
async def promises_asked(
    settings: Settings, redis_url: str | None, directory: Path | None = None
) -> AsyncGenerator[asyncio.Task[dict[str, Any]]]:
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


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    if await process.wait():
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {"more": {"error": f"what tries commands failed: {last or f'exit code {process.returncode}'}"}}
    return json.loads(output)


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


def promise_rows(settings: Settings, found: Mapping[str, Any], here: Mapping[str, Finding]) -> Iterator[Finding]:
    """Yields a row for each promise, in the README's order. ``here`` are those of the promises in ``HERE``.

    Where the workers are elsewhere, what is broken on this machine is only a warning.
    """
    if settings.url is None:
        yield from _rows(settings, found, here)
        return
    detail = f"the rows that follow are about this machine; {settings.url} has workers of its own: run this there, too"
    yield Finding("✓", "elsewhere", detail)
    unneeded = {"sandbox", *(each.name for each in PROMISES if each.by_command)} if found["more"].get("sandbox") else {}
    for row in _rows(settings, found, here):
        if row.name not in unneeded:
            yield replace(row, state="!") if row.state == "✗" else row


def _rows(settings: Settings, found: Mapping[str, Any], here: Mapping[str, Finding]) -> Iterator[Finding]:
    more = found["more"]
    if error := more.get("error"):
        yield Finding("✗", "settings", error, "correct what it names; commands cannot be tried before")
    yield from _sandbox(settings, more)
    for promise in PROMISES:
        text = promise.text.replace("`", "")
        if promise.name in HERE:
            row = here[promise.name]
            yield replace(row, detail=f"{text}: {row.detail}")
        elif problems := found.get("problems", {}).get(promise.name):
            yield Finding("✗", promise.name, f"it is not true here that {text}: {'; '.join(problems)}", _REMEDY)
        elif reason := _why_untried(promise, found):
            yield Finding("!", promise.name, f"not tried: {text}", reason)
        else:
            yield Finding("✓", promise.name, text + _how(promise, more))


def _sandbox(settings: Settings, more: Mapping[str, Any]) -> Iterator[Finding]:
    state = "✗" if settings.sandbox.enabled == "required" or "project" in more else "!"
    if not settings.sandbox.enabled:
        yield Finding(state, "sandbox", "switched off, so agents cannot run commands", "unset DEPUTIZE_SANDBOX")
    elif reason := more.get("sandbox"):
        yield Finding(state, "sandbox", "agents cannot run commands here", reason)
    elif "sandbox" in more:
        own = settings.sandbox
        yield Finding("✓", "sandbox", f"works; {network(own.allowed_hosts)}, and only the workspace can be written")
    if more.get("private"):
        yield Finding("✓", "memory", "other programs of this user cannot read that of our processes, nor their keys")
    elif "private" in more:
        detail = "programs of this user can read that of our processes, and the keys in it"
        yield Finding("!", "memory", detail, "run workers as a user that runs nothing else")


def _why_untried(promise: Promise, found: Mapping[str, Any]) -> str:
    if promise.name in found.get("problems", {}):
        return found["untried"].get(promise.name, "")
    if promise.by_command and found["more"].get("sandbox"):
        return "no command runs without the sandbox: mend what its row names"
    return found.get("untried", {}).get(promise.name, "correct the row settings first")


def _how(promise: Promise, more: Mapping[str, Any]) -> str:
    """Returns what there is to add about how it was tried."""
    if promise.name == "secrets":
        return f"; they find {', '.join(more['variables'])}"
    if promise.name == "files" and more["redis"]:
        return " (Redis, too, answers outside of it)"
    if promise.name == "bounds":
        how = "a control group" if more["groups"] else "measuring: no control group is delegated to this process"
        return f"; memory by {how}"
    return f" (all but {promise.untried})" if promise.untried else ""


def network(hosts: list[str]) -> str:
    return f"network: only {', '.join(hosts)}" if hosts else "no network"
