"""Gates before a model's endpoint: one call of the whole fleet goes ahead, the others wait for what comes of it.

- An outage: one call probes the endpoint. An outage is what runs of several owners saw, with no success of another one
  in between: a run that fails while others succeed waits alone.
- A prefix that delegations share in the endpoint's prompt cache: the first call that sends it writes it; the others
  wait until its reply has begun, and then read from the cache what they would have paid for in full.

The state of a gate is in Redis (``outage.lua`` and ``prefix.lua`` in ``shared/runs/lua``). In each process one of the
waiting runs asks for it, and the others queue behind that one.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from weakref import WeakValueDictionary

from ...shared.connection import Pipe, Script
from ...shared.delegation import Status, Usage
from ...shared.events import Event, ModelRetried, ResumedWaiting, Waiting
from ...shared.runs.keys import outage_key, prefix_key
from ...shared.runs.store import OUTAGE, PREFIX
from ..models.base import Prefix, Price, Retrying
from ..models.caching import FIVE_MINUTES, HOUR
from ..models.retry import with_full_stop


@dataclass
class Gate:
    """One model call at a gate. The call that goes ahead holds a lease, which is renewed until ``end``."""

    pipe: Pipe
    script: Script
    key: str
    lease_seconds: float
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
        done = self.pipe.script(self.script, [self.key], {"operation": operation, "token": self._token, **arguments})
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


FIRST_SECONDS = 1.0
LONGEST_SECONDS = 5.0
"""The delay between two probes: doubled from the first one up to the longest, or what the endpoint asks for up to that.

It is one request for the whole fleet, and whatever waits for it does nothing.
"""
LOOK_SECONDS = 0.25
"""How soon a waiting run sees that another one's success has ended the outage."""
PROBE_LEASE_SECONDS = 10.0
"""How long a probe counts as alive without a renewal: then another run probes."""
MAX_ERROR_CHARS = 500
NOT_FAILED = -1

Answer = tuple[Literal["open", "go", "ahead", "wait", "alone"], float, str]
"""The script's answer, seconds, and the error of the outage."""


@dataclass(slots=True)
class Outages:
    """What this process knows of the outages of endpoints. ``seconds``: how long a request waits at most."""

    pipe: Pipe
    seconds: float | None = None
    known: set[str] = field(default_factory=set[str])
    """The endpoints that may have one: Redis is not asked before a failure."""
    locks: defaultdict[tuple[str, bool], FairLock] = field(default_factory=lambda: defaultdict(FairLock))
    """Held by the waiting run that asks for all of this process that have failed, or have not."""

    def admission(self, endpoint: str, owner: str = "") -> Admission:
        return Admission(self, endpoint, owner)


class FairLock:
    """A lock that any one of those who wait gets next: else many bad requests could keep the others waiting."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._held = False

    async def __aenter__(self) -> None:
        if not self._held:
            self._held = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine in self._waiting:
                self._waiting.remove(mine)
            else:  # it has the lock already
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        self._held = bool(self._waiting)
        if self._waiting:
            self._waiting.pop(random.randrange(len(self._waiting))).set_result(None)  # noqa: S311 - not for cryptography


class Admission(Gate):
    """One model call's admission to its endpoint. ``async with`` ends a probe that got no answer."""

    def __init__(self, outages: Outages, endpoint: str, owner: str = "") -> None:
        super().__init__(outages.pipe, OUTAGE, outage_key(endpoint), PROBE_LEASE_SECONDS)
        self._outages = outages
        self._owner = owner
        self._endpoint = endpoint
        self._successes = NOT_FAILED
        """How many successes of other calls there were when this one began to fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also where no answer arrived: a call that is cancelled while it asks may be the probe without knowing it.
        if self._endpoint in self._outages.known:
            self.end()
            self.send("left")

    @property
    def _has_failed(self) -> bool:
        return self._successes != NOT_FAILED

    async def ask(self) -> Answer:
        """Returns whether a request may be sent now, or when to ask again. A probe is renewed until it ends."""
        if self._endpoint not in self._outages.known:
            return "open", 0, ""
        answer, milliseconds, error, _ = await self.enter(failed=self._has_failed)
        if answer == "open":
            self._outages.known.discard(self._endpoint)
        return answer, milliseconds / 1000, error or ""

    async def wait(self, most: float | None) -> None:
        """Waits, for at most so many seconds, until a request may be sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most), self._outages.locks[self._endpoint, self._has_failed]:
                answer = await self.ask()
                while answer[0] == "wait":
                    await asyncio.sleep(min(answer[1], LOOK_SECONDS))
                    answer = await self.ask()

    async def failed(self, error: str, retry_after: float | None) -> float | None:
        """Reports a failure; returns the seconds until the next probe is due, or None where there is no outage."""
        self.end()
        self._outages.known.add(self._endpoint)
        answer, milliseconds, _, successes = await self.send(
            "failed",
            error=error[:MAX_ERROR_CHARS],
            owner=self._owner,
            retry_ms=-1 if retry_after is None else int(retry_after * 1000),
            first_ms=FIRST_SECONDS * 1000,
            longest_ms=LONGEST_SECONDS * 1000,
            jitter=random.uniform(0.5, 1),  # noqa: S311 - not for cryptography
            successes=self._successes,
        )
        self._successes = self._successes if self._has_failed else successes
        return None if answer == "alone" else milliseconds / 1000

    def passed(self) -> None:
        """Reports that the endpoint replies: that ends an outage, and shows those who fail that they do so alone."""
        self._successes = NOT_FAILED
        if self._endpoint in self._outages.known:
            self.end()
            self.send("passed")


@dataclass(slots=True)
class EndpointWait:
    """Waits before requests that are sent again, and before the first one while the fleet knows of an outage.

    The run's status is then ``waiting``, and its time goes on; ``check_wait`` is its meter's.
    """

    outages: Outages
    emit: Callable[[Event], None]
    set_fields: Callable[[Mapping[str, str]], None]
    check_wait: Callable[[float, str], None]
    owner: str = ""
    """Whose runs are one witness of an outage: those of one session, else those of one run tree."""
    error: str = ""
    """The last failure, until a reply begins: why the run waits, or waited when it was stopped."""
    _admission: Admission | None = None
    _failures: int = 0
    """Failed requests in a row, without the beginning of a reply in between."""
    _since: float | None = None
    _keep: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def call(self, endpoint: str | None, keep: Callable[[], None]) -> AsyncGenerator[None]:
        """Admits one model call to its endpoint when the block is entered.

        ``keep`` stores how much of the run's time is used, so that waiting does not begin anew with the next attempt.
        Raises ``ModelUnavailable`` where that time ends before the next request.
        """
        self._failures, self._keep = 0, keep
        try:
            if endpoint is None:
                yield
                return
            async with self.outages.admission(endpoint, self.owner) as self._admission:
                await self._admitted(self.outages.seconds)
                yield
        finally:
            self._admission = None
            self._resume()

    async def retry(self, turn: int, failed: Retrying, *, begun: bool) -> None:
        """Waits before the next try. ``begun``: the failed one had got the beginning of a reply.

        The first failure in a row is reported as waiting only where the endpoint states how long to wait.
        """
        self._failures = 1 if begun else self._failures + 1
        self.error = failed.error
        admission, outage = self._admission, None
        asked = None if failed.retry_after is None else failed.delay
        if admission and not begun:
            outage = await admission.failed(failed.error, asked)
        delay = failed.delay if outage is None else outage
        self.emit(ModelRetried(turn=turn, error=failed.error, delay_seconds=delay))
        self.check_wait(delay, with_full_stop(failed.error))  # else it would keep its slot in vain
        if outage is not None or (not begun and (self._failures > 1 or asked is not None)):
            self._wait(failed.error)
        if outage is None:
            await failed.wait()
        if admission:
            await self._admitted(failed.most)

    def works(self) -> None:
        """Notes that the endpoint has begun to reply."""
        self._failures, self.error = 0, ""
        if self._admission:
            self._admission.passed()
        self._resume()

    async def _admitted(self, most: float | None) -> None:
        assert self._admission
        answer, seconds, error = await self._admission.ask()
        if answer == "wait":
            self.error = self.error or error
            self.check_wait(seconds, with_full_stop(self.error))
            self._wait(error)
            await self._admission.wait(most)

    def _wait(self, error: str) -> None:
        if self._since is None:
            self._since = time.monotonic()
            self.emit(Waiting(why="rate", detail=error))
            self.set_fields({"status": Status.WAITING.value, "why": "rate"})
        self._keep()

    def _resume(self) -> None:
        if self._since is not None:
            self.emit(ResumedWaiting(seconds=round(time.monotonic() - self._since, 3)))
            self.set_fields({"status": Status.RUNNING.value})
            self._since = None


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
