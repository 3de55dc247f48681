"""Outages of a model's endpoint: one run of the whole fleet probes it, all others wait until the probe is answered.

An outage is what several runs saw, with no success of another one in between: a run that fails while others succeed
waits alone. The state is in Redis, by endpoint, credentials and model (``shared/runs/lua/outage.lua``). In each process
one of the waiting runs asks for it, and the others queue behind that one.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from ...shared.connection import Pipe
from ...shared.delegation import Status
from ...shared.errors import ModelUnavailable
from ...shared.events import Event, ModelRetried, ResumedWaiting, Waiting
from ...shared.runs.keys import outage_key
from ...shared.runs.store import OUTAGE
from ..models.base import Retrying
from ..models.retry import with_full_stop

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


class EndpointWait:
    """Waits before requests that are sent again, and before the first one while the fleet knows of an outage.

    The run's status is then ``waiting``, and its time goes on.
    """

    def __init__(
        self, outages: Outages, emit: Callable[[Event], None], set_fields: Callable[[Mapping[str, str]], None]
    ) -> None:
        self._emit = emit
        self._set = set_fields
        self._outages = outages
        self._admission: Admission | None = None
        self._failures = 0
        """Failed requests in a row, without the beginning of a reply in between."""
        self._since: float | None = None
        self._keep: Callable[[], None] = lambda: None
        self._time_left: Callable[[], float] = lambda: math.inf
        self.error = ""
        """The last failure, until a reply begins: why the run waits, or waited when it was stopped."""

    @asynccontextmanager
    async def call(
        self, endpoint: str | None, keep: Callable[[], None], time_left: Callable[[], float]
    ) -> AsyncGenerator[None]:
        """Admits one model call to its endpoint when the block is entered.

        ``keep`` stores how much of the run's time is used, so that waiting does not begin anew with the next attempt.
        ``time_left`` returns its seconds left. Raises ``ModelUnavailable`` where they end before the next request.
        """
        self._failures, self._keep, self._time_left = 0, keep, time_left
        try:
            if endpoint is None:
                yield
                return
            async with self._outages.admission(endpoint) as self._admission:
                await self._admitted(self._outages.seconds)
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
        self._emit(ModelRetried(turn=turn, error=failed.error, delay_seconds=delay))
        self._check_time(delay)
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
            self._check_time(seconds)
            self._wait(error)
            await self._admission.wait(most)

    def _check_time(self, delay: float) -> None:
        """Raises ``ModelUnavailable`` where the run would keep its slot until its time ends, in vain."""
        if delay >= (left := self._time_left()):
            raise ModelUnavailable(
                f"the next request is possible in {delay:.0f} s, but the run has only {max(left, 0):.0f} s left: "
                f"{with_full_stop(self.error)} Try again later, or with a longer timeoutSeconds.",
                may_pass=True,
            )

    def _wait(self, error: str) -> None:
        if self._since is None:
            self._since = time.monotonic()
            self._emit(Waiting(why="rate", detail=error))
            self._set({"status": Status.WAITING.value})
        self._keep()

    def _resume(self) -> None:
        if self._since is not None:
            self._emit(ResumedWaiting(seconds=round(time.monotonic() - self._since, 3)))
            self._set({"status": Status.RUNNING.value})
            self._since = None
