"""Redis connections, and a Pipe that batches the commands of many coroutines into few round trips."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, Self, TypeVar

from hiredis import pack_command
from pydantic_core import to_json
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from .background import Backoff, RepeatedCause, essential
from .connection_pool import Pool

T = TypeVar("T")
ScriptCall = tuple[Sequence[str], Mapping[str, Any], Sequence[Any]]
"""Keys, named arguments, and values that follow these as they are, so that large ones are not encoded twice."""
Lasts = Callable[[], bool]

REDIS_DOWN = (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, OSError)
"""Errors of an unreachable Redis: a later retry is right, and every script is idempotent."""
REDIS_ERRORS = (RedisError, OSError)
"""Every error of a Redis command. Background tasks log the cause of any of them and retry."""
REFUSALS = re.compile(
    "(BUSY|CLUSTERDOWN|DENIED|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY|TRYAGAIN|UNBLOCKED|"
    "WRONGPASS) |.*ACL failure in script"
)
"""Replies of a server that refuses for now: it is full, read-only or busy, or its permissions must be corrected.

One that becomes a replica ends the waits of its clients by ``UNBLOCKED``.
"""
NO_WRITES = {
    "'maxmemory'": "its memory is full. Remove what has ended (`deputize prune`), or raise maxmemory",
    "rrors writing to the AOF": "it cannot write its log. Make room on its disk",
    "unable to persist": "it cannot save its data. Make room on its disk",
    "Not enough good replicas": "too few replicas follow it (min-replicas-to-write). Start them, or lower that number",
}
"""Causes for which a server takes no writes, by a part of its words, which are the same in all versions."""
ANSWER_SECONDS = 5.0
"""Seconds a round trip may take; after that Redis counts as unreachable."""
PACE_SECONDS = 0.004
"""Seconds between two round trips that have no waiting caller: commands queued in between are batched."""
_DRIVER = DriverInfo()
"""Shared: for each connection without one, redis-py parses its package's metadata, which takes a millisecond."""


def connect(url: str, *, timeout: float | None = ANSWER_SECONDS, retries: int = 1) -> Redis:
    """Returns a client for ``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://``; it connects when used.

    A ``timeout`` of None is for a ``Pipe``, which times its round trips itself at a lower cost.
    """
    options: dict[str, Any] = {} if url.startswith("unix") else {"socket_keepalive": True}
    options |= {"decode_responses": True, "socket_timeout": timeout, "socket_connect_timeout": timeout}
    options |= {"health_check_interval": 0, "retry": Retry(NoBackoff(), retries)}
    options |= {"max_connections": 1000, "driver_info": _DRIVER}
    if "sentinel" in url.partition(":")[0]:
        from .sentinel import SentinelAddress  # few stores have one

        client = SentinelAddress.of(url).client(**options)
    else:
        client = Redis.from_pool(Pool.from_url(url, **options))
    pool: Any = client.connection_pool
    pool.connection_class = _raising_where_closed(pool.connection_class)
    return client


def _raising_where_closed(base: type[Any]) -> type[Any]:
    """Returns that class of connections; writing to one that is closed raises ConnectionError.

    uvloop raises RuntimeError there, which redis-py passes on: a run would end if Redis restarts between two commands.
    Where another task closes the connection between the check and the write, redis-py writes to None.
    """

    class Connection(base):
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            try:
                await super().send_packed_command(command, check_health)
            except RuntimeError as error:
                raise ConnectionError(str(error)) from error

        async def _send_packed_command(self, command: Any) -> None:
            if self._writer is None:
                raise ConnectionError("the connection was closed while this was sent")
            await super()._send_packed_command(command)

    return Connection


def refuses_for_now(answer: Any) -> bool:
    """Returns whether an error is about the server's state and not about the command."""
    if isinstance(answer, REDIS_DOWN):
        return True
    if not isinstance(answer, ResponseError):
        return False
    words = str(answer).rpartition("caused error: ")[2]  # as a pipeline has them
    return REFUSALS.match(f"{answer.status_code} {words}" if answer.status_code else words) is not None


async def shielded(work: Awaitable[T]) -> T:
    """Awaits commands to Redis; a cancellation takes effect after their replies.

    redis-py on Python 3.11 can swallow a cancellation in the middle of a command; its sender would wait for ever.
    """
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


async def retried(ask: Callable[[], Awaitable[T]], trouble: RepeatedCause | None = None) -> T:
    """Returns the store's reply, however long Redis is unavailable. A cancellation waits for a pending request.

    ``trouble`` logs why it is, and that it is over.
    """
    backoff = Backoff()
    while True:
        try:
            reply = await shielded(ask())
            if trouble:
                trouble.works()
            return reply
        except REDIS_ERRORS as error:
            if trouble:
                trouble.failed(error)
            await backoff.wait()


def database_of(client: Any) -> int:
    """Returns the number of the database that a client uses."""
    return int(client.get_connection_kwargs().get("db") or 0)


def channel_in(database: int, name: str) -> str:
    """Returns the name of a channel for one database of a server: its channels are those of all its databases."""
    prefix, _, rest = name.partition(":")
    return f"{prefix}:db{database}:{rest}" if database else name


async def publish(client: Any, channel: str, message: str) -> None:
    """Publishes to those who listen to a channel in the client's database."""
    await client.publish(channel_in(database_of(client), channel), message)


class Script:
    """A Lua script of this package, called by its SHA-1. It takes its arguments by name."""

    def __init__(self, *names: str) -> None:
        """Reads the script: the last of these files, and before it those with functions that it calls."""
        folder, self.name = files("deputize.shared").joinpath("runs", "lua"), names[-1]
        self.source = "".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)
        self.sha = sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def command(
        self, keys: Sequence[str], arguments: Mapping[str, Any], values: Sequence[Any], database: int = 0
    ) -> tuple[Any, ...]:
        return ("EVALSHA", self.sha, len(keys), *keys, _encoded(arguments, database), *values)

    async def run(self, client: Any, keys: Sequence[str], arguments: Mapping[str, Any], *values: Any) -> Any:
        """Runs the script; loads it first if the server does not have it (after a restart)."""
        args = [*keys, _encoded(arguments, database_of(client)), *values]
        try:
            return await client.evalsha(self.sha, len(keys), *args)
        except NoScriptError:
            return await client.eval(self.source, len(keys), *args)


def _encoded(arguments: Mapping[str, Any], database: int) -> bytes:
    """Returns a script's arguments as JSON; those whose names end with ``channel`` are channels of the database."""
    if database:
        named = {name: channel_in(database, text) for name, text in arguments.items() if name.endswith("channel")}
        arguments = {**arguments, **named}
    return to_json(arguments)


@dataclass(slots=True)
class _Job:
    command: Any  # or a function that makes it, once, when it is sent
    transient: bool
    done: asyncio.Future[Any]


class Pipe:
    """One ordered stream of commands to Redis, shared by all runs of a process.

    Commands queued during a round trip, or soon after it without ``flush``, are sent together in the next one. While
    Redis is unreachable all of them wait, in order; each script is idempotent. A caller's cancellation never reaches
    the socket, so no connection is left in the middle of a reply.
    """

    BATCH = 200

    def __init__(self, client: Redis, scripts: Sequence[Script]) -> None:
        self._redis: Any = client
        self._database = database_of(client)
        self._scripts = scripts
        self._loaded = False
        self._jobs: deque[_Job] = deque()
        self._wake = asyncio.Event()
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: Any = None
        self._trouble = RepeatedCause("Redis does not take this write")
        self.away = False

    async def __aenter__(self) -> Self:
        self._task = essential(self._pump(), "pipe")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Allows one more second for queued commands, then stops."""
        assert self._task is not None
        if self._jobs:
            await asyncio.wait({self._jobs[-1].done}, timeout=1)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await self._redis.connection_pool.release(self._connection)
        for job in self._jobs:
            job.done.cancel()

    def script(
        self, script: Script, keys: Sequence[str], arguments: Mapping[str, Any], values: Sequence[Any] = ()
    ) -> asyncio.Future[Any]:
        """Queues a script and returns a future of its reply. Callers that wait for it call ``flush``."""
        return self.deferred(script, lambda: (keys, arguments, values))

    def deferred(self, script: Script, call: Callable[[], ScriptCall], *, lasts: Lasts = bool) -> asyncio.Future[Any]:
        """The same with what ``call`` returns when the script is sent: until then, it can grow.

        ``lasts`` is called then: whether replicas must have the write before the reply (``shared/runs/replicas.py``).
        """
        assert script in self._scripts, f"{script.name} is not one of this pipe's scripts"
        return self._ask(lambda: script.command(*call(), self._database), transient=False)

    def flush(self) -> None:
        """Sends the queued commands without waiting for more."""
        self._hurried.set()

    def publish(self, channel: str, message: str) -> None:
        """Queues a transient frame; it is dropped while Redis is unreachable, because it would be stale afterwards."""
        if not self.away:
            self._ask(("PUBLISH", channel_in(self._database, channel), message), transient=True)

    def _ask(self, command: Any, *, transient: bool) -> asyncio.Future[Any]:
        job = _Job(command, transient, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._wake.set()
        return job.done

    async def _pump(self) -> None:
        backoff, next_time = Backoff(), 0.0
        loop = asyncio.get_running_loop()
        while True:
            while not self._jobs:
                self._wake.clear()
                await self._wake.wait()
            if (early := next_time - loop.time()) > 0 and not self._hurried.is_set():
                timer = loop.call_later(early, self._hurried.set)
                await self._hurried.wait()
                timer.cancel()
            self._hurried.clear()
            next_time = loop.time() + PACE_SECONDS
            batch = [self._jobs[i] for i in range(min(len(self._jobs), self.BATCH))]
            for job in batch:
                job.command = job.command() if callable(job.command) else job.command
            try:
                answers = await self._send(batch)
                self.away = False
                backoff.reset()
                self._trouble.works()
            except REDIS_ERRORS as error:
                self._trouble.failed(error)
                self.away, self._loaded = True, False
                for job in self._jobs:
                    if job.transient:  # it would arrive twice or too late
                        job.done.cancel()
                self._jobs = deque(job for job in self._jobs if not job.transient)
                await backoff.wait()
                continue
            for job, answer in zip(batch, answers, strict=True):
                self._jobs.popleft()
                _settle(job, answer)

    async def _send(self, batch: list[_Job]) -> list[Any]:
        """Makes one round trip, on the connection itself: redis-py's pipeline costs more than the commands."""
        async with asyncio.timeout(ANSWER_SECONDS):
            if self._connection is None:
                self._connection = await self._redis.connection_pool.get_connection()
            fresh = not self._loaded
            if fresh:
                await self._load()
                self._loaded = True
            answers = await self._say([job.command for job in batch])
        if not fresh and any(isinstance(answer, NoScriptError) for answer in answers):
            # The server was restarted in between: none of the refused commands has taken effect.
            self._loaded = False
            return await self._send(batch)
        if (refusal := next(filter(refuses_for_now, answers), None)) is not None:
            raise refusal
        return answers

    async def _load(self) -> None:
        loaded = await self._say([("SCRIPT", "LOAD", script.source) for script in self._scripts])
        if refusal := next((answer for answer in loaded if isinstance(answer, ResponseError)), None):
            raise refusal

    async def _say(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Returns the reply to each command, error replies included. Raises one of ``REDIS_ERRORS``."""
        await self._connection.send_packed_command(b"".join(map(pack_command, commands)))
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(await self._connection.read_response())
            except ResponseError as refusal:
                answers.append(refusal)
        return answers


def _settle(job: _Job, answer: Any) -> None:
    if job.done.done():
        return
    if isinstance(answer, RedisError):
        job.done.set_exception(answer)
        if job.transient:
            job.done.exception()
    else:
        job.done.set_result(answer)
