"""The line to one server, opened as its configuration says: a program in the sandbox or outside of it, or HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from shared.errors import Misconfigured
from worker.mcp.entry import Server
from worker.mcp.free_program import FreeProgram
from worker.mcp.pipes import Incoming, Outgoing, Program
from worker.mcp.remote import reached
from worker.mcp.shown import needed, program_of
from worker.sandbox.base import Command, Sandbox
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.buffers import Kept
from worker.sandbox.environment import MOUNT, search_path, shown
from worker.schemas.pool import ValidatorPool
from worker.threads import to_the_end
from worker.workspace.files import Files

GRACE_SECONDS = 0.5
"""How long a server may take to end by itself once its input has ended; then it is ended."""
_LONGEST_RUN = 25 * 3600.0
_MAX_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Caller:
    """The run that opens lines: its files, its sandbox, and the worker's variables."""

    files: Files
    sandbox: Sandbox
    environ: Mapping[str, str]
    validators: ValidatorPool = field(default_factory=ValidatorPool)
    read_only: bool = False


class Line:
    """One line's ``streams`` as the SDK wants them; ``over`` is set when nothing can come any more."""

    def __init__(self, streams: Any, over: asyncio.Event | None = None) -> None:
        self.streams = streams
        self.over = over or asyncio.Event()


@dataclass(slots=True)
class Words:
    """What a server said beside its messages, kept for the moment in which it fails."""

    kept: Kept = field(default_factory=lambda: Kept(_MAX_WORDS))

    def add(self, data: bytes) -> None:
        self.kept.add(data)

    def __str__(self) -> str:
        return " ".join(self.kept.data.decode("utf-8", "replace").split())


@asynccontextmanager
async def opened(server: Server, caller: Caller, words: Words) -> AsyncGenerator[Line]:
    """The line, until the block ends; then nothing of the server is alive here.

    Raises ``Misconfigured`` and ``ToolError`` where its program cannot be started.
    """
    if server.type != "stdio":
        over = asyncio.Event()
        async with reached(server, words.add, over.set) as streams:
            yield Line(streams, over)
    elif server.sandbox:
        async with _sandboxed(server, caller, words) as line:
            yield line
    else:
        incoming = Incoming(words.add)
        async with _talking(_free(server, caller, incoming, words), incoming, caller) as line:
            yield line


@asynccontextmanager
async def _sandboxed(server: Server, caller: Caller, words: Words) -> AsyncGenerator[Line]:
    """A program that sees the workspace and what it needs to run; no network, and of the environment what is named."""
    if caller.sandbox.broken:
        raise Misconfigured(f"it would run in the sandbox, and {caller.sandbox.broken}")
    program = program_of(server.command, _path(server, caller))
    visible = [*shown(), *await to_the_end(needed, program, server.show)]
    beside = [str(Path(program).parent)] if program.startswith("/") else []
    command = Command(
        [program, *server.args],
        timeout=_LONGEST_RUN,
        cwd=_inside(server.cwd or "."),
        env={"PATH": ":".join([*beside, search_path(visible)]), **server.env},
    )
    incoming = Incoming(words.add)
    with Bubblewrap(caller.files.root, shown=visible, read_only=caller.read_only) as sandbox:
        process = await sandbox.start(command, incoming.feed, words.add, interactive=True)
        async with _talking(process, incoming, caller) as line:
            yield line


def _free(server: Server, caller: Caller, incoming: Incoming, words: Words) -> FreeProgram:
    """A program with this machine's network and files, as the operator decided; still not with its secrets.

    Raises ``Misconfigured`` where it may not change the run's files and only its own word would keep it from that.
    """
    if caller.read_only and not server.trust:
        raise Misconfigured(
            "this delegation is read-only (approvalMode readOnly), and outside of the sandbox nothing keeps it from "
            'changing files; "trust" in mcp.json lets it run all the same'
        )
    inherited = {name: caller.environ[name] for name in DEFAULT_INHERITED_ENV_VARS if name in caller.environ}
    argv = [program_of(server.command, _path(server, caller), sandbox=False), *server.args]
    cwd = os.path.join(caller.files.root, server.cwd or "")  # noqa: PTH118 - an absolute one replaces the root
    return FreeProgram(argv, {**inherited, **server.env}, cwd, incoming.feed, words.add)


@asynccontextmanager
async def _talking(program: Program, incoming: Incoming, caller: Caller) -> AsyncGenerator[Line]:
    incoming.pause = program.pause
    program.ended.add_done_callback(lambda _: incoming.end())
    try:
        yield Line((incoming, Outgoing(program, incoming)), incoming.over)
    finally:
        program.close_stdin()
        try:
            await asyncio.wait([program.ended], timeout=GRACE_SECONDS)
            await program.end()
        finally:
            program.kill()  # where we were cancelled meanwhile
            caller.sandbox.reaped += program.reaped


def _inside(cwd: str) -> str:
    """The directory as seen from the workspace, where the sandbox's commands start."""
    return os.path.relpath(cwd, MOUNT) if cwd.startswith("/") else cwd


def _path(server: Server, caller: Caller) -> str:
    return server.env.get("PATH") or caller.environ.get("PATH", os.defpath)
