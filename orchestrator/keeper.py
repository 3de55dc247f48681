"""The keeper: the one parent of this machine's Redis, workers, API and Flower. Nothing of them outlives it.

Detached (`python -m orchestrator.keeper`) it stops when its last user is gone; `deputize up` runs it in the foreground.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import IO, Any

from orchestrator.child import EXIT_MISCONFIGURED, Child, Program, python
from orchestrator.flower import Flower
from orchestrator.listening import listen, url_of
from orchestrator.redis_server import prepare
from orchestrator.stack import StackInfo, Wanted, read_info, try_lock, until_ready, write_info
from shared.errors import DeputizeError, Misconfigured
from shared.log import log, set_up
from shared.settings import Settings
from shared.visible import visible

UNUSED_SECONDS = 1.0
UNUSED_TICK_SECONDS = 0.2
CLEANUP_SECONDS = 12.0
"""What a worker may need for cleaning up when its ``shutdown_seconds`` are over."""

Say = Callable[[StackInfo], None]


class Keeper:
    """One stack. Its addresses are known before anything is started, so everything starts at the same time."""

    def __init__(self, settings: Settings, wanted: Wanted, port: int, token: str = "") -> None:
        self._home = home = settings.home
        (home / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._redis: Child | None = None
        redis_url = settings.redis_url
        if redis_url is None:
            embedded = prepare(home / "redis")
            redis_url = embedded.url
            self._redis = Child(Program("redis", embedded.command, environment={}), home)
        self._listening = listen(settings.host, port)
        flower = Flower() if wanted.flower else None
        self.info = StackInfo(
            pid=os.getpid(),
            url=url_of(self._listening),
            token=settings.token.get_secret_value() if settings.token else token,
            redis_url=redis_url,
            flower_url=flower.url if flower else None,
            workers=wanted.workers,
        )
        said: dict[str, Any] = {"redis_url": redis_url, "local": self._redis is not None}
        if wanted.concurrency is not None:
            said["concurrency"] = wanted.concurrency
        environment = settings.model_copy(update=said).child_environment()
        if self.info.token:
            environment["DEPUTIZE_TOKEN"] = self.info.token
        programs = [self._api(environment), *_workers(wanted.workers, environment, settings.shutdown_seconds)]
        if flower:
            programs.append(flower.program(environment, home))
        self._others = [Child(program, home) for program in programs]

    def _api(self, environment: Mapping[str, str]) -> Program:
        socket = self._listening.fileno()
        return Program("api", python("orchestrator.serve", "--fd", str(socket)), environment, pass_fds=[socket])

    async def run(self, until: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Keeps everything alive ``until`` something, or a signal to stop. Raises Misconfigured."""
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop, asked)
        children = [self._redis, *self._others] if self._redis else self._others
        keeping = [asyncio.create_task(child.keep(), name=child.program.name) for child in children]
        ending = [asyncio.create_task(until()), asyncio.create_task(asked.wait())]
        write_info(self._home, self.info)
        try:
            done, _ = await asyncio.wait([*keeping, *ending], return_when=asyncio.FIRST_COMPLETED)
            log.info("the stack stops")
        finally:
            await self._stop()
            for task in ending:
                task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        for task in done:
            task.result()

    async def _stop(self) -> None:
        """Redis last: whoever stops has something left to write."""
        self._home.joinpath("stack.json").unlink(missing_ok=True)
        await asyncio.gather(*(child.stop() for child in self._others))
        if self._redis:
            await self._redis.stop()

    def _asked_to_stop(self, asked: asyncio.Event) -> None:
        if asked.is_set():  # a second time: no more waiting, leases bring the work back
            for child in self._others:
                child.kill()
        asked.set()


def _workers(count: int, environment: Mapping[str, str], shutdown_seconds: float) -> list[Program]:
    stop_seconds = shutdown_seconds + CLEANUP_SECONDS
    return [
        Program(f"worker-{n}", python("worker", "--name", str(n)), environment, stop_seconds)
        for n in range(1, count + 1)
    ]


def run_foreground(settings: Settings, wanted: Wanted, say: Say) -> None:
    """Runs a stack in this process until SIGINT or SIGTERM. Tells where it listens when it is ready."""

    async def work() -> None:
        keeper = Keeper(settings, wanted, settings.port)

        async def announce() -> None:
            await until_ready(keeper.info)
            say(keeper.info)
            await asyncio.Event().wait()

        await keeper.run(announce)

    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.home / "keeper.lock").open("ab") as lock:
        if not try_lock(lock, fcntl.LOCK_EX):
            there = read_info(settings.home)
            where = f" at {there.url}" if there else ""
            raise Misconfigured(f"a stack runs on this machine already{where}; use it, or set another DEPUTIZE_HOME")
        asyncio.run(work())


async def until_unused(users: IO[bytes]) -> None:
    """Returns when nobody has used the stack for a moment, and then keeps new users out until this process ends."""
    free_since: float | None = None
    while True:
        if not try_lock(users, fcntl.LOCK_EX):
            free_since = None
        else:
            free_since = free_since or time.monotonic()
            if time.monotonic() - free_since > UNUSED_SECONDS:
                return
            fcntl.flock(users, fcntl.LOCK_UN)
        await asyncio.sleep(UNUSED_TICK_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m orchestrator.keeper", description="The stack of this machine.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--flower", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lock-fd", type=int, required=True, help="keeper.lock, held by whoever started this")
    options = parser.parse_args(arguments)
    # Not for the children: a worker that hangs must not look like a keeper.
    os.set_inheritable(options.lock_fd, False)
    try:
        settings = Settings.load()
        set_up(settings.log_level)
        with (settings.home / "users.lock").open("ab") as users:
            wanted = Wanted(options.workers, options.concurrency, options.flower)
            # Its users find the token in stack.json; nobody else was told that there is an API at all.
            keeper = Keeper(settings, wanted, options.port, token=secrets.token_urlsafe(32))
            asyncio.run(keeper.run(lambda: until_unused(users)))
    except DeputizeError as error:
        print(f"keeper: {visible(str(error))}", file=sys.stderr)  # noqa: T201 - the last word of this process
        return EXIT_MISCONFIGURED
    return 0


if __name__ == "__main__":
    sys.exit(main())
