"""The pace of requests to an endpoint that limits their rate, and their order: learned, kept and decided in Redis.

Nothing is asked of Redis for an endpoint that has refused nothing: there a window holds back (``window.py``). From the
second refusal on ``pace.lua`` grants each request. A process asks once for all of its waiting requests.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ....shared.connection import Pipe
from ....shared.delegation import Usage
from ....shared.runs.keys import OWNER_WEIGHTS, PACES, pace_key
from ....shared.runs.store import PACE
from ...models.rate_limits import RateLimits
from .line import NOT_FAILED, Line, PacedCall
from .window import FIRST_SIZE, LARGEST_SIZE, Window

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
BUSY_SECONDS = 2.0
"""How long a key counts as busy after one of its calls had to wait for a turn."""
REPORT_SECONDS = 1.0
"""The time between two reports to Redis of what is left."""


@dataclass(slots=True, eq=False)
class EndpointPace:
    """The pace of one endpoint, as one process knows it."""

    pipe: Pipe
    endpoint: str
    process: str
    """Identifies the process among those that ask."""
    model: str = ""
    """The model's name without its date, for people."""
    key: int | None = None
    """The place of its key, where there are several."""
    is_known: bool = False
    """Whether Redis grants the requests."""
    error: str = ""
    """The last refusal."""
    _is_dead: bool = False
    """Whether the endpoint has refused all requests lately."""
    _suspected: float | None = None
    """When a refusal was reported that concerned its call alone, until a later request is served."""
    window: Window = field(init=False)
    _served: deque[float] = field(default_factory=lambda: deque[float](maxlen=LARGEST_SIZE))
    _line: Line = field(default_factory=Line)
    _asking: asyncio.Task[None] | None = None
    _busy: float = 0.0
    """Until when it counts as busy, because a call had to wait."""
    _reported: float = 0.0
    _near: bool = False
    _tokens: dict[str, float] = field(default_factory=lambda: {"input": 0.0, "output": 0.0})
    """What a call takes of the limits: moving averages."""

    def __post_init__(self) -> None:
        self.window = Window(self._release)

    @property
    def named(self) -> dict[str, Any]:
        """What it is shown as."""
        named = {"endpoint": self.endpoint, "model": self.model}
        return named if self.key is None else {**named, "key": self.key}

    @property
    def load(self) -> int:
        """How many calls of this process wait for their turn; at least 1 where one had to lately."""
        return max(self._line.count, int(time.monotonic() < self._busy)) if self.is_known else 0

    def goes(self, call: PacedCall) -> bool:
        """Returns whether the call's request may be sent at once: no limit is known, and the window has room."""
        self.window.leave(call)
        call.is_granted = False
        if self.is_known or self._line or self.window.delay(now := time.monotonic()):
            return False
        self.window.enter(call, now)
        return True

    async def wait(self, call: PacedCall) -> None:
        """Returns when the call's request may be sent."""
        if self.goes(call):
            return
        turn = self._line.add(call)
        self._release()
        try:
            await turn
        except asyncio.CancelledError:
            self._line.remove(call)
            if self._asking and not self._line:
                self._stop_asking()
            raise
        call.sent = time.monotonic()

    def passed(self, call: PacedCall) -> None:
        """Notes that the endpoint has begun to reply to the call."""
        call.successes = NOT_FAILED
        if self._is_dead or (self._suspected is not None and call.sent > self._suspected):
            self._is_dead, self._suspected = False, None
            self._send("passed")
        if not self.is_known:
            self._served.append(time.monotonic())
            self.window.accept(call)

    def used(self, usage: Usage) -> None:
        """Notes what a call took of the endpoint's limits: what is read from the cache counts for none."""
        taken = {"input": usage.input_tokens + usage.cache_write_tokens, "output": usage.output_tokens}
        for kind, before in self._tokens.items():
            self._tokens[kind] = 0.8 * before + 0.2 * taken[kind] if before else taken[kind]

    def heard(self, limits: RateLimits) -> None:
        """Notes the limits that a response states, and reports them to Redis while one of them is near."""
        now, shares = time.monotonic(), [each.remaining / each.limit for each in limits.values()]
        if requests := limits.get("requests"):
            room = int(min(requests.remaining, LARGEST_SIZE))
            self.window.size = max(self.window.size, room if not self.is_known and min(shares) > FAR else 0)
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
        self.window.size = FIRST_SIZE
        self.window.leave(call)

    def left(self, call: PacedCall) -> None:
        """Notes that the call ended, for whatever reason."""
        self.window.leave(call)
        self._release()

    async def refused(self, call: PacedCall, error: str, retry_after: float | None) -> float | None:
        """Reports a refusal. Returns the seconds until the next grant, or None where it concerns this call alone."""
        self.window.leave(call)
        self.window.size = 1  # the next one shows whether the cause was this call alone
        now, call.token = time.monotonic(), call.token or secrets.token_hex(8)
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

    def _release(self) -> None:
        """Lets waiting calls go on: as many as the window has room for, or those that Redis grants."""
        if not self._line:
            return
        if self.is_known:
            if not self._asking:
                self._asking = asyncio.create_task(self._ask(), name=f"asking for {self.endpoint}")
            return
        now, delay = time.monotonic(), 0.0
        while self._line and not (delay := self.window.delay(now)):
            if call := self._line.take_any():
                self.window.enter(call, now)
                _go(call)
        if self._line and delay < math.inf:
            self.window.open_after(delay)

    async def _ask(self) -> None:
        """Asks for the grants of all waiting calls, again and again.

        A call that joins them is asked for the next time: until then all that may be sent is granted.
        """
        while demand := self._line.demand():
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
            if self._line:
                self._busy = time.monotonic() + BUSY_SECONDS
                await asyncio.sleep(milliseconds / 1000)
        self._asking = None
        self._release()

    def _grant(self, owner: str, delay: float) -> None:
        call = self._line.take(owner)
        if call is None:  # it is being cancelled
            return
        call.is_granted = True
        if delay:
            asyncio.get_running_loop().call_later(delay, _go, call)
        else:
            _go(call)

    def _stop_asking(self) -> None:
        assert self._asking
        self._asking.cancel()
        self._asking = None
        self._send("ask", process=self.process, lease_ms=0, waiting={}, cost=self._tokens)

    def _send(self, operation: str, **arguments: Any) -> asyncio.Future[Any]:
        keys = [pace_key(self.endpoint), OWNER_WEIGHTS, PACES]
        done = self.pipe.script(PACE, keys, {"operation": operation, **self.named, **arguments})
        self.pipe.flush()
        return done


def _go(call: PacedCall) -> None:
    if call.turn and not call.turn.done():
        call.turn.set_result(None)
