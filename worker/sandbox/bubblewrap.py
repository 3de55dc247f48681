"""The sandbox built with bubblewrap: no network, no secrets, one writable directory, no processes left behind."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Self

from shared.errors import ErrorType, Misconfigured, ToolError
from worker.sandbox import environment, seccomp
from worker.sandbox.buffers import BoundedBuffer
from worker.sandbox.command import Command, Completed
from worker.sandbox.environment import MOUNT, BindMount, Bwrap
from worker.sandbox.marks import new_mark, outcome_in
from worker.sandbox.mount_namespace import MountNamespace
from worker.sandbox.process import GUARD_SHELL, Process, Sink, guard, left_behind
from worker.sandbox.selftest import Proof, prove
from worker.sandbox.shells import BackgroundShellManager

_TMP_BYTES = 256 * 1024 * 1024
_DIES_WITH_US = ("--pdeathsig", "ALRM", "--")
"""On the worker's death ``timeout`` receives SIGALRM as from its own timer and kills the process group, including
bubblewrap's child, which would wait for ever if its parent were killed before setting the child's death signal.
"""
_LIMITS = ("--nproc=256", f"--as={4 << 30}", f"--fsize={256 << 20}", "--nofile=1024", "--core=0")
_NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--uid", "1000", "--gid", "1000"),
)
_SCRATCH = "/tmp"  # noqa: S108 - the sandbox's own
_DEVICES = (
    *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
    *("--size", str(16 << 20), "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
    *("--size", str(_TMP_BYTES), "--perms", "1777", "--tmpfs", _SCRATCH),
)
_VARIABLES = {"HOME": _SCRATCH, "USER": "agent", "LANG": "C.UTF-8", "TERM": "dumb"}


class Bubblewrap:
    """Runs commands over the directory ``workspace``, which must belong to ``environment.owner()``.

    ``bwrap`` is for the self-test; the default is the one that passed it. ``shown`` are bind mounts besides the
    system's own programs; default: those of this machine. ``marks`` is the directory for marks; without it none are
    kept. ``read_only`` keeps commands from changing the workspace.
    """

    _proof: ClassVar[Proof | None] = None

    def __init__(
        self,
        workspace: Path,
        bwrap: Bwrap | None = None,
        shown: Sequence[BindMount] | None = None,
        marks: Path | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self._workspace = workspace
        self._read_only = read_only
        self._marks = marks
        self._bwrap = bwrap
        self._shown = environment.shown() if shown is None else shown
        self.reaped: list[str] = []
        self.shells = BackgroundShellManager(self.start, self._note_end, marks)
        self._word = f"left-{secrets.token_hex(16)}"
        self._running: set[Process] = set()
        self._fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stage: MountNamespace | None = None

    def close(self) -> None:
        """Kills what still runs and frees the descriptors."""
        for process in self._running:
            process.kill()
        if self._stage:
            self._stage.close()
            self._stage = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def broken(self) -> str | None:
        """Why commands cannot be run safely here, or None. Not None before the self-test has run."""
        if self._bwrap:
            return None
        return self._proof.reason if self._proof else "the sandbox has not been tested yet"

    @classmethod
    async def selftest(cls, home: Path | None = None) -> str | None:
        """Returns None if sandboxes pass all checks here, else the failed checks and a remedy. Run once per process.

        ``home`` is the directory of the workspaces; default: a temporary directory.
        """
        if cls._proof is None:
            cls._proof = await prove(cls, home, environment.bubblewraps())
        return cls._proof.reason

    def program(self, name: str) -> str | None:
        """Returns the path of a program inside the sandbox, or None if the sandbox lacks it."""
        return environment.program(name, self._shown)

    def outcome(self, mark: str) -> int | Literal[False] | None:
        """Returns the exit code of a command that another process may have run, False if it never started, None if
        it started and its outcome is unknown."""
        return outcome_in(self._marks, mark) if self._marks else None

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs until the end, the timeout or cancellation; none of its processes is alive afterwards.

        ``on_output`` receives the output of both streams as it arrives. Raises ToolError: SANDBOX_UNAVAILABLE if
        commands cannot be run safely, EXECUTION_FAILED if this one cannot be started.
        """
        begun = time.monotonic()
        kept = [BoundedBuffer(command.max_output, command.keep) for _ in range(2)]
        sinks: list[Sink] = [_both(each.add, on_output) for each in kept]
        process = await self.start(command, sinks[0], sinks[1])
        timed_out = False
        try:
            async with asyncio.timeout(command.timeout):
                await asyncio.shield(process.ended)
        except TimeoutError:
            timed_out = True
        finally:
            await process.end()
            stderr = self._note_end(process, kept[1].data)
        if not timed_out and (failure := process.failure):
            raise _not_started(failure, command)
        return Completed(
            exit_code=-9 if timed_out else process.ended.result(),
            stdout=kept[0].data,
            stderr=stderr,
            timed_out=timed_out,
            dropped_bytes=sum(each.dropped for each in kept),
            seconds=time.monotonic() - begun,
        )

    async def start(self, command: Command, on_stdout: Sink, on_stderr: Sink, *, interactive: bool = False) -> Process:
        """Starts a background command that the caller must end. ``interactive`` leaves its input open.

        Raises ToolError as ``run`` does.
        """
        if not self._bwrap and (reason := await self.selftest()):
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"commands cannot be run safely here: {reason}")
        fds: list[int] = []
        try:
            argv = self._command_line(command, fds, interactive=interactive)
            process = Process(argv, fds, None if interactive else command.stdin, on_stdout, on_stderr, self._word)
        except Misconfigured as error:
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, str(error)) from None
        except (OSError, ValueError) as error:
            raise ToolError(ErrorType.EXECUTION_FAILED, f"the command cannot be started: {error}") from None
        finally:
            for fd in fds:
                os.close(fd)
        self._running.add(process)
        process.ended.add_done_callback(lambda _: self._running.discard(process))
        return process

    def _note_end(self, process: Process, stderr: bytes) -> bytes:
        """Adds the killed processes to ``reaped``. Returns the stderr of the command itself."""
        said, left = left_behind(stderr, self._word)
        self.reaped += [*process.reaped, *left]
        return said

    def _command_line(self, command: Command, fds: list[int], *, interactive: bool) -> list[str]:
        """Returns the argument vector; adds its inherited descriptors to ``fds``."""
        bwrap = self._bwrap or (self._proof.bwrap if self._proof else None)
        if bwrap is None:
            raise Misconfigured(self.broken or "no bubblewrap passed the self-test")
        tool = environment.tool
        _refuse_nul(command.argv)
        outer = [tool("choom"), "-n", "800", "--"]  # the OOM killer takes the sandbox, not the worker
        program = bwrap.program
        if owner := environment.owner():
            namespace = self._mount_namespace(bwrap)
            outer += [tool("nsenter"), f"--mount=/proc/{os.getpid()}/fd/{namespace.fd}"]
            outer += [f"--setgid={owner[1]}", f"--setuid={owner[0]}", "--"]
            if bwrap.parts:
                program = Path(namespace.place("bwrap"), program.relative_to(bwrap.parts[0].parent))
        _refuse_nul(settings := self._options(command, fds))
        options = _memory("options", b"\0".join(map(os.fsencode, settings)), fds)
        script = guard(quiet=not interactive and not command.stdin, merged=command.merged)
        seconds = math.ceil(command.timeout) + 10  # the worker ends it earlier, unless the worker itself is stopped
        outer += [tool("setpriv"), *_DIES_WITH_US, tool("timeout"), "--signal=KILL", str(seconds)]
        inner = [tool("prlimit"), *_LIMITS, "--", GUARD_SHELL, "-c", script, "guard"]
        return [*outer, str(program), "--args", str(options), "--", *inner, *command.argv]

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        options = [*_NAMESPACES, *environment.system_directories()]
        for path, content in environment.ETC.items():
            options += ["--perms", "0444", "--ro-bind-data", str(_memory("etc", content, fds)), path]
        # Unreadable, so that commands cannot inspect or change its process, even with the same owner.
        shell = str(_memory("guard", _shell(), fds))
        options += ["--perms", "0111", "--ro-bind-data", shell, GUARD_SHELL]
        options += _DEVICES
        for shown in self._shown:  # after the sandbox's own /tmp, which would cover mounts below the host's
            source = self._stage.place(shown.name) if self._stage else str(shown.source)
            options += ["--ro-bind", source, shown.place]
        if self._stage:
            options += ["--bind", self._stage.place("workspace"), MOUNT]
        else:
            fds.append(os.dup(self._fd))
            options += ["--bind-fd", str(fds[-1]), MOUNT]
        options += ["--remount-ro", MOUNT] * self._read_only
        options += ["--remount-ro", "/", "--chdir", f"{MOUNT}/{command.cwd}"]
        for name, value in {"PATH": environment.search_path(self._shown), **_VARIABLES, **command.env}.items():
            options += ["--setenv", name, value]
        if command.mark and self._marks:
            # Written by bubblewrap from outside of the sandbox, which dies with the worker.
            fds.append(new_mark(self._marks, command.mark))
            options += ["--json-status-fd", str(fds[-1])]
        return [*options, "--seccomp", str(_memory("seccomp", seccomp.program(), fds))]

    def _mount_namespace(self, bwrap: Bwrap) -> MountNamespace:
        if self._stage is None:
            sources = {"workspace": self._workspace}
            sources |= {shown.name: shown.source for shown in self._shown}
            sources |= {f"bwrap/{part.name}": part for part in bwrap.parts}
            self._stage = MountNamespace(sources)
        return self._stage


@cache
def _shell() -> bytes:
    return Path("/bin/sh").read_bytes()


def _refuse_nul(options: Iterable[str]) -> None:
    """Raises ValueError if an option contains a NUL, which separates options."""
    if wrong := next((option for option in options if "\0" in option), None):
        before = wrong.partition("\0")[0][-60:]
        raise ValueError(
            f"a command, its variables and its paths must not contain a NUL character; there is one after {before!r}"
        )


def _not_started(failure: str, command: Command) -> ToolError:
    if "Can't chdir to" in failure:
        return ToolError(ErrorType.NOT_A_DIRECTORY, f"Not a directory: {command.cwd}")
    return ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"the sandbox could not be set up: {failure}")


def _both(keep: Sink, tell: Sink | None) -> Sink:
    loop = asyncio.get_running_loop()

    def sink(data: bytes) -> None:
        keep(data)
        if tell:
            loop.call_soon(tell, data)  # the loop reports exceptions of the callback

    return sink


def _memory(name: str, data: bytes, fds: list[int]) -> int:
    """Returns a descriptor from which bubblewrap reads ``data`` and which it closes."""
    fds.append(fd := os.memfd_create(name))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
