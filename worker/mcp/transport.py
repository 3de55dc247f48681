"""The transport to one server, by its configuration: a process inside or outside of the sandbox, or HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from ...shared.errors import Misconfigured
from ..sandbox import environment
from ..sandbox.base import Sandbox
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.buffers import BoundedBuffer
from ..sandbox.command import Command
from ..sandbox.environment import MOUNT, BindMount, program_mounts, search_path
from ..threads import run_in_thread
from ..workspace.files import Files
from .config import Server
from .free_program import FreeProgram
from .pipes import Incoming, Outgoing, Program, reached

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SANDBOXS_OWN = (MOUNT, "/proc", "/dev")
_MOST_LINKS = 16
_PYTHON = ("lib/python3*",)
_INSTALLED = (*_PYTHON, "lib/node_modules")
GRACE_SECONDS = 0.5
"""How long a server may take to exit once its input has ended, before it is killed."""
_LONGEST_RUN = 25 * 3600.0
_MAX_WORDS = 2000


def program_of(command: str, path: str, *, sandbox: bool = True) -> str:
    """Returns the path of the command's program: the sandbox's own, else the one the worker finds on ``path``."""
    if "/" in command:
        return command
    ours = environment.program(command, environment.program_mounts()) if sandbox else None
    return ours or shutil.which(command, path=path) or command


def needed(program: str, asked: Sequence[Path]) -> list[BindMount]:
    """Returns the bind mounts for a program (an absolute path) and for the paths that the configuration ``asked`` for.

    Raises ``Misconfigured`` for a path that cannot be mounted.
    """
    for path in asked:
        if not path.is_absolute() or not path.exists():
            raise Misconfigured(f"show names {path}, which is not an absolute path of an existing file or directory")
        if _below(path, _SANDBOXS_OWN):
            raise Misconfigured(f"show names {path}, but the sandbox has its own /{path.parts[1]}")
    wanted = [*_installation(program), *asked]
    own = [mount.target for mount in environment.program_mounts()]
    hidden = sorted({path for path in wanted if not _below(path, (*_SYSTEM, *own)) and path.exists()})
    roots = [path for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]
    return [BindMount(f"mcp-{number}", path, str(path)) for number, path in enumerate(roots)]


def _installation(program: str) -> Iterator[Path]:
    """Yields the directories or files of the program's installation, along the links that lead to it."""
    path = Path(program)
    for _ in range(_MOST_LINKS):
        if not path.is_absolute() or not path.exists() or _below(path, (*_SYSTEM, *_SANDBOXS_OWN)):
            return
        prefix = path.parent.parent
        if (prefix / "pyvenv.cfg").is_file():
            yield prefix
            yield from _parts(_base(prefix), _PYTHON)
        else:
            yield from _parts(prefix) or [path]
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def _parts(prefix: Path, installed: Sequence[str] = _INSTALLED) -> list[Path]:
    """Returns ``bin`` and ``lib`` of a prefix with a Python or Node installation, and nothing else of it.

    A prefix in which one of them is a link to another directory is skipped: that whole directory would be mounted.
    """
    if prefix == Path("/") or not any(any(prefix.glob(pattern)) for pattern in installed):
        return []
    parts = [prefix / "bin", prefix / "lib"]
    real = prefix.resolve()
    return parts if all(part.resolve() == real / part.name for part in parts) else []


def _base(venv: Path) -> Path:
    """Returns the prefix of the Python from which a virtual environment was created."""
    settings = (line.partition("=") for line in (venv / "pyvenv.cfg").read_text("utf-8", "replace").splitlines())
    home = next((value.strip() for key, _, value in settings if key.strip() == "home"), "/usr/bin")
    return Path(home).parent


def _below(path: Path, roots: Sequence[str]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


@dataclass(frozen=True, slots=True)
class RunScope:
    """The run that connects: its files, its sandbox, and the worker's variables."""

    files: Files
    sandbox: Sandbox
    environ: Mapping[str, str]
    read_only: bool = False


class Transport:
    """The ``streams`` for the SDK's client; ``over`` is set when the connection has ended, ``why`` has the reason."""

    def __init__(self, streams: Any, over: asyncio.Event, why: Callable[[], str] = lambda: "") -> None:
        self.streams = streams
        self.over = over
        self.why = why


@dataclass(slots=True)
class StderrTail:
    """The end of a server's stderr and other output, for error messages."""

    kept: BoundedBuffer = field(default_factory=lambda: BoundedBuffer(_MAX_WORDS))

    def add(self, data: bytes) -> None:
        self.kept.add(data)

    def __str__(self) -> str:
        return " ".join(self.kept.data.decode("utf-8", "replace").split())


@asynccontextmanager
async def opened(server: Server, caller: RunScope, words: StderrTail) -> AsyncGenerator[Transport]:
    """Yields the transport until the block ends; the server's processes are gone afterwards.

    Raises ``Misconfigured`` and ``ToolError`` if the program cannot be started.
    """
    if server.type != "stdio":
        over = asyncio.Event()
        async with reached(server, words.add, over.set) as streams:
            yield Transport(streams, over)
    elif server.sandbox:
        async with _sandboxed(server, caller, words) as line:
            yield line
    else:
        incoming = Incoming(words.add)
        async with _talking(_free(server, caller, incoming, words), incoming, caller) as line:
            yield line


@asynccontextmanager
async def _sandboxed(server: Server, caller: RunScope, words: StderrTail) -> AsyncGenerator[Transport]:
    """Runs a program with the workspace, its installation and the configured variables, without network."""
    if caller.sandbox.broken:
        raise Misconfigured(f"it would run in the sandbox, and {caller.sandbox.broken}")
    program = program_of(server.command, _path(server, caller))
    visible = [*program_mounts(), *await run_in_thread(needed, program, server.show)]
    beside = [str(Path(program).parent)] if program.startswith("/") else []
    command = Command(
        [program, *server.args],
        timeout=_LONGEST_RUN,
        cwd=_inside(server.cwd or "."),
        env={"PATH": ":".join([*beside, search_path(visible)]), **server.env},
    )
    incoming = Incoming(words.add)
    bounds = caller.sandbox.bounds
    with Bubblewrap(caller.files.root, mounts=visible, read_only=caller.read_only, bounds=bounds) as sandbox:
        process = await sandbox.start(command, incoming.feed, words.add, interactive=True)
        async with _talking(process, incoming, caller) as line:
            yield line


def _free(server: Server, caller: RunScope, incoming: Incoming, words: StderrTail) -> FreeProgram:
    """Runs a program with this machine's network and files, as configured, but without the worker's secrets.

    Raises ``Misconfigured`` in a read-only run, which could not be enforced, unless the server is trusted.
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
async def _talking(program: Program, incoming: Incoming, caller: RunScope) -> AsyncGenerator[Transport]:
    incoming.pause = program.pause
    program.ended.add_done_callback(lambda _: incoming.end())

    def why() -> str:
        ended = f"its process ended with exit code {program.ended.result()}" if program.ended.done() else ""
        return incoming.broken or ended

    try:
        yield Transport((incoming, Outgoing(program, incoming)), incoming.over, why)
    finally:
        program.close_stdin()
        try:
            await asyncio.wait([program.ended], timeout=GRACE_SECONDS)
            await program.end()
        finally:
            program.kill()  # if cancelled meanwhile
            caller.sandbox.reaped += program.reaped


def _inside(cwd: str) -> str:
    """Returns the directory relative to the workspace, where the sandbox's commands start."""
    return os.path.relpath(cwd, MOUNT) if cwd.startswith("/") else cwd


def _path(server: Server, caller: RunScope) -> str:
    return server.env.get("PATH") or caller.environ.get("PATH", os.defpath)
