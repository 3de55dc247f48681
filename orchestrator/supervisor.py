"""Runs one machine's stack: Redis, the API, workers and Flower are its children, which it restarts and stops."""

from __future__ import annotations

from ..shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..shared.errors import DeputizeError, Misconfigured
from ..shared.ids import first_id
from ..shared.log import log, log_uncaught, set_up
from ..shared.own_process import keep_memory_private
from ..shared.settings import Settings
from ..shared.text import visible
from ..shared.wire import now
from .child import EXIT_MISCONFIGURED, KILLED_SECONDS, Child, ChildProgram, hard_timeout, keep_last_logs, python
from .home import (
    INFO,
    OPENED,
    SUPERVISOR_LOCK,
    USERS_LOCK,
    StackInfo,
    is_full,
    kept_token,
    no_space,
    open_private,
    prepare_home,
    sign,
    try_lock,
    until_unused,
    unusable,
    write_info,
)
from .redis_server import EmbeddedRedis, keep_reserve, prepare, rewrite, should_rewrite
from .sockets import free_port, listen, url_of
from .stack import TICK_SECONDS, Report, StackOptions, Stage, already_runs, setting_digests, stage_of

CLEANUP_SECONDS = 12.0
"""Seconds that a worker may need for cleaning up after its ``shutdown_seconds``."""
RESERVE_TICK_SECONDS = 1.0
PRIVATE_UMASK = 0o077
FLOWER_OPTIONS = {
    "address": "127.0.0.1",
    "read-only": "true",
    "persistent": "true",
    "state-save-interval": 10_000,
    # What fits on a screen first: the title is the argument, the last step the result. All tasks have one name.
    "tasks-columns": "args,state,result,runtime,received,worker,uuid",
    "natural-time": "true",
    "purge-offline-workers": 600,
    # Delegations take minutes: Prometheus' default buckets end at ten seconds.
    "task-runtime-metric-buckets": "1,5,15,60,300,900,3600,14400",
}

OnReady = Callable[[StackInfo], None]
Until = Callable[[], Coroutine[Any, Any, None]]


def flower(environment: Mapping[str, str], home: Path) -> tuple[str, ChildProgram]:
    """Returns the address and the program of Celery's monitoring page: read-only, on loopback, with a password.

    Without a password its API must be unauthenticated, and then it allows every origin by CORS.
    """
    port, user = free_port(), f"deputize:{secrets.token_urlsafe(16)}"
    options = {**FLOWER_OPTIONS, "port": port, "db": home / "flower.db"}
    command = python("celery", "--app", "deputize.shared.queue:app", "flower")
    command += [f"--{name}={value}" for name, value in options.items()]
    # Flower needs neither the service's token nor a key. Other users of this machine could read an argument.
    keyless = {name: text for name, text in environment.items() if not name.startswith("DEPUTIZE_TOKEN")}
    program = ChildProgram("flower", command, keyless | {"FLOWER_BASIC_AUTH": user})
    return f"http://{user}@127.0.0.1:{port}", program


class Supervisor:
    """Runs one stack. Its addresses are known before the start, so that all programs start concurrently."""

    def __init__(self, settings: Settings, wanted: StackOptions, port: int, report: Report | None = None) -> None:
        """With ``report``, which receives the progress of the start and the end, the stack stays without users."""
        self._home = home = settings.home
        self._report = report
        (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._embedded: EmbeddedRedis | None = None if settings.redis_url else prepare(home / "redis")
        self._listening = listen(settings.host, port)
        # Users of this stack read the token from stack.json, which only their user can read.
        needs_own = settings.token is None and not (settings.no_token and settings.tokens_file is None)
        self.info = StackInfo(
            pid=os.getpid(),
            url=url_of(self._listening),
            token=kept_token(home) if needs_own else settings.token.get_secret_value() if settings.token else "",
            redis_url=self._embedded.url if self._embedded else settings.redis_url or "",
            flower_url=None,
            workers=wanted.workers,
            settings=setting_digests(settings),
            stays=report is not None,
        )
        environment = self._environment(settings, wanted)
        self._worker_environment = environment | settings.endpoint_variables()
        self._worker_stop_seconds = settings.shutdown_seconds + CLEANUP_SECONDS
        socket = self._listening.fileno()
        serve = python("deputize.orchestrator.serve", "--fd", str(socket))
        redis = [ChildProgram("redis", self._embedded.command, {}, needs_room=True)] if self._embedded else []
        programs = [*redis, ChildProgram("api", serve, environment, pass_fds=[socket])]
        programs += [self._worker(number) for number in range(1, wanted.workers + 1)]
        if wanted.flower:
            url, program = flower(environment, home)
            self.info = replace(self.info, flower_url=url)
            programs.append(program)
        self._children = [Child(program, home) for program in programs]
        self._others = self._children[1:] if self._embedded else self._children[:]
        """All but Redis, which stops after them: they write to it while they stop."""
        self.ready = asyncio.Event()
        """Whether the stack was ready for work once."""
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._failures: list[BaseException] = []
        self._asked = False

    def _environment(self, settings: Settings, wanted: StackOptions) -> dict[str, str]:
        changes: dict[str, Any] = {"redis_url": self.info.redis_url, "local": self._embedded is not None}
        if self._embedded:
            changes |= {"temporary": not self.info.stays, "stack_since": first_id(now())}
        if wanted.concurrency is not None:
            changes["concurrency"] = wanted.concurrency
        environment = settings.model_copy(update=changes).child_environment()
        return environment | ({"DEPUTIZE_TOKEN": self.info.token} if self.info.token else {})

    def _worker(self, number: int) -> ChildProgram:
        command = python("deputize.worker", "--name", str(number))
        return ChildProgram(
            f"worker-{number}",
            command,
            self._worker_environment,
            self._worker_stop_seconds,
            # A run's commands read its files as another user; the private home excludes all others.
            umask=0o022,
        )

    async def run(self, until: Until) -> None:
        """Runs all programs until ``until`` returns, or a signal to stop. Raises Misconfigured and OSError."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGUSR1, self._add_worker)
        waiting = [asyncio.create_task(until()), asyncio.create_task(self._wait_until_ready())]
        try:
            self._watch(waiting[0])
            self._watch(waiting[1], ends=False)
            for child in self._children:
                self._watch(child.start())
            write_info(self._home, self.info)
            if self._embedded:
                self._watch(asyncio.create_task(self._keep_reserve()))
            await self._stopping.wait()
            log.info("the stack stops")
        finally:
            with hard_timeout(self._longest_stop()):
                await self._stop()
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*self._running, return_exceptions=True)
        if self._failures:
            raise self._failures[0]  # the cause of the others

    def _watch(self, task: asyncio.Task[None], *, ends: bool = True) -> None:
        """Lets the stack stop when this task fails or, if ``ends`` is true, when it ends."""

        def ended(_: object) -> None:
            error = None if task.cancelled() else task.exception()
            if error:
                self._failures.append(error)
            if error or ends:
                self._stopping.set()

        self._running.add(task)
        task.add_done_callback(ended)

    async def _wait_until_ready(self) -> None:
        last: Stage | None = None
        while (stage := await stage_of(self.info)) is not None:
            if self._report and stage != last:
                self._report(f"{stage.waits_for} …")
                last = stage
            await asyncio.sleep(TICK_SECONDS)
        for child in self._children:
            child.was_ready = True
        self.ready.set()

    async def _keep_reserve(self) -> None:
        folder = self._home / "redis"
        while not self._stopping.is_set():
            # Without a reserve Redis ends on a full disk, and is started again. Only Linux has the function.
            with suppress(OSError, AttributeError):
                await asyncio.to_thread(keep_reserve, folder)
            with suppress(OSError):
                if await asyncio.to_thread(should_rewrite, folder):
                    await rewrite(self.info.redis_url)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RESERVE_TICK_SECONDS)

    def _add_worker(self) -> None:
        """Adds a worker to a stack that was started read-only and now has work."""
        if self.info.workers:
            return
        self.info = replace(self.info, workers=1)
        child = Child(self._worker(1), self._home)
        self._children.append(child)
        self._others.append(child)
        self._watch(child.start())
        try:
            write_info(self._home, self.info)
        except OSError as error:
            self._failures.append(error)
            self._stopping.set()

    async def _stop(self) -> None:
        with suppress(OSError):  # a disk that became read-only must not keep anything alive
            for each in (INFO, OPENED):
                self._home.joinpath(each).unlink(missing_ok=True)
        await asyncio.gather(*(child.stop() for child in self._others))
        if self._embedded:
            await self._children[0].stop()
            self._embedded.clear()

    def _longest_stop(self) -> float:
        return sum(child.program.stop_seconds + KILLED_SECONDS for child in self._children)

    def _asked_to_stop(self) -> None:
        if self._asked:  # a second signal: kill now, leases recover the work
            for child in self._others:
                child.kill()
        elif self._report:
            self._report(
                f"stopping, within {self._longest_stop():.0f} s; Ctrl-C again kills the processes that still run"
            )
        self._asked = True
        self._stopping.set()


def run_foreground(settings: Settings, wanted: StackOptions, on_ready: OnReady, report: Report) -> None:
    """Runs a stack in this process until SIGINT or SIGTERM.

    Calls ``on_ready`` with its description, and ``report`` with its progress at the start and at the end.
    """

    async def work() -> None:
        supervisor = Supervisor(settings, wanted, settings.port, report)

        async def announce() -> None:
            await supervisor.ready.wait()
            on_ready(supervisor.info)
            await asyncio.Event().wait()

        await supervisor.run(announce)

    keep_memory_private()
    os.umask(PRIVATE_UMASK)
    prepare_home(settings.home)
    with disk_errors(settings.home), open_private(settings.home / SUPERVISOR_LOCK, "ab") as lock:
        if not try_lock(lock, fcntl.LOCK_EX):
            raise already_runs(settings.home)
        sign(lock.fileno())
        keep_last_logs(settings.home)
        asyncio.run(work())


@contextmanager
def disk_errors(home: Path) -> Generator[None]:
    """Raises errors of the file system as Misconfigured, and attributes others to the full disk if there is one."""
    try:
        yield
    except OSError as error:
        raise unusable(home, error) from None
    except DeputizeError as error:
        if not is_full(home):
            raise
        raise Misconfigured(f"{no_space(home)} ({error})") from None


def main() -> int:
    keep_memory_private()
    os.umask(PRIVATE_UMASK)
    # By stdin comes the model's key, too: the environment is readable until the process is made private.
    given = json.load(sys.stdin)
    os.set_inheritable(given["lock_fd"], False)  # a hung worker must not hold the supervisor's lock
    sign(given["lock_fd"])
    try:
        settings = Settings.load(model_endpoint=given["endpoint"])
        set_up(settings.log_level, settings.secrets, settings.log_format)
        log_uncaught()

        async def work() -> None:
            wanted = StackOptions(given["workers"], given["concurrency"], given["flower"], given["stays"])

            async def until_end() -> None:
                await (asyncio.Event().wait() if wanted.stays else until_unused(users))

            report = log.info if wanted.stays else None
            await Supervisor(settings, wanted, given["port"], report).run(until_end)

        with disk_errors(settings.home), open_private(settings.home / USERS_LOCK, "ab") as users:
            asyncio.run(work())
    except DeputizeError as error:
        with suppress(OSError):  # the starter has gone
            os.write(sys.stdout.fileno(), f"{error}"[:4000].encode())
        with suppress(OSError):  # no space left for it
            print(f"supervisor: {visible(str(error))}", file=sys.stderr, flush=True)  # noqa: T201 - this process's final error
        return EXIT_MISCONFIGURED
    return 0


if __name__ == "__main__":
    sys.exit(main())
