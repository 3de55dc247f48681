"""Flower, Celery's monitoring page, as a program of the stack."""

from __future__ import annotations

from ..shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import argparse
import asyncio
import fcntl
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..shared.errors import DeputizeError, Misconfigured
from ..shared.ids import first_id
from ..shared.libc import keep_memory_private
from ..shared.log import log, log_uncaught, set_up
from ..shared.settings import Settings
from ..shared.text import visible
from ..shared.wire import now
from .child import EXIT_MISCONFIGURED, KILLED_SECONDS, Child, ChildProgram, hard_timeout, python
from .home import (
    INFO,
    SUPERVISOR_LOCK,
    USERS_LOCK,
    StackInfo,
    holder,
    is_full,
    no_space,
    open_private,
    prepare_home,
    read_info,
    sign,
    try_lock,
    until_unused,
    unusable,
    write_info,
)
from .redis_server import EmbeddedRedis, prepare
from .sockets import free_port, listen, url_of
from .stack import StackOptions, setting_digests, until_ready


class Flower:
    """Flower, read-only, on loopback and with a password.

    Without a password its API must be unauthenticated, and then it allows every origin by CORS.
    """

    def __init__(self) -> None:
        self._port = free_port()
        self._user = f"deputize:{secrets.token_urlsafe(16)}"
        self.url = f"http://{self._user}@127.0.0.1:{self._port}"

    def program(self, environment: Mapping[str, str], home: Path) -> ChildProgram:
        options = {
            "address": "127.0.0.1",
            "port": self._port,
            "read-only": "true",
            "persistent": "true",
            "db": home / "flower.db",
            "state-save-interval": 10_000,
            "tasks-columns": "name,uuid,state,args,result,received,started,runtime,worker",
            "natural-time": "true",
            "purge-offline-workers": 600,
            # Delegations take minutes: Prometheus' default buckets end at ten seconds.
            "task-runtime-metric-buckets": "1,5,15,60,300,900,3600,14400",
        }
        command = python("celery", "--app", "deputize.shared.queue:app", "flower")
        # Flower needs neither the service's token nor a key.
        keyless = {name: text for name, text in environment.items() if not name.startswith("DEPUTIZE_TOKEN")}
        return ChildProgram(
            "flower",
            [*command, *(f"--{name}={value}" for name, value in options.items())],
            keyless | {"FLOWER_BASIC_AUTH": self._user},  # other users of this machine could read an argument
        )


CLEANUP_SECONDS = 12.0
"""Seconds that a worker may need for cleaning up after its ``shutdown_seconds``."""
PRIVATE_UMASK = 0o077

OnReady = Callable[[StackInfo], None]
Report = Callable[[str], None]
Until = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Runs one stack. Its addresses are known before the start, so that all programs start concurrently."""

    def __init__(self, settings: Settings, wanted: StackOptions, port: int, *, stays: bool = False) -> None:
        self._home = home = settings.home
        self.report: Report | None = None
        """Receives the progress of the start and the end."""
        (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._redis: Child | None = None
        self._embedded: EmbeddedRedis | None = None
        redis_url = settings.redis_url
        if redis_url is None:
            self._embedded = embedded = prepare(home / "redis")
            redis_url = embedded.url
            self._redis = Child(ChildProgram("redis", embedded.command, environment={}, needs_room=True), home)
        self._listening = listen(settings.host, port)
        flower = Flower() if wanted.flower else None
        # Users of this stack read the token from stack.json, which only their user can read.
        made = "" if settings.no_token and settings.tokens_file is None else secrets.token_urlsafe(32)
        self.info = StackInfo(
            pid=os.getpid(),
            url=url_of(self._listening),
            token=settings.token.get_secret_value() if settings.token else made,
            redis_url=redis_url,
            flower_url=flower.url if flower else None,
            workers=wanted.workers,
            settings=setting_digests(settings),
            stays=stays,
        )
        environment = self._environment(settings, wanted)
        self._worker_environment = environment | settings.endpoint_variables()
        self._worker_stop_seconds = settings.shutdown_seconds + CLEANUP_SECONDS
        programs = [self._api(environment), *(self._worker(n) for n in range(1, wanted.workers + 1))]
        if flower:
            programs.append(flower.program(environment, home))
        self._others = [Child(program, home) for program in programs]
        self._running: set[asyncio.Task[None]] = set()
        self._ended: list[asyncio.Task[None]] = []
        """In the order of their ends: the first failure is the cause of the others."""
        self.ready = asyncio.Event()
        """Whether the stack was ready for work once."""

    def _environment(self, settings: Settings, wanted: StackOptions) -> dict[str, str]:
        own = {"temporary": not self.info.stays, "stack_since": first_id(now())} if self._redis else {}
        changes: dict[str, Any] = {"redis_url": self.info.redis_url, "local": self._redis is not None, **own}
        if wanted.concurrency is not None:
            changes["concurrency"] = wanted.concurrency
        environment = settings.model_copy(update=changes).child_environment()
        return environment | ({"DEPUTIZE_TOKEN": self.info.token} if self.info.token else {})

    def _api(self, environment: Mapping[str, str]) -> ChildProgram:
        socket = self._listening.fileno()
        command = python("deputize.orchestrator.serve", "--fd", str(socket))
        return ChildProgram("api", command, environment, pass_fds=[socket])

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
        asked, failed = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop, asked)
        loop.add_signal_handler(signal.SIGUSR1, self._add_worker, failed)
        waiting = [
            asyncio.create_task(wait) for wait in (until(), asked.wait(), failed.wait(), self._wait_until_ready())
        ]
        try:
            for child in [self._redis, *self._others] if self._redis else self._others:
                self._start_child(child, failed)
            write_info(self._home, self.info)
            await asyncio.wait(waiting[:3], return_when=asyncio.FIRST_COMPLETED)
            log.info("the stack stops")
        finally:
            with hard_timeout(self._longest_stop()):
                await self._stop()
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*self._running, *waiting, return_exceptions=True)
        for ended in [*self._ended, *waiting]:
            if not ended.cancelled():
                ended.result()

    def _start_child(self, child: Child, failed: asyncio.Event) -> None:
        task = asyncio.create_task(child.run(), name=child.program.name)
        self._running.add(task)
        task.add_done_callback(self._ended.append)
        task.add_done_callback(lambda _: failed.set())

    async def _wait_until_ready(self) -> None:
        await until_ready(self.info, self.report)
        for child in [self._redis, *self._others] if self._redis else self._others:
            child.was_ready = True
        self.ready.set()

    def _add_worker(self, failed: asyncio.Event) -> None:
        """Adds a worker to a stack that was started read-only and now has work."""
        if self.info.workers:
            return
        self.info = replace(self.info, workers=1)
        child = Child(self._worker(1), self._home)
        self._others.append(child)
        self._start_child(child, failed)
        try:
            write_info(self._home, self.info)
        except OSError as error:
            log.error("%s", unusable(self._home, error))
            failed.set()

    async def _stop(self) -> None:
        """Stops all programs, Redis last: the others write to it while they stop."""
        with suppress(OSError):  # a disk that became read-only must not keep anything alive
            self._home.joinpath(INFO).unlink(missing_ok=True)
        await asyncio.gather(*(child.stop() for child in self._others))
        if self._redis:
            await self._redis.stop()
        if self._embedded:
            self._embedded.clear()

    def _longest_stop(self) -> float:
        children = [*self._others, self._redis] if self._redis else self._others
        return sum(child.program.stop_seconds + KILLED_SECONDS for child in children)

    def _asked_to_stop(self, asked: asyncio.Event) -> None:
        if asked.is_set():  # a second signal: kill now, leases recover the work
            for child in self._others:
                child.kill()
        elif self.report:
            self.report(f"stopping, within {self._longest_stop():.0f} s; Ctrl-C again kills what still runs")
        asked.set()


def run_foreground(settings: Settings, wanted: StackOptions, on_ready: OnReady, report: Report) -> None:
    """Runs a stack in this process until SIGINT or SIGTERM.

    Calls ``on_ready`` with its description, and ``report`` with its progress at the start and at the end.
    """

    async def work() -> None:
        supervisor = Supervisor(settings, wanted, settings.port, stays=True)
        supervisor.report = report

        async def announce() -> None:
            await supervisor.ready.wait()
            on_ready(supervisor.info)
            await asyncio.Event().wait()

        await supervisor.run(announce)

    keep_memory_private()
    os.umask(PRIVATE_UMASK)
    prepare_home(settings.home)
    try:
        with open_private(settings.home / SUPERVISOR_LOCK, "ab") as lock:
            if not try_lock(lock, fcntl.LOCK_EX):
                there, pid = read_info(settings.home), holder(settings.home)
                where = f" at {there.url}" if there else f" (process {pid})" if pid else ""
                raise Misconfigured(
                    f"a stack runs on this machine already{where}; use it, or set another DEPUTIZE_HOME"
                )
            sign(lock.fileno())
            asyncio.run(work())
    except (OSError, DeputizeError) as error:
        raise _with_disk_error(settings.home, error) from None


def _with_disk_error(home: Path, error: OSError | DeputizeError) -> DeputizeError:
    """Returns the error, attributed to the full disk if there is one."""
    if isinstance(error, DeputizeError):
        return Misconfigured(f"{no_space(home)} ({error})") if is_full(home) else error
    return unusable(home, error)


def main(arguments: Sequence[str] | None = None) -> int:
    keep_memory_private()
    options = _parse(arguments)
    # Not inherited: a hung worker must not hold the supervisor's lock.
    os.set_inheritable(options.lock_fd, False)
    os.set_inheritable(options.error_fd, False)
    os.umask(PRIVATE_UMASK)
    sign(options.lock_fd)
    try:
        # The model's key comes by stdin, because the environment is readable until the process is made private.
        settings = Settings.load(model_endpoint=json.load(sys.stdin))
        set_up(settings.log_level, settings.secrets)
        log_uncaught()
        try:
            _run(settings, options)
        except (OSError, DeputizeError) as error:
            raise _with_disk_error(settings.home, error) from None
    except DeputizeError as error:
        with suppress(OSError):  # the starter has gone
            os.write(options.error_fd, f"{error}"[:4000].encode())
        with suppress(OSError):  # no space left for it
            print(f"supervisor: {visible(str(error))}", file=sys.stderr, flush=True)  # noqa: T201 - this process's final error
        return EXIT_MISCONFIGURED
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The stack of this machine.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--flower", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--lock-fd", type=int, required=True, help="supervisor.lock, held by the process that started this one"
    )
    parser.add_argument("--error-fd", type=int, required=True, help="a pipe for its final error")
    return parser.parse_args(arguments)


def _run(settings: Settings, options: argparse.Namespace) -> None:
    async def work() -> None:
        wanted = StackOptions(options.workers, options.concurrency, options.flower)
        await Supervisor(settings, wanted, options.port).run(lambda: until_unused(users))

    with open_private(settings.home / USERS_LOCK, "ab") as users:
        asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main())
