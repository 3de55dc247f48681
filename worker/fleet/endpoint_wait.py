"""The waits of one run for its model's endpoint: how long, together with the fleet, and what others see of it."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from ...shared.delegation import Status
from ...shared.errors import ModelUnavailable
from ...shared.events import Event, ModelRetried, ResumedWaiting, Waiting
from ..models.base import Retrying
from ..models.retry import with_full_stop
from .outage import Admission, Outages


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
