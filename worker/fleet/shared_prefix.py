"""Prefixes that delegations share in the prompt cache of a model's endpoint: one of the fleet writes each of them.

The first delegation that sends a prefix is its writer; the others wait until its reply has begun, and then read from
the cache what they would have paid for in full. The state is in Redis (``shared/runs/lua/prefix.lua``).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

from ...shared.connection import Pipe
from ...shared.delegation import Usage
from ...shared.events import Event, ResumedWaiting, Waiting
from ...shared.runs.keys import prefix_key
from ...shared.runs.store import PREFIX
from ..models.base import Price
from ..models.caching import FIVE_MINUTES, HOUR, Prefix

LEASE_SECONDS = 2.0
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


class SharedPrefixes:
    """What this process knows of the prefixes of all its models."""

    def __init__(self, pipe: Pipe, clock: Callable[[], float] = time.monotonic) -> None:
        self.pipe = pipe
        self.clock = clock
        self._noted: dict[str, float] = {}
        """When each prefix was last noted as written."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._first_event: dict[str, float] = {}
        """Seconds from a request to the beginning of its reply, by endpoint: a moving average."""

    def turn(self, prefix: Prefix) -> asyncio.Lock:
        """Returns the lock of the waiting run that looks at the prefix for all runs of this process."""
        return self._turns.setdefault(prefix.key, asyncio.Lock())

    def is_readable(self, prefix: Prefix) -> bool:
        """Whether the prefix was used within the last minute."""
        return self.clock() - self._noted.get(prefix.key, float("-inf")) < _NOTED_SECONDS

    def note_written(self, prefix: Prefix, token: str, kept: float) -> None:
        """Notes that a reply to this prefix has begun, so that the endpoint keeps it for so many seconds."""
        if self.is_readable(prefix):
            return
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[prefix.key] = self.clock()
        self.ask("written", prefix, token, kept_ms=int((kept - _MARGIN_SECONDS) * 1000))

    def first_event(self, endpoint: str) -> float | None:
        return self._first_event.get(endpoint)

    def note_first_event(self, endpoint: str, seconds: float) -> None:
        earlier = self._first_event.get(endpoint, seconds)
        self._first_event[endpoint] = 0.7 * earlier + 0.3 * seconds

    def ask(self, operation: str, prefix: Prefix, token: str, **arguments: int) -> asyncio.Future[Any]:
        """Runs the script; returns the future of its answer."""
        done = self.pipe.script(PREFIX, [prefix_key(prefix.key)], {"operation": operation, "token": token, **arguments})
        self.pipe.flush()
        return done


class PrefixWait:
    """One run's waits for shared prefixes: only its first request waits.

    ``idle`` frees the run's slot and stops its clock while its block runs.
    """

    def __init__(
        self, prefixes: SharedPrefixes, emit: Callable[[Event], None], idle: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._prefixes = prefixes
        self._emit = emit
        self._idle = idle
        self._shared: Sequence[Prefix] | None = None
        """The prefixes of all requests of the run; None before the first one."""
        self._request: _Request | None = None

    @asynccontextmanager
    async def request(
        self, endpoint: str | None, find: Callable[[], Sequence[Prefix]], price: Price | None, *, hour: bool
    ) -> AsyncGenerator[None]:
        """Enters the block when the request may be sent. ``find`` returns its prefixes, the shortest first."""
        if endpoint is None:
            yield
            return
        is_first = self._shared is None
        if self._shared is None:
            self._shared = find()
        request = self._request = _Request(self._prefixes, endpoint, self._shared, HOUR if hour else FIVE_MINUTES)
        try:
            if is_first:
                await self._admit(request, price or DEFAULT_PRICE)
            yield
        finally:
            request.end()
            self._request = None

    def sends(self) -> None:
        """Notes that the request is sent now."""
        if self._request:
            self._request.sends()

    def works(self, usage: Usage) -> None:
        """Notes that the endpoint has begun to reply: it can read the prefixes from its cache, if it has one."""
        if self._request:
            self._request.works(usage)

    def failed(self) -> None:
        """Notes that the request failed: another one writes its prefixes."""
        if self._request:
            self._request.end()

    async def _admit(self, request: _Request, price: Price) -> None:
        """Waits where another run writes a prefix of this request, as long as that is worth it."""
        expected = self._prefixes.first_event(request.endpoint)
        longest = LEASE_SECONDS + 2 * (UNKNOWN_SECONDS if expected is None else expected)
        begun: float | None = None
        with ExitStack() as idle, suppress(TimeoutError):
            async with asyncio.timeout(longest):
                for prefix in request.shared:
                    if not (await request.claim(prefix) and is_worth_waiting(prefix, price, expected)):
                        continue
                    if begun is None:
                        begun = time.monotonic()
                        self._emit(Waiting(why="shared_prefix", detail=_detail(prefix)))
                        idle.enter_context(self._idle())
                    await request.wait(prefix)
        if begun is not None:
            self._emit(ResumedWaiting(seconds=round(time.monotonic() - begun, 3)))


class _Request:
    """One request: the prefixes that it writes for others, until its reply has begun."""

    def __init__(self, prefixes: SharedPrefixes, endpoint: str, shared: Sequence[Prefix], kept: float) -> None:
        self.endpoint = endpoint
        self.shared = shared
        self._prefixes = prefixes
        self._kept = kept
        self._token = secrets.token_hex(8)
        self._asked = set[Prefix]()
        """Prefixes that this request may have to write: also those whose answer did not arrive."""
        self._renewing: asyncio.Task[None] | None = None
        self._sent = 0.0

    async def claim(self, prefix: Prefix) -> bool:
        """Becomes the writer of a prefix that nothing has written; returns whether another request writes it."""
        if self._prefixes.is_readable(prefix):
            return False
        self._asked.add(prefix)
        answer = await self._prefixes.ask("ask", prefix, self._token, lease_ms=int(LEASE_SECONDS * 1000))
        if answer == "writer" and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="the writer of a prompt prefix")
        return answer == "wait"

    async def wait(self, prefix: Prefix) -> None:
        """Waits until the prefix is written, or this request is to write it."""
        async with self._prefixes.turn(prefix):
            is_written_by_another = await self.claim(prefix)
            while is_written_by_another:
                await asyncio.sleep(POLL_SECONDS)
                is_written_by_another = await self.claim(prefix)

    def sends(self) -> None:
        self._sent = time.monotonic()

    def works(self, usage: Usage) -> None:
        self._prefixes.note_first_event(self.endpoint, time.monotonic() - self._sent)
        kept = self._kept if usage.cache_read_tokens or usage.cache_write_tokens else HOUR  # none: nothing to wait for
        for prefix in self.shared:
            self._prefixes.note_written(prefix, self._token, kept)
        self._asked.clear()
        self._cancel_renewal()

    def end(self) -> None:
        """Gives up what it was to write, also from a task that is being cancelled: nothing is awaited."""
        self._cancel_renewal()
        for prefix in self._asked:
            self._prefixes.ask("left", prefix, self._token)
        self._asked.clear()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            for prefix in self._asked:
                self._prefixes.ask("renew", prefix, self._token, lease_ms=int(LEASE_SECONDS * 1000))

    def _cancel_renewal(self) -> None:
        if self._renewing:
            self._renewing.cancel()
            self._renewing = None


def _detail(prefix: Prefix) -> str:
    return f"another delegation sends the same first {prefix.tokens:,} tokens; after that they are read from the cache"


def is_worth_waiting(prefix: Prefix, price: Price, seconds: float | None) -> bool:
    """Whether reading the prefix from the cache saves more than the wait for it costs."""
    saved = prefix.tokens * (price.cache_write - price.cache_read) / 1_000_000
    return saved > (UNKNOWN_SECONDS if seconds is None else seconds) * SECOND_USD
