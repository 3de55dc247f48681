"""The sandbox built with bubblewrap: no network, no secrets, one writable directory, no processes left behind.

Where it does not work, ``NoSandbox`` stands in its place. Nothing runs without isolation.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NoReturn, Self

from ...shared.errors import ErrorType, Misconfigured, ToolError
from ...shared.settings import SandboxSettings
from ..contracts import Command, Completed
from ..linux.system import exhausted
from . import egress, environment, seccomp
from .bounds import Member, RunBounds, WorkerBounds
from .buffers import BoundedBuffer, tee
from .command import create_status_file, read_status_file
from .egress import Egress
from .environment import MOUNT, OFFLINE, SCRATCH, VARIABLES, BindMount, Bwrap
from .layers import CHANGES, fitting, layer_options
from .namespaces import MountNamespace, writable_mount_refusal
from .options import READING_PROGRAMS, guarded, isolation_options, memfd, reading_options, refuse_nul, without_script
from .ports import CommandPorts
from .process import Leftovers, Process, Sink, guard, split_leftovers
from .project_tools import NO_TOOLS, ProjectTools
from .protections import SelfTestResult, run_selftest
from .services import Beside, OnlyPorts
from .shells import BackgroundShellManager

_BUILTINS = frozenset({"cd", "type", "command", ":", "exit", "return", "break", "continue"})
"""What bash does not look for on PATH, of what may only read."""
_TRIES = 3
"""How often it is tried to begin a command that finds the disk full."""
_PARENT_DEATH_SIGNAL = ("--pdeathsig", "ALRM", "--")
"""On the worker's death ``timeout`` receives SIGALRM as from its own timer and kills the process group, including
bubblewrap's child, which would wait for ever if its parent were killed before setting the child's death signal.
"""


class Bubblewrap:
    """Runs commands over the directory ``workspace``, which must belong to ``environment.owner()``.

    ``bwrap`` is for the self-test; the default is the one that passed it. ``mounts`` are bind mounts besides the
    system's own programs; default: those of this machine. ``tools`` are the project's own. ``bounds`` are those of the
    run; default: own ones. ``status_folder`` is the directory of status files; without it none are written.
    ``read_only`` keeps commands from changing the workspace. ``reach`` decides which hosts they reach; default:
    none. ``changes`` is the folder for what they write over the tools' layers; without it they cannot. ``beside`` is
    what runs beside them.
    """

    _selftest_result: ClassVar[SelfTestResult | None] = None

    def __init__(
        self,
        workspace: Path,
        bwrap: Bwrap | None = None,
        mounts: Sequence[BindMount] | None = None,
        status_folder: Path | None = None,
        *,
        tools: ProjectTools = NO_TOOLS,
        bounds: RunBounds | None = None,
        read_only: bool = False,
        reach: Egress | None = None,
        changes: Path | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.beside = beside or OnlyPorts()
        self._workspace, self._tools = workspace, tools
        self.bounds = bounds or WorkerBounds(SandboxSettings()).run(workspace)
        self._owns_bounds = bounds is None
        self._read_only, self._changes = read_only, changes
        self._reach = reach
        self._status_folder = status_folder
        self._bwrap = bwrap
        self._programs = environment.program_mounts() if mounts is None else mounts
        self.reaped: list[str] = []
        """Command lines of the processes killed so far, after a timeout or because they were left behind."""
        self.shells = BackgroundShellManager(self.start, self._record_reaped, status_folder)
        self._nonce = f"left-{secrets.token_hex(16)}"
        self._running: dict[Process, CommandPorts | None] = {}
        self._fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._namespace: MountNamespace | None = None

    def close(self) -> None:
        """Kills what still runs and frees the descriptors."""
        for process in self._running:
            process.kill()
        if self._owns_bounds:
            self.bounds.close()
        if self._namespace:
            self._namespace.close()
            self._namespace = None
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
        return self._selftest_result.reason if self._selftest_result else "the sandbox has not been tested yet"

    @classmethod
    async def selftest(cls, home: Path | None = None) -> str | None:
        """Returns None if sandboxes pass all checks here, else the failed checks and a remedy. Run once per process.

        ``home`` is the directory of the workspaces; default: a temporary directory.
        """
        if cls._selftest_result is None:
            cls._selftest_result = await run_selftest(cls, home, environment.find_bubblewraps())
        return cls._selftest_result.reason

    def program(self, name: str) -> str | None:
        """Returns the path of a program inside the sandbox, or None if the sandbox lacks it."""
        return environment.program(name, self._programs)

    def outcome(self, status_file: str) -> int | Literal[False] | None:
        """Returns the exit code of a command that another process may have run.

        False if it never started, None if it started and its outcome is unknown.
        """
        return read_status_file(self._status_folder, status_file) if self._status_folder else None

    def has_begun(self, status_file: str) -> bool:
        """Returns whether the disk has a trace of such a command."""
        return self._status_folder is not None and self.outcome(status_file) is not False

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        """Runs until the end, the timeout or cancellation; none of its processes is alive afterwards.

        ``on_output`` receives the output of both streams as it arrives. Raises ToolError: SANDBOX_UNAVAILABLE if
        commands cannot be run safely, EXECUTION_FAILED if this one cannot be started.
        """
        for _ in range(_TRIES):
            try:
                return await self._run(command, on_output)
            except ToolError as error:  # it has not begun
                if "no space left" not in error.message.lower():
                    raise
                await self.bounds.until_room()
        return await self._run(command, on_output)

    async def _run(self, command: Command, on_output: Callable[[bytes], None] | None) -> Completed:
        start = time.monotonic()
        buffers = [BoundedBuffer(command.max_output, command.keep) for _ in range(2)]
        sinks: list[Sink] = [tee(buffer.add, on_output) for buffer in buffers]
        process, member = await self._start(command, sinks[0], sinks[1])
        ports, timed_out = self._running.get(process), False
        try:
            async with asyncio.timeout(command.timeout):
                await asyncio.shield(process.ended)
        except TimeoutError:
            timed_out = True
        finally:
            await process.end()
            if ports:
                await ports.closed()
            left = self._record_reaped(process, buffers[1].data)
        if not timed_out and (failure := process.failure):
            if "Can't chdir to" in failure:
                raise ToolError(ErrorType.NOT_A_DIRECTORY, f"Not a directory: {command.cwd}")
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"the sandbox could not be set up: {failure}")
        exit_code = -9 if timed_out else process.ended.result()
        return Completed(
            exit_code=exit_code,
            stdout=buffers[0].data,
            stderr=left.stderr,
            timed_out=timed_out,
            dropped_bytes=sum(buffer.dropped for buffer in buffers),
            seconds=time.monotonic() - start,
            exceeded=member.exceeded,
            found_full_disk=exit_code > 0 and not member.exceeded and await self.bounds.until_room(),
            ended=tuple(left.processes),
            lost=tuple(left.files),
        )

    async def start(
        self,
        command: Command,
        on_stdout: Sink,
        on_stderr: Sink,
        *,
        interactive: bool = False,
        inherited: Sequence[int] = (),
    ) -> Process:
        """Starts a background command that the caller must end. ``interactive`` leaves its input open.

        ``inherited`` are descriptors that it has under the same numbers. Raises ToolError as ``run`` does.
        """
        process, member = await self._start(command, on_stdout, on_stderr, interactive=interactive, inherited=inherited)
        process.ended.add_done_callback(lambda _: member.report(command.argv[-1]))
        return process

    async def _start(
        self,
        command: Command,
        on_stdout: Sink,
        on_stderr: Sink,
        *,
        interactive: bool = False,
        inherited: Sequence[int] = (),
    ) -> tuple[Process, Member]:
        if not self._bwrap and (reason := await self.selftest()):
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"commands cannot be run safely here: {reason}")
        fds: list[int] = []
        write = on_stdout if command.merged else on_stderr
        for sentence in await self.beside.restored():
            write(f"[{sentence}]\n".encode())
        served = {**({egress.PORT: self._reach.serve} if self._reach else {}), **self.beside.served}
        member, ports = await self.bounds.join(), None
        try:
            ports = CommandPorts(served, lambda line: write(line.encode()), fds) if served else None
            argv = [*member.prefix, *self._command_line(command, fds, ports, interactive=interactive)]
            stdin = None if interactive else command.stdin
            process = Process(argv, [*fds, *inherited], stdin, on_stdout, on_stderr, self._nonce, self._mount_refusal)
            process.script, process.keeps_priority = command.argv[-1], command.keeps_priority
            self._register(process, ports)
            member.watch(process, lambda line: write(line.encode()))
            return process, member
        except Misconfigured as error:
            raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, str(error)) from None
        except (OSError, ValueError) as error:
            why = exhausted(error) or str(error)
            raise ToolError(ErrorType.EXECUTION_FAILED, f"the command cannot be started: {why}") from error
        finally:
            for fd in fds:
                os.close(fd)
            if ports and ports not in self._running.values():
                ports.close()
            member.discard_unused()

    def _register(self, process: Process, ports: CommandPorts | None) -> None:
        self._running[process] = ports
        process.ended.add_done_callback(lambda _: self._running.pop(process))
        if ports:
            ports.begin()
            process.ended.add_done_callback(lambda _: ports.close())

    def _record_reaped(self, process: Process, stderr: bytes) -> Leftovers:
        """Adds the killed processes to ``reaped``. Returns what the command itself wrote and left behind."""
        left = split_leftovers(stderr, self._nonce)
        self.reaped += [*process.reaped, *left.processes]
        mounted = {path[len(SCRATCH) + 1 :].split("/")[0] for path in self._targets if path.startswith(f"{SCRATCH}/")}
        return left._replace(files=[name for name in left.files if name not in mounted])

    @property
    def _targets(self) -> list[str]:
        return [*self._roots, *(mount.target for mount in (*self._programs, *self._tools.mounts))]

    def _command_line(
        self, command: Command, fds: list[int], ports: CommandPorts | None, *, interactive: bool
    ) -> list[str]:
        """Returns the argument vector; adds its inherited descriptors to ``fds``."""
        bwrap = self._bwrap or (self._selftest_result.bwrap if self._selftest_result else None)
        if bwrap is None:
            raise Misconfigured(self.broken or "no bubblewrap passed the self-test")
        system_program = environment.system_program
        refuse_nul(command.argv)
        outer = [system_program("choom"), "-n", "800", "--"]  # the OOM killer takes the sandbox, not the worker
        program = bwrap.program
        if owner := environment.owner():
            namespace = self._mount_namespace(bwrap)
            outer += [system_program("nsenter"), f"--mount=/proc/{os.getpid()}/fd/{namespace.fd}"]
            outer += [f"--setgid={owner[1]}", f"--setuid={owner[0]}", "--"]
            if bwrap.parts:
                program = Path(namespace.path("bwrap"), program.relative_to(bwrap.parts[0].parent))
        refuse_nul(settings := self._options(command, fds))
        options = memfd("options", b"\0".join(map(os.fsencode, settings)), fds)
        script = guard(quiet=not interactive and not command.stdin, merged=command.merged)
        # The worker ends it earlier, unless the worker itself is stopped; 0: no limit.
        seconds = 0 if command.timeout is None else math.ceil(command.timeout) + 10
        outer += [system_program("setpriv"), *_PARENT_DEATH_SIGNAL]
        outer += [system_program("timeout"), "--signal=KILL", str(seconds)]
        launcher = ports.launcher(self._programs) if ports else []
        inner = [*guarded(self.bounds.limits, script), *launcher, *without_script(command.argv, fds)]
        return [*outer, str(program), "--args", str(options), "--", *inner]

    def _mount_refusal(self, init: int) -> str | None:
        """Returns why the mounts of a sandbox that is set up must not be used, or None."""
        if not (self._tools.dependencies or self._tools.layers):  # only their paths lead through the workspace
            return None
        made_for_them = [mount.target for mount in (*self._programs, *self._tools.mounts) if mount.writable]
        made_for_them += [layer.target for layer in self._tools.layers if self._changes]
        return writable_mount_refusal(init, [SCRATCH, *self._roots * (not self._read_only), *made_for_them])

    @property
    def _roots(self) -> list[str]:
        """The paths of the workspace inside."""
        return [MOUNT, *([self._tools.alias] if self._tools.alias else [])]

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        options = isolation_options(self.bounds.limits, fds)
        for mount in (*self._programs, *self._tools.mounts):  # after the sandbox's own /tmp, which would cover some
            options += ["--bind" if mount.writable else "--ro-bind", self._source(mount), mount.target]
        options += self._workspace_options(fds)
        system, own = [environment.search_path(self._programs)], self._tools.path
        if any(name not in _BUILTINS and self.program(name) is None for name in command.reads):
            own = [each for each in own if not f"{each}/".startswith(tuple(f"{root}/" for root in self._roots))]
        path = ":".join([READING_PROGRAMS, *system, *own] if command.reads else [*own, *system])
        options += reading_options(fds) if command.reads else []
        if trusted := self._reach.trusted if self._reach else b"":
            options += ["--perms", "0444", "--ro-bind-data", str(memfd("trusted", trusted, fds)), egress.TRUSTED]
        options += ["--remount-ro", "/", "--chdir", f"{MOUNT}/{command.cwd}"]
        network = egress.variables(trusted) if self._reach else OFFLINE
        for name, value in {"PATH": path, **VARIABLES, **network, **self._tools.variables, **command.env}.items():
            options += ["--setenv", name, value]
        if command.status_file and self._status_folder:
            # Written by bubblewrap from outside of the sandbox, which dies with the worker.
            fds.append(create_status_file(self._status_folder, command.status_file))
            options += ["--json-status-fd", str(fds[-1])]
        return [*options, "--seccomp", str(memfd("seccomp", seccomp.program(), fds))]

    def _workspace_options(self, fds: list[int]) -> list[str]:
        options: list[str] = []
        for root in self._roots:
            if self._namespace:
                options += ["--bind", self._namespace.path("workspace"), root]
            else:
                fds.append(os.dup(self._fd))
                options += ["--bind-fd", str(fds[-1]), root]
        for mount, targets in self._tools.missing(self._workspace):
            for target in targets:
                options += ["--ro-bind", self._source(mount), target]
        options += layer_options(fitting(self._tools.layers, self._fd), self._changes, self._place)
        for root in self._roots:
            options += ["--remount-ro", root] * self._read_only
        return options

    def _source(self, mount: BindMount) -> str:
        return self._place(mount.name, mount.source)

    def _place(self, name: str, source: Path) -> str:
        return self._namespace.path(name) if self._namespace else str(source)

    def _mount_namespace(self, bwrap: Bwrap) -> MountNamespace:
        if self._namespace is None:
            sources = {"workspace": self._workspace}
            mounts = (*self._programs, *self._tools.mounts, *self._tools.dependencies.values())
            sources |= {mount.name: mount.source for mount in (*mounts, *self._tools.layers)}
            sources |= {CHANGES: self._changes} if self._changes else {}
            sources |= {f"bwrap/{part.name}": part for part in bwrap.parts}
            self._namespace = MountNamespace(sources)
        return self._namespace


class NoSandbox:
    """A sandbox that refuses to run commands, with a reason."""

    bounds = None
    beside: Beside = OnlyPorts()

    def __init__(self, reason: str) -> None:
        self.broken: str | None = reason
        self.reaped: list[str] = []
        self.shells = BackgroundShellManager(self._refuse)

    def program(self, name: str) -> str | None:
        return None

    def outcome(self, status_file: str) -> int | Literal[False] | None:
        return None

    def has_begun(self, status_file: str) -> bool:
        return False

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return await self._refuse()

    async def _refuse(self, *_: object) -> NoReturn:
        raise ToolError(ErrorType.SANDBOX_UNAVAILABLE, f"commands cannot be run on this worker: {self.broken}")


Sandbox = Bubblewrap | NoSandbox
"""What a run has. Await the ``end`` of its ``shells`` before closing it."""
