"""Writes that replicas of Redis must have before they count, and what is known where such a write is lost.

``redis.replicas`` is their number; with 0 nothing here is used. Redis replicates asynchronously, and answers before. So
after the script comes ``WAIT``, on the same connection. Between them a write is counted (``acknowledge.lua``): after a
promotion, the count states whether the new primary has all that was acknowledged before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from ..background import RepeatedCause
from ..connection import ANSWER_SECONDS, REDIS_ERRORS, Lasts, Pipe, Script, ScriptCall, database_of, shielded
from ..errors import Misconfigured, Unavailable
from ..log import log
from ..metrics import STORE_LOSSES
from ..sentinel import is_of_sentinel
from ..settings import Settings
from ..text import count
from .disk import RECORD_PARTS
from .keys import ACKNOWLEDGED, LEASES, METRICS
from .losses import GONE

ACKNOWLEDGE = Script("acknowledge")
CALLER_SECONDS = 1.0
"""How long a caller waits for replicas."""
RUN_SECONDS = 60.0
"""How long a run waits before its call fails without having begun."""
_SLICE_MS = 50
"""The most that other writes of a process wait behind one for which replicas are waited for."""
_AGAIN_SECONDS = 0.05
_LOOK_SECONDS = 2.0
_KEPT = 10_000
"""How many of the last acknowledged records a process remembers."""


class Unacknowledged(Unavailable):
    """Too few replicas of Redis have the write; a later retry may succeed."""


@dataclass(slots=True)
class Replicas:
    """How many replicas must have a write, and what this process knows as acknowledged by them."""

    count: int
    seconds: float = CALLER_SECONDS
    history: str = ""
    number: int = 0
    """The write of that history that was acknowledged last."""
    _records: deque[tuple[str, int, Sequence[str]]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _reporting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _trouble: RepeatedCause = field(default_factory=lambda: RepeatedCause("too few replicas acknowledge writes"))

    def call(self, *, adds: bool) -> ScriptCall:
        """Returns keys and arguments of the script."""
        known = {"history": self.history, "number": self.number, "adds": adds}
        counting = {"metrics": METRICS, "lost": STORE_LOSSES.field("acknowledgement")}
        return [ACKNOWLEDGED, LEASES], {**known, **counting, **RECORD_PARTS}, ()

    async def run(
        self,
        redis: Any,
        script: Script,
        keys: Sequence[str],
        arguments: Mapping[str, Any],
        *,
        records: Sequence[str] = (),
        unbounded: bool = False,
    ) -> Any:
        """Runs a script, and returns its reply when the replicas have what it wrote.

        If an acknowledged write is lost later, those of the ``records`` (keys) that are gone are reported. Raises
        ``Unacknowledged`` after a second, unless it may wait ``unbounded``: the write may be kept, and may be lost.
        """
        deadline = time.monotonic() + (inf if unbounded else self.seconds)
        while True:
            answer, counted, acknowledged = await self._once(redis, script, keys, arguments)
            await self.report(counted, redis)
            if self.note(counted, acknowledged):
                self._records.append((self.history, self.number, records))
                return answer
            if time.monotonic() + _AGAIN_SECONDS > deadline:
                raise self.refusal(acknowledged)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _once(self, redis: Any, script: Script, keys: Sequence[str], arguments: Mapping[str, Any]) -> list[Any]:
        """Makes one round trip on one connection: the script, its count, and the wait for replicas."""
        asked = script.command(keys, arguments, (), database_of(redis))
        wait = ("WAIT", self.count, int(self.seconds * 1000))
        commands = [asked, ACKNOWLEDGE.command(*self.call(adds=True)), wait]
        while True:
            async with redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                answers = await pipeline.execute(raise_on_error=False)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                for each in (script, ACKNOWLEDGE):
                    await redis.script_load(each.source)
                continue
            if error := next((answer for answer in answers if isinstance(answer, Exception)), None):
                raise error
            return answers

    def note(self, counted: Sequence[Any], acknowledged: int) -> bool:
        """Notes a counted write; returns whether enough replicas have it."""
        if acknowledged < self.count:
            self._trouble.failed(self.refusal(acknowledged))
            return False
        self._trouble.works()
        history, number, _ = counted
        if history != self.history or number > self.number:
            self.history, self.number = history, number
        return True

    def refusal(self, acknowledged: int) -> Unacknowledged:
        return Unacknowledged(
            f"{acknowledged} of {self.count} replicas of Redis acknowledge writes; try again when they do "
            "(`deputize doctor` shows them)"
        )

    async def watch(self, redis: Any) -> None:
        """Finds out again and again whether the server lacks something: what only reads would never know."""
        trouble = RepeatedCause("this process does not know whether Redis has lost writes")
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                keys, arguments, _ = self.call(adds=False)
                await self.report(await shielded(ACKNOWLEDGE.run(redis, keys, arguments)), redis)
                trouble.works()
            except REDIS_ERRORS as error:
                trouble.failed(error)

    async def report(self, counted: Sequence[Any], redis: Any) -> None:
        """Logs where a server lacks what was acknowledged before, with the records that are gone."""
        history, _, here = counted
        if here < 0:
            return
        async with self._reporting:
            if self.history:
                await self._report(history, here, redis)

    async def _report(self, history: str, here: int, redis: Any) -> None:
        known = [each for each in self._records if each[0] == self.history and each[1] > here]
        gone = [key for _, _, keys in known for key in keys if not await redis.exists(key)]
        if gone:
            await redis.hincrby(METRICS, STORE_LOSSES.field("delegation"), len(gone))
            await redis.hincrby(ACKNOWLEDGED, GONE + self.history, len(gone))
        log.error(
            "Redis has lost %s that replicas had acknowledged; unfinished runs are in doubt",
            count(self.number - here, "write"),
            extra={"history": self.history, "now": history},
        )
        for key in gone:
            log.error("the accepted delegation of %s is lost: hand it over again", key)
        self.history = ""
        self._records.clear()


def replicas_of(settings: Settings) -> Replicas | None:
    """Raises Misconfigured for a Sentinel without replicas that acknowledge."""
    if is_of_sentinel(settings.redis_url or "") and not settings.redis.replicas:
        raise Misconfigured("Sentinel may promote a replica that lags: set DEPUTIZE_REDIS_REPLICAS to at least 1")
    return Replicas(settings.redis.replicas) if settings.redis.replicas else None


def pipe_of(client: Redis, scripts: Sequence[Script], replicas: Replicas | None) -> Pipe:
    return ReplicatedPipe(client, scripts, replicas) if replicas else Pipe(client, scripts)


@dataclass(slots=True)
class _Write:
    """A script that was queued, until its reply counts."""

    call: Callable[[], ScriptCall]
    lasts: Lasts
    done: asyncio.Future[Any]
    end: float
    made: ScriptCall | None = None
    lacks: int | None = None
    """How many replicas had it when too few had; None where that does not matter, or enough have it."""


class ReplicatedPipe(Pipe):
    """A pipe that holds back replies until replicas have the write, for those that are to last.

    The others do not wait: a write that too few replicas have is sent again behind them, which changes nothing where it
    is there. It fails with ``Unacknowledged`` in the end.
    """

    def __init__(
        self, client: Redis, scripts: Sequence[Script], replicas: Replicas, seconds: float = RUN_SECONDS
    ) -> None:
        super().__init__(client, [*scripts, ACKNOWLEDGE])
        self._replicas = replicas
        self.seconds = seconds
        self._awaiting: list[_Write] = []

    def deferred(self, script: Script, call: Callable[[], ScriptCall], *, lasts: Lasts = bool) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self._queue(script, _Write(call, lasts, done, time.monotonic() + self.seconds))
        return done

    def _queue(self, script: Script, write: _Write) -> None:
        sent = super().deferred(script, partial(self._made, write))
        sent.add_done_callback(partial(self._answered, script, write))

    def _again(self, script: Script, write: _Write) -> None:
        self._queue(script, write)
        self.flush()

    def _made(self, write: _Write) -> ScriptCall:
        if write.made is None:
            write.made = write.call()
        if write.lasts():
            self._awaiting.append(write)
        return write.made

    def _answered(self, script: Script, write: _Write, sent: asyncio.Future[Any]) -> None:
        if write.done.done():
            return
        if sent.cancelled():
            write.done.cancel()
        elif error := sent.exception():
            write.done.set_exception(error)
        elif write.lacks is None:
            write.done.set_result(sent.result())
        elif time.monotonic() > write.end:
            write.done.set_exception(self._replicas.refusal(write.lacks))
        else:
            write.lacks = None
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._again, script, write)

    async def _load(self) -> None:
        """Finds out on each new connection, before anything is written, whether this server lacks something."""
        await super()._load()
        if self._replicas.history:
            (counted,) = await self._say([self._command(adds=False)])
            if isinstance(counted, ResponseError):
                raise counted
            await self._replicas.report(counted, self._redis)

    async def _send(self, batch: list[Any]) -> list[Any]:
        answers = await super()._send(batch)
        if self._awaiting:
            async with asyncio.timeout(ANSWER_SECONDS):
                counted, acknowledged = await self._say(
                    [self._command(adds=True), ("WAIT", self._replicas.count, _SLICE_MS)]
                )
            if refusal := next((each for each in (counted, acknowledged) if isinstance(each, ResponseError)), None):
                raise ConnectionError(f"no replica can be waited for: {refusal}")
            lacks = None if self._replicas.note(counted, acknowledged) else acknowledged
            for write in self._awaiting:
                write.lacks = lacks
            self._awaiting.clear()
        return answers

    def _command(self, *, adds: bool) -> tuple[Any, ...]:
        return ACKNOWLEDGE.command(*self._replicas.call(adds=adds), self._database)
