"""Outages of a model's endpoint: one run of the whole fleet probes it, all others wait until the probe is answered.

An outage is what several runs saw, with no success of another one in between: a run that fails while others succeed
waits alone. The state is in Redis, by endpoint, credentials and model (``shared/runs/lua/outage.lua``). In each process
one of the waiting runs asks for it, and the others queue behind that one.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from ...shared.connection import Pipe
from ...shared.runs.keys import outage_key
from ...shared.runs.store import OUTAGE

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 5.0
"""The delay between two probes: doubled from the first one up to the longest, unless the endpoint sends Retry-After.

It is one request for the whole fleet, and whatever waits for it does nothing.
"""
LOOK_SECONDS = 0.25
"""How soon a waiting run sees that another one's success has ended the outage."""
LEASE_SECONDS = 10.0
"""How long a probe counts as alive without a renewal: then another run probes."""
MAX_ERROR_CHARS = 500
NOT_FAILED = -1

Answer = tuple[Literal["open", "go", "probe", "wait", "alone"], float, str]
"""The script's answer, seconds, and the error of the outage."""


@dataclass(slots=True)
class Outage:
    """What this process knows of an outage of one endpoint."""

    known: bool = False
    """Whether there may be one: Redis is not asked before a failure."""
    turns: defaultdict[bool, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Held by the waiting run that asks for all of this process that have failed, or have not."""


class Outages:
    """The outages of all endpoints that this process uses. ``seconds``: how long a request waits at most."""

    def __init__(self, pipe: Pipe, seconds: float | None = None) -> None:
        self.pipe = pipe
        self.seconds = seconds
        self._of_endpoint: defaultdict[str, Outage] = defaultdict(Outage)

    def admission(self, endpoint: str) -> Admission:
        """Returns the admission of one model call to an endpoint."""
        return Admission(self.pipe, endpoint, self._of_endpoint[endpoint])


class Admission:
    """One model call's admission to its endpoint. ``async with`` ends a probe that got no answer."""

    def __init__(self, pipe: Pipe, endpoint: str, outage: Outage) -> None:
        self._pipe = pipe
        self._key = outage_key(endpoint)
        self._outage = outage
        self._token = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None
        self._successes = NOT_FAILED
        """How many successes of other calls there were when this one began to fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also where no answer arrived: a call that is cancelled while it asks may be the probe without knowing it.
        if self._outage.known:
            self._end_probe("left")

    @property
    def probes(self) -> bool:
        return self._renewing is not None

    @property
    def _has_failed(self) -> bool:
        return self._successes != NOT_FAILED

    async def ask(self) -> Answer:
        """Returns whether a request may be sent now, or when to ask again. A probe is renewed until it ends."""
        if not self._outage.known:
            return "open", 0, ""
        answer = await self._script("ask", lease_ms=int(LEASE_SECONDS * 1000), failed=self._has_failed)
        if answer[0] == "open":
            self._outage.known = False
        if answer[0] == "probe" and not self._renewing:
            self._renewing = asyncio.create_task(self._renew(), name=f"probe {self._key}")
        return answer

    async def wait(self, most: float | None) -> None:
        """Waits, for at most so many seconds, until a request may be sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most), self._outage.turns[self._has_failed]:
                answer = await self.ask()
                while answer[0] == "wait":
                    await asyncio.sleep(min(answer[1], LOOK_SECONDS))
                    answer = await self.ask()

    async def failed(self, error: str, retry_after: float | None) -> float | None:
        """Reports a failure; returns the seconds until the next probe is due, or None where there is no outage."""
        self._cancel_renewal()
        self._outage.known = True
        answer, milliseconds, _, successes = await self._ask(
            "failed",
            error=error[:MAX_ERROR_CHARS],
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
        if self._outage.known:
            self._end_probe("passed")

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            await self._script("renew", lease_ms=int(LEASE_SECONDS * 1000))

    def _end_probe(self, operation: str) -> None:
        """Reports how a probe ended, also from a task that is being cancelled: nothing is awaited."""
        self._cancel_renewal()
        self._ask(operation)

    def _cancel_renewal(self) -> None:
        if self._renewing:
            self._renewing.cancel()
            self._renewing = None

    def _ask(self, operation: str, **arguments: Any) -> asyncio.Future[Any]:
        done = self._pipe.script(OUTAGE, [self._key], {"operation": operation, "token": self._token, **arguments})
        self._pipe.flush()
        return done

    async def _script(self, operation: str, **arguments: Any) -> Answer:
        answer, milliseconds, error, _ = await self._ask(operation, **arguments)
        return answer, milliseconds / 1000, error or ""
