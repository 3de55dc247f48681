"""The transport to one server, by its configuration: a process inside or outside of the sandbox, or HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from ...shared.errors import Misconfigured
from ..contracts import Command
from ..linux.program import Program, Sink, piped
from ..sandbox import environment
from ..sandbox.bubblewrap import Bubblewrap, Sandbox
from ..sandbox.buffers import BoundedBuffer
from ..sandbox.environment import MOUNT, SYSTEM, BindMount, is_below, search_path
from ..sandbox.process import Process
from ..threads import run_in_thread
from ..workspace.files import Files
from . import subreaper as supervisor
from .config import Server
from .streams import Incoming, Outgoing, reached

_SANDBOXS_OWN = (MOUNT, "/proc", "/dev")
_MOST_LINKS = 16
_PYTHON = ("lib/python3*",)
_INSTALLED = (*_PYTHON, "lib/node_modules")
GRACE_SECONDS = 0.5
"""How long a server may take to exit once its input has ended, before it is killed."""
_GRACE = 1.0
_PATIENCE = 5.0


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
        if is_below(path, _SANDBOXS_OWN):
            raise Misconfigured(f"show names {path}, but the sandbox has its own /{path.parts[1]}")
    wanted = [*_installation(program), *asked]
    own = [mount.target for mount in environment.program_mounts()]
    hidden = sorted({path for path in wanted if not is_below(path, (*SYSTEM, *own)) and path.exists()})
    roots = [path for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]
    return [BindMount(f"mcp-{number}", path, str(path)) for number, path in enumerate(roots)]


def _installation(program: str) -> Iterator[Path]:
    """Yields the directories or files of the program's installation, along the links that lead to it."""
    path = Path(program)
    for _ in range(_MOST_LINKS):
        if not path.is_absolute() or not path.exists() or is_below(path, (*SYSTEM, *_SANDBOXS_OWN)):
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


@dataclass(frozen=True, slots=True)
class RunScope:
    """The run that connects: its files, its sandbox, and the worker's variables."""

    files: Files
    sandbox: Sandbox
    environ: Mapping[str, str]
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Transport:
    """The ``streams`` for the SDK's client; ``over`` is set when the connection has ended, ``why`` has the reason."""

    streams: Any
    over: asyncio.Event
    why: Callable[[], str] = lambda: ""


@asynccontextmanager
async def opened(server: Server, caller: RunScope, words: BoundedBuffer) -> AsyncGenerator[Transport]:
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
async def _sandboxed(server: Server, caller: RunScope, words: BoundedBuffer) -> AsyncGenerator[Transport]:
    """Runs a program with the workspace, its installation and the configured variables, without network."""
    if caller.sandbox.broken:
        raise Misconfigured(f"it would run in the sandbox, and {caller.sandbox.broken}")
    program = program_of(server.command, _path(server, caller))
    visible = [*environment.program_mounts(), *await run_in_thread(needed, program, server.show)]
    beside = [str(Path(program).parent)] if program.startswith("/") else []
    command = Command(
        [program, *server.args],
        timeout=None,
        cwd=_inside(server.cwd or "."),
        env={"PATH": ":".join([*beside, search_path(visible)]), **server.env},
    )
    incoming = Incoming(words.add)
    bounds = caller.sandbox.bounds
    with Bubblewrap(caller.files.root, mounts=visible, read_only=caller.read_only, bounds=bounds) as sandbox:
        process = await sandbox.start(command, incoming.feed, words.add, interactive=True)
        async with _talking(process, incoming, caller) as line:
            yield line


def _free(server: Server, caller: RunScope, incoming: Incoming, words: BoundedBuffer) -> FreeProgram:
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
async def _talking(program: FreeProgram | Process, incoming: Incoming, caller: RunScope) -> AsyncGenerator[Transport]:
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


class FreeProgram(Program):
    """A server process outside of the sandbox, as configured by the operator, which never outlives its worker.

    A supervisor process of its own ends it and everything it has started when the worker dies, even if the worker is
    killed. Start it only from the loop's thread: the kernel has it killed when that thread ends.

    A program that cannot be started is reported on stderr. Raises ``Misconfigured`` if the supervisor cannot be
    started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, on_stdout: Sink, on_stderr: Sink) -> None:
        self._name = argv[0]
        super().__init__(_supervised(supervisor.described(argv, env, cwd)), on_stdout, on_stderr, open_end=True)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._finish)

    async def end(self) -> None:
        """Ends the program and its descendants: SIGTERM first, then SIGKILL. Returns when all of them are gone."""
        stages = (signal.SIGTERM, _GRACE), (supervisor.END_ALL, _PATIENCE), (signal.SIGKILL, _PATIENCE)
        for number, seconds in stages:
            if self.ended.done():
                break
            if number == supervisor.END_ALL:
                self.reaped.append(self._name)
            self._tell_supervisor(number)
            await asyncio.wait([self.ended], timeout=seconds)

    def kill(self) -> None:
        """Kills the program and its descendants; ``ended`` follows within milliseconds."""
        if not self.ended.done():
            self._tell_supervisor(supervisor.END_ALL)

    def _tell_supervisor(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _finish(self) -> None:
        """The program has ended; the rest of its pipes is read, even if other processes still hold them."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self._close_pipes()
        if not self.ended.done():
            self.ended.set_result(self._process.returncode)


def _supervised(description: bytes) -> subprocess.Popen[bytes]:
    """Starts the supervisor process. Its environment is empty: the server's variables could change its behaviour."""
    fd = os.memfd_create("server")
    try:
        os.write(fd, description)
        os.lseek(fd, 0, os.SEEK_SET)
        return piped([sys.executable, "-I", "-S", supervisor.__file__, str(fd)], [fd], start_new_session=True)
    except OSError as error:
        raise Misconfigured(f"it cannot be started: {error.strerror}") from None
    finally:
        os.close(fd)
