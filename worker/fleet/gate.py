"""Gates before a model's endpoint: one call of the whole fleet goes ahead, the others wait for its outcome.

At an outage one call probes the endpoint (``admission/outage.py``). A prefix that delegations share in the endpoint's
prompt cache is written by the first call that sends it. The others wait until its reply has begun, and then read from
the cache what they would have paid for in full.

The state of a gate is in Redis (``outage.lua`` and ``prefix.lua`` in ``shared/runs/lua``). In each process one of the
waiting runs asks for it, and the others queue behind that one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from ...shared.connection import Pipe, Script
from ...shared.delegation import Usage
from ...shared.events import Event, ResumedWaiting, Waiting
from ...shared.runs.keys import prefix_key
from ...shared.runs.store import PREFIX
from ..models.base import Prefix, Price
from ..models.caching import FIVE_MINUTES, HOUR


@dataclass
class Gate:
    """One model call at a gate. The call that goes ahead holds a lease, which is renewed until ``end``."""

    pipe: Pipe
    script: Script
    key: str
    lease_seconds: float
    more_keys: Sequence[str] = ()
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _renewing: asyncio.Task[None] | None = None

    @property
    def is_ahead(self) -> bool:
        return self._renewing is not None

    async def enter(self, **arguments: Any) -> list[Any]:
        """Returns the script's answer to whether this call may go on."""
        answer = await self.send("ask", lease_ms=int(self.lease_seconds * 1000), **arguments)
        if answer[0] == "ahead" and not self.is_ahead:
            self._renewing = asyncio.create_task(self._renew(), name=f"renewing {self.key}")
        return answer

    def send(self, operation: str, **arguments: Any) -> asyncio.Future[Any]:
        done = self.pipe.script(
            self.script, [self.key, *self.more_keys], {"operation": operation, "token": self._token, **arguments}
        )
        self.pipe.flush()
        return done

    def end(self) -> None:
        """Ends the renewal, also in a task that is being cancelled: nothing is awaited."""
        if self._renewing:
            self._renewing.cancel()
            self._renewing = None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 3)
            await self.send("renew", lease_ms=int(self.lease_seconds * 1000))


WRITE_LEASE_SECONDS = 2.0
"""How long a writer counts as alive without a renewal: then the next one writes."""
POLL_SECONDS = 0.05
"""The time between two looks at a prefix, by one of the waiting runs of a process."""
UNKNOWN_SECONDS = 5.0
"""The time to the beginning of a reply, where none was measured yet."""
SECOND_USD = 0.001
"""What a second of waiting must save at least."""
DEFAULT_PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
"""For the decision alone, where the price is not known."""
_MARGIN_SECONDS = 30.0
"""The state ends before the endpoint's entry does."""
_NOTED_SECONDS = 60.0
"""How often a process notes in Redis that a prefix is in use: each use prolongs the endpoint's entry."""
_REMEMBERED = 4096


@dataclass(slots=True)
class SharedPrefixes:
    """What this process knows of the prefixes of all its models."""

    pipe: Pipe
    clock: Callable[[], float] = time.monotonic
    first_event: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds from a request to the beginning of its reply, by endpoint: a moving average."""
    _noted: dict[str, float] = field(default_factory=dict[str, float])
    """When each prefix was last noted as written."""
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary[str, asyncio.Lock])

    def lock(self, prefix: Prefix) -> asyncio.Lock:
        """Returns the lock of the waiting run that looks at the prefix for all runs of this process."""
        return self._locks.setdefault(prefix.key, asyncio.Lock())

    def is_readable(self, prefix: Prefix) -> bool:
        """Whether the prefix was used within the last minute."""
        return self.clock() - self._noted.get(prefix.key, float("-inf")) < _NOTED_SECONDS

    def gate(self, prefix: Prefix) -> Gate:
        return Gate(self.pipe, PREFIX, prefix_key(prefix.key), WRITE_LEASE_SECONDS)

    def note_written(self, prefix: Prefix, kept: float) -> None:
        """Notes that a reply to this prefix has begun, so that the endpoint keeps it for so many seconds."""
        if self.is_readable(prefix):
            return
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[prefix.key] = self.clock()
        self.gate(prefix).send("written", kept_ms=int((kept - _MARGIN_SECONDS) * 1000))

    def note_first_event(self, endpoint: str, seconds: float) -> None:
        self.first_event[endpoint] = 0.7 * self.first_event.get(endpoint, seconds) + 0.3 * seconds


@dataclass(slots=True)
class PrefixWait:
    """One run's waits for shared prefixes: only its first request waits."""

    prefixes: SharedPrefixes
    emit: Callable[[Event], None]
    idle: Callable[[], AbstractContextManager[None]]
    """Frees the run's slot and stops its clock while its block runs."""
    _endpoint: str | None = None
    _shared: Sequence[Prefix] | None = None
    """The prefixes of all requests of the run; None before the first one."""
    _kept: float = FIVE_MINUTES
    """How long the endpoint keeps those of the request."""
    _gates: dict[Prefix, Gate] = field(default_factory=dict[Prefix, Gate])
    """Those of the prefixes that the request may have to write: also those whose answer did not arrive."""
    _sent: float = 0.0

    @asynccontextmanager
    async def request(
        self, endpoint: str | None, find: Callable[[], Sequence[Prefix]], price: Price | None, *, hour: bool
    ) -> AsyncGenerator[None]:
        """Enters the block when the request may be sent. ``find`` returns its prefixes, the shortest first."""
        self._endpoint, self._kept = endpoint, HOUR if hour else FIVE_MINUTES
        if endpoint is None:
            yield
            return
        try:
            if self._shared is None:
                self._shared = find()
                await self._admit(self._shared, self.prefixes.first_event.get(endpoint), price or DEFAULT_PRICE)
            yield
        finally:
            self.failed()

    def sends(self) -> None:
        self._sent = time.monotonic()

    def works(self, usage: Usage) -> None:
        """Notes that the endpoint has begun to reply: it can read the prefixes from its cache, if it has one."""
        if self._endpoint is None:
            return
        self.prefixes.note_first_event(self._endpoint, time.monotonic() - self._sent)
        kept = self._kept if usage.cache_read_tokens or usage.cache_write_tokens else HOUR  # none: nothing to wait for
        for prefix in self._shared or ():
            self.prefixes.note_written(prefix, kept)
        while self._gates:
            self._gates.popitem()[1].end()

    def failed(self) -> None:
        """Gives up what the request was to write, also in a task that is being cancelled: nothing is awaited."""
        while self._gates:
            gate = self._gates.popitem()[1]
            gate.end()
            gate.send("left")

    async def _admit(self, shared: Sequence[Prefix], expected: float | None, price: Price) -> None:
        """Waits where another run writes one of the prefixes, as long as that is worth it."""
        longest = WRITE_LEASE_SECONDS + 2 * (UNKNOWN_SECONDS if expected is None else expected)
        begun: float | None = None
        with ExitStack() as idle, suppress(TimeoutError):
            async with asyncio.timeout(longest):
                for prefix in shared:
                    if not (await self._is_written_by_another(prefix) and is_worth_waiting(prefix, price, expected)):
                        continue
                    if begun is None:
                        begun = time.monotonic()
                        same = f"another delegation sends the same first {prefix.tokens:,} tokens"
                        detail = f"{same}; after that they are read from the cache"
                        self.emit(Waiting(why="shared_prefix", detail=detail))
                        idle.enter_context(self.idle())
                    await self._wait(prefix)
        if begun is not None:
            self.emit(ResumedWaiting(seconds=round(time.monotonic() - begun, 3)))

    async def _wait(self, prefix: Prefix) -> None:
        """Waits until the prefix is written, or this request is to write it."""
        async with self.prefixes.lock(prefix):
            waits = await self._is_written_by_another(prefix)
            while waits:
                await asyncio.sleep(POLL_SECONDS)
                waits = await self._is_written_by_another(prefix)

    async def _is_written_by_another(self, prefix: Prefix) -> bool:
        """Returns whether another request writes the prefix; this one becomes its writer where none does."""
        if self.prefixes.is_readable(prefix):
            return False
        gate = self._gates.setdefault(prefix, self.prefixes.gate(prefix))
        return (await gate.enter())[0] == "wait"


def is_worth_waiting(prefix: Prefix, price: Price, seconds: float | None) -> bool:
    """Whether reading the prefix from the cache saves more than the wait for it costs."""
    saved = prefix.tokens * (price.cache_write - price.cache_read) / 1_000_000
    return saved > (UNKNOWN_SECONDS if seconds is None else seconds) * SECOND_USD
