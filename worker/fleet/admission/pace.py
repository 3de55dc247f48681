"""The pace of requests to an endpoint that limits their rate, and their order: learned, kept and decided in Redis.

Nothing is asked of Redis for an endpoint that has refused nothing. So that few requests are refused before a limit is
known, a process begins with two requests at a time, and adds one for each that is not refused. From the second refusal
on ``pace.lua`` grants each request. A process asks once for all of its waiting requests.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ....shared.connection import Pipe
from ....shared.delegation import Usage
from ....shared.runs.keys import OWNER_WEIGHTS, PACES, pace_key
from ....shared.runs.store import PACE
from ...models.rate_limits import RateLimits

FIRST_WINDOW = 2
"""How many requests a process sends at a time to an endpoint of which it knows nothing."""
LARGEST_WINDOW = 4096
ACCEPTED_SECONDS = 0.2
"""A request that is not refused within this time counts as accepted: a refusal is faster than a reply."""
LOOKS = 8
"""The time passes in so many parts: where the event loop is late, refusals that have arrived are read in between."""
SPACED_WINDOW = 64
"""Up to this size what a window lets through is spaced, so that the first refusal stops the rest."""
IDLE_SECONDS = 60.0
"""After so long without a request nothing is known of an endpoint any more."""
LEASE_SECONDS = 2.0
"""How long the waiting requests of a process count without another ask."""
LONGEST_SECONDS = 5.0
"""How long an endpoint may keep all requests of the fleet waiting by what it asks of one of them."""
SERVED_SECONDS = 1.0
"""The time whose replies are the first estimate of the rate."""
NEAR = 0.25
"""Redis grants the requests while less than this share of a limit is left that the endpoint states."""
FAR = 0.5
"""It no longer does so once more than this share of all limits is left."""
REPORT_SECONDS = 1.0
"""The time between two reports to Redis of what is left."""
NOT_FAILED = -1


@dataclass(frozen=True, slots=True)
class Order:
    """What decides when a waiting request is next. Owners take turns, whatever number of requests each has."""

    owner: str = ""
    priority: int = 5
    """Which of the owner's requests is first: the highest."""


@dataclass(slots=True, eq=False)
class PacedCall:
    """One model call on its way to the endpoint."""

    order: Order
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    successes: int = NOT_FAILED
    """How many requests had been served when this call began to fail."""
    is_granted: bool = False
    """Whether Redis granted its request."""
    sent: float = 0.0
    accepted: asyncio.TimerHandle | None = None
    """Set while the request is one of the window's."""


@dataclass(slots=True, eq=False)
class EndpointPace:
    """The pace of one endpoint, as one process knows it."""

    pipe: Pipe
    endpoint: str
    process: str
    """Identifies the process among those that ask."""
    model: str = ""
    """The model's name without its date, for people."""
    is_known: bool = False
    """Whether Redis grants the requests."""
    error: str = ""
    """The last refusal."""
    _is_dead: bool = False
    """Whether the endpoint has refused all requests lately."""
    _suspected: float | None = None
    """When a refusal was reported that concerned its call alone, until a later request is served."""
    _window: int = FIRST_WINDOW
    _in_window: int = 0
    _used: float = 0.0
    _space: float = 0.0
    """The earliest time of the window's next request."""
    _spacing: asyncio.TimerHandle | None = None
    _served: deque[float] = field(default_factory=lambda: deque[float](maxlen=LARGEST_WINDOW))
    _waiting: dict[PacedCall, asyncio.Future[None]] = field(default_factory=dict[PacedCall, "asyncio.Future[None]"])
    _asking: asyncio.Task[None] | None = None
    _joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when another call waits: whether it has to is asked at once."""
    _reported: float = 0.0
    _near: bool = False
    _tokens: dict[str, float] = field(default_factory=lambda: {"input": 0.0, "output": 0.0})
    """What a call takes of the limits: moving averages."""

    async def wait(self, call: PacedCall) -> None:
        """Returns when the call's request may be sent."""
        self._leave(call)
        call.is_granted = False
        turn = self._waiting[call] = asyncio.get_running_loop().create_future()
        self._joined.set()
        self._release()
        try:
            await turn
        finally:
            del self._waiting[call]
            if self._asking and not self._waiting:
                self._stop_asking()
        call.sent = time.monotonic()

    def passed(self, call: PacedCall) -> None:
        """Notes that the endpoint has begun to reply to the call."""
        call.successes = NOT_FAILED
        if self._is_dead or (self._suspected is not None and call.sent > self._suspected):
            self._is_dead, self._suspected = False, None
            self._send("passed")
        if not self.is_known:
            self._served.append(time.monotonic())
            self._accepted(call)

    def used(self, usage: Usage) -> None:
        """Notes what a call took of the endpoint's limits: what is read from the cache counts for none."""
        taken = {"input": usage.input_tokens + usage.cache_write_tokens, "output": usage.output_tokens}
        for kind, before in self._tokens.items():
            self._tokens[kind] = 0.8 * before + 0.2 * taken[kind] if before else taken[kind]

    def heard(self, limits: RateLimits) -> None:
        """Notes the limits that a response states, and reports them to Redis while one of them is near."""
        now, shares = time.monotonic(), [each.remaining / each.limit for each in limits.values()]
        if requests := limits.get("requests"):
            room = int(min(requests.remaining, LARGEST_WINDOW))
            self._window = max(self._window, room) if not self.is_known and min(shares) > FAR else self._window
        if min(shares) > (FAR if self._near else NEAR) and not self._near:
            return
        if now - self._reported < REPORT_SECONDS:
            return
        self._near, self._reported = min(shares) <= FAR, now
        self._send("heard", limits=limits if self._near else {})
        self.is_known = self.is_known or self._near
        self._release()

    def failed(self, call: PacedCall) -> None:
        """Notes that the request failed, but was not refused for its rate: the endpoint may be about to be down."""
        self._window = FIRST_WINDOW
        self._leave(call)

    def left(self, call: PacedCall) -> None:
        """Notes that the call ended, for whatever reason."""
        self._leave(call)
        self._release()

    async def refused(self, call: PacedCall, error: str, retry_after: float | None) -> float | None:
        """Reports a refusal. Returns the seconds until the next grant, or None where it concerns this call alone."""
        self._leave(call)
        self._window = 1  # the next one shows whether it was this call's own trouble
        now = time.monotonic()
        answer, milliseconds, successes = await self._send(
            "refused",
            token=call.token,
            owner=call.order.owner,
            successes=call.successes,
            error=error,
            retry_ms=-1 if retry_after is None else int(retry_after * 1000),
            longest_ms=LONGEST_SECONDS * 1000,
            served=sum(now - at < SERVED_SECONDS for at in self._served),
            granted=call.is_granted,
        )
        if call.successes == NOT_FAILED:
            call.successes = successes
        if answer == "alone":
            self._suspected = time.monotonic()
            return None
        self.is_known, self.error = True, error
        self._release()
        return milliseconds / 1000

    def _leave(self, call: PacedCall) -> None:
        if call.accepted:
            call.accepted.cancel()
            call.accepted = None
            self._in_window -= 1

    def _accepted(self, call: PacedCall) -> None:
        if call.accepted:
            self._window = min(self._window + 1, LARGEST_WINDOW)
            self._leave(call)
            self._release()

    def _release(self) -> None:
        """Lets waiting calls go on: as many as the window has room for, or those that Redis grants."""
        if self.is_known:
            if not self._asking and self._demand():
                self._asking = asyncio.create_task(self._ask(), name=f"asking for {self.endpoint}")
            return
        now = time.monotonic()
        if not self._in_window and now - self._used > IDLE_SECONDS:
            self._window = FIRST_WINDOW
        for call, turn in self._waiting.items():
            if self._in_window >= self._window:
                break
            if not turn.done():
                if now < self._space:
                    self._release_later(self._space - now)
                    break
                self._enter(call, now)
                turn.set_result(None)

    def _enter(self, call: PacedCall, now: float) -> None:
        self._used = now
        if self._window < SPACED_WINDOW:
            self._space = now + ACCEPTED_SECONDS / (2 * self._window)
        self._in_window += 1
        self._look(call, LOOKS)

    def _look(self, call: PacedCall, left: int) -> None:
        if not left:
            self._accepted(call)
            return
        call.accepted = asyncio.get_running_loop().call_later(ACCEPTED_SECONDS / LOOKS, self._look, call, left - 1)

    def _release_later(self, seconds: float) -> None:
        if self._spacing:
            self._spacing.cancel()
        self._spacing = asyncio.get_running_loop().call_later(seconds, self._release)

    async def _ask(self) -> None:
        """Asks for the grants of all waiting calls, again and again."""
        while demand := self._demand():
            answer = await self._send(
                "ask", process=self.process, lease_ms=LEASE_SECONDS * 1000, waiting=demand, cost=self._tokens
            )
            if answer[0] == "open":
                self.is_known = False
                break
            _, milliseconds, dead, self.error, *grants = answer
            self._is_dead = bool(dead)
            for owner, delay in zip(grants[::2], grants[1::2], strict=True):
                self._grant(owner, delay / 1000)
            self._joined.clear()
            if self._demand():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._joined.wait(), milliseconds / 1000)
        self._asking = None
        self._release()

    def _demand(self) -> dict[str, tuple[int, int]]:
        """Returns by owner how many of its calls wait, and the highest of their priorities."""
        demand = dict[str, tuple[int, int]]()
        for call, turn in self._waiting.items():
            if not (call.is_granted or turn.done()):
                order = call.order
                count, priority = demand.get(order.owner, (0, 0))
                demand[order.owner] = count + 1, max(priority, order.priority)
        return demand

    def _grant(self, owner: str, delay: float) -> None:
        own = [call for call in self._waiting if call.order.owner == owner and not call.is_granted]
        call = max(own, key=lambda call: call.order.priority, default=None)  # of equals the first that came
        if call is None:  # it is being cancelled
            return
        call.is_granted = True
        turn = self._waiting[call]
        asyncio.get_running_loop().call_later(delay, lambda: turn.done() or turn.set_result(None))

    def _stop_asking(self) -> None:
        assert self._asking
        self._asking.cancel()
        self._asking = None
        self._send("ask", process=self.process, lease_ms=0, waiting={}, cost=self._tokens)

    def _send(self, operation: str, **arguments: Any) -> asyncio.Future[Any]:
        keys, named = [pace_key(self.endpoint), OWNER_WEIGHTS, PACES], {"endpoint": self.endpoint, "model": self.model}
        done = self.pipe.script(PACE, keys, {"operation": operation, **named, **arguments})
        self.pipe.flush()
        return done
