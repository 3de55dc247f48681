"""The sandbox that bubblewrap builds: no network, no secrets, one writable place, nothing alive afterwards."""

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
"""``timeout`` takes the alarm of our death for its own and kills the process group: bubblewrap's child, too, which
would wait for ever were only its parent killed, and that before it could make the child die with it.
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

    ``bwrap`` is for the self-test; everyone else gets the one that passed it. ``shown`` is what commands find besides
    the system's own programs; default: what the machine has for them. ``marks`` is the directory for marks; without
    one none are kept. ``read_only`` keeps commands from changing the workspace.
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
        """Why commands cannot be run safely here, or None. Says so too as long as nobody has tested it."""
        if self._bwrap:
            return None
        return self._proof.reason if self._proof else "the sandbox has not been tested yet"

    @classmethod
    async def selftest(cls, home: Path | None = None) -> str | None:
        """None where sandboxes keep all promises here, else which not and how to mend it. Run once per process.

        ``home`` is where workspaces will lie; without it, a temporary directory shows the same of the machine.
        """
        if cls._proof is None:
            cls._proof = await prove(cls, home, environment.bubblewraps())
        return cls._proof.reason

    def program(self, name: str) -> str | None:
        """Where a command finds this program, or None where the sandbox has none of that name."""
        return environment.program(name, self._shown)

    def outcome(self, mark: str) -> int | Literal[False] | None:
        """Of a command that another process may have run: its exit code, False where it never began, None where it
        began and nobody knows how far it came."""
        return outcome_in(self._marks, mark) if self._marks else None

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs to the end, the timeout or cancellation; no process of it is alive afterwards.

        ``on_output`` gets what both streams say, as it comes. Raises ToolError: SANDBOX_UNAVAILABLE where commands
        cannot be run safely, EXECUTION_FAILED where this one cannot be started.
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
        """A command that goes on by itself; the caller must see to its end. ``interactive`` leaves its input open.

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
        """Adds to ``reaped`` what of an ended process had to be killed; gives what the command itself said."""
        said, left = left_behind(stderr, self._word)
        self.reaped += [*process.reaped, *left]
        return said

    def _command_line(self, command: Command, fds: list[int], *, interactive: bool) -> list[str]:
        """The argument vector; descriptors that go with it are added to ``fds``."""
        bwrap = self._bwrap or (self._proof.bwrap if self._proof else None)
        if bwrap is None:
            raise Misconfigured(self.broken or "no bubblewrap passed the self-test")
        tool = environment.tool
        _refuse_nul(command.argv)
        outer = [tool("choom"), "-n", "800", "--"]  # the OOM killer takes the sandbox, not the worker
        program = bwrap.program
        if owner := environment.owner():
            stage = self._on_stage(bwrap)
            outer += [tool("nsenter"), f"--mount=/proc/{os.getpid()}/fd/{stage.fd}"]
            outer += [f"--setgid={owner[1]}", f"--setuid={owner[0]}", "--"]
            if bwrap.parts:
                program = Path(stage.place("bwrap"), program.relative_to(bwrap.parts[0].parent))
        _refuse_nul(settings := self._options(command, fds))
        options = _memory("options", b"\0".join(map(os.fsencode, settings)), fds)
        script = guard(quiet=not interactive and not command.stdin, merged=command.merged)
        seconds = math.ceil(command.timeout) + 10  # we end it earlier, if we are not stopped ourselves
        outer += [tool("setpriv"), *_DIES_WITH_US, tool("timeout"), "--signal=KILL", str(seconds)]
        inner = [tool("prlimit"), *_LIMITS, "--", GUARD_SHELL, "-c", script, "guard"]
        return [*outer, str(program), "--args", str(options), "--", *inner, *command.argv]

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        options = [*_NAMESPACES, *environment.system_directories()]
        for path, content in environment.ETC.items():
            options += ["--perms", "0444", "--ro-bind-data", str(_memory("etc", content, fds)), path]
        # Not readable, it makes a process that no command can read or change, whoever owns both.
        shell = str(_memory("guard", _shell(), fds))
        options += ["--perms", "0111", "--ro-bind-data", shell, GUARD_SHELL]
        options += _DEVICES
        for shown in self._shown:  # after the sandbox's own /tmp, so that it does not cover what lies below ours
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
            # Bubblewrap itself writes it, from outside the sandbox, and dies with us.
            fds.append(new_mark(self._marks, command.mark))
            options += ["--json-status-fd", str(fds[-1])]
        return [*options, "--seccomp", str(_memory("seccomp", seccomp.program(), fds))]

    def _on_stage(self, bwrap: Bwrap) -> MountNamespace:
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
    """Raises ValueError where an option contains a NUL: it ends an option, and what follows would be another one."""
    if wrong := next((option for option in options if "\0" in option), None):
        before = wrong.partition("\0")[0][-60:]
        raise ValueError(
            f"a command, its variables and its paths contain no NUL character; one stands after {before!r}"
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
            loop.call_soon(tell, data)  # a listener that fails is reported by the loop and does no harm here

    return sink


def _memory(name: str, data: bytes, fds: list[int]) -> int:
    """A descriptor to read ``data`` from; bubblewrap closes it once it has."""
    fds.append(fd := os.memfd_create(name))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
