"""The admission of one model call to its endpoint: after an outage, and at the endpoint's pace.

An outage is what runs of several owners saw, with no success of another one in between: a run that fails while others
succeed waits alone. In an outage one call of the fleet probes the endpoint, the others wait.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from ....shared.connection import Pipe
from ....shared.runs.keys import PACES, outage_key
from ....shared.runs.store import OUTAGE
from ...models.retry import SpendLimitReached
from ..gate import Gate
from .line import Order, PacedCall
from .pace import EndpointPace

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

SPENT_LOOK_SECONDS = 10.0
"""How often a process looks whether the limit on spending of an endpoint is reached."""

Answer = tuple[Literal["open", "go", "ahead", "wait", "alone", "spent"], float, str]
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
    paces: dict[str, EndpointPace] = field(default_factory=dict[str, EndpointPace])
    spent: dict[str, float] = field(default_factory=dict[str, float])
    """Until when the limits on spending of endpoints are reached, by this process's clock."""
    _looks: dict[str, float] = field(default_factory=dict[str, float])
    """When the next look at an endpoint is due."""
    _process: str = field(default_factory=lambda: secrets.token_hex(8))

    def admission(self, endpoint: str, owner: str = "", order: Order | None = None) -> Admission:
        return Admission(self, endpoint, owner, order or Order())

    def pace(self, endpoint: str) -> EndpointPace:
        if endpoint not in self.paces:
            self.paces[endpoint] = EndpointPace(self.pipe, endpoint, self._process)
        return self.paces[endpoint]

    def load(self, endpoint: str) -> float:
        """Returns how many calls of this process wait for an endpoint; infinite while its account may spend no more."""
        return math.inf if self.is_spent(endpoint) else self.pace(endpoint).load

    def is_spent(self, endpoint: str) -> bool:
        return self.spent.get(endpoint, 0) > time.monotonic()

    def look_is_due(self, endpoint: str) -> bool:
        """Returns whether to look at the endpoint's limit on spending: another process may have reached it."""
        if (now := time.monotonic()) < self._looks.get(endpoint, 0):
            return False
        self._looks[endpoint] = now + SPENT_LOOK_SECONDS
        return True


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

    def __init__(self, outages: Outages, endpoint: str, owner: str, order: Order) -> None:
        super().__init__(outages.pipe, OUTAGE, outage_key(endpoint), PROBE_LEASE_SECONDS, (PACES,))
        self._pace = outages.pace(endpoint)
        self._call = PacedCall(order)
        self._outages = outages
        self._owner = owner
        self._endpoint = endpoint
        self._successes = NOT_FAILED
        """How many successes of other calls there were when this one began to fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pace.left(self._call)
        # Also where no answer arrived: a call that is cancelled while it asks may be the probe without knowing it.
        if self._endpoint in self._outages.known:
            self.end()
            self.send("left")

    def goes(self) -> bool:
        """Returns whether a request may be sent at once, as far as this process knows of no outage and no limit."""
        return self._endpoint not in self._outages.known and self._pace.goes(self._call)

    async def look(self) -> None:
        """Looks now and then whether the limit on spending is reached. Raises ``SpendLimitReached``."""
        if self._outages.look_is_due(self._endpoint):
            self._check(await self.send("look"))

    async def spent(self, reached: SpendLimitReached) -> None:
        """Notes for the fleet that the limit on spending is reached, and in the error until when."""
        self.end()
        self._outages.known.add(self._endpoint)
        answer = await self.send("spent", error=str(reached)[:MAX_ERROR_CHARS], **self._pace.named)
        reached.seconds = seconds = answer[1] / 1000
        self._outages.spent[self._endpoint] = time.monotonic() + seconds

    def _check(self, answer: Sequence[Any]) -> None:
        """Raises ``SpendLimitReached`` where nothing may be spent."""
        if answer[0] != "spent":
            self._outages.spent.pop(self._endpoint, None)
            return
        seconds = answer[1] / 1000
        self._outages.known.add(self._endpoint)
        self._outages.spent[self._endpoint] = time.monotonic() + seconds
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        reached = SpendLimitReached(f"{answer[2]} Nothing is sent until {until:%Y-%m-%d %H:%M} UTC.")
        reached.seconds = seconds
        raise reached

    @property
    def _has_failed(self) -> bool:
        return self._successes != NOT_FAILED

    async def ask(self) -> Answer:
        """Returns whether a request may be sent now, or when to ask again. A probe is renewed until it ends.

        Raises ``SpendLimitReached``.
        """
        if self._endpoint not in self._outages.known:
            return "open", 0, ""
        answer, milliseconds, error, _ = given = await self.enter(failed=self._has_failed)
        self._check(given)
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

    @property
    def limit(self) -> str | None:
        """The last refusal of an endpoint whose rate is limited; None where no limit is known."""
        return self._pace.error if self._pace.is_known else None

    async def take_turn(self) -> None:
        """Returns when the request is next, by the endpoint's pace and the order of all that wait. A probe is next."""
        if not self.is_ahead:
            await self._pace.wait(self._call)

    async def failed(self, error: str, retry_after: float | None, *, refused: bool = False) -> float | None:
        """Reports a failure. Returns the seconds until the next request, or None where it concerns this call alone.

        ``refused``: the endpoint works, but takes no more requests now.
        """
        if refused and not self.is_ahead:
            return await self._pace.refused(self._call, error[:MAX_ERROR_CHARS], retry_after)
        self._pace.failed(self._call)
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
        self._outages.spent.pop(self._endpoint, None)
        self._pace.passed(self._call)
        if self._endpoint in self._outages.known:
            self.end()
            self.send("passed")
