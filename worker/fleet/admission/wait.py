"""What one run does while its model call waits for the endpoint: its status, its events and its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

from ....shared.delegation import Status
from ....shared.events import Event, ModelRetried, ResumedWaiting, Waiting
from ...models.base import Retrying
from ...models.retry import SpendLimitReached, with_full_stop
from .line import Order
from .outage import LOOK_SECONDS, Admission, Outages


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
    order: Order | None = None
    has_other_key: Callable[[], bool] = lambda: False
    """Whether another key of the model is not at its limit on spending."""
    idle: Callable[[str], AbstractContextManager[None]] | None = None
    """Frees the run's slot and stops its clock while it waits for the end of a limit on spending; None: it ends."""
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
        Raises ``ModelUnavailable`` where that time ends before the next request, and ``SpendLimitReached``.
        """
        self._failures, self._keep = 0, keep
        try:
            if endpoint is None:
                yield
                return
            async with self.outages.admission(endpoint, self.owner, self.order) as self._admission:
                await self._admitted(self.outages.seconds)
                try:
                    yield
                except SpendLimitReached as reached:
                    await self._admission.spent(reached)
                    raise
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
            outage = await admission.failed(failed.error, asked, refused=failed.refused)
        delay = failed.delay if outage is None else outage
        self.emit(ModelRetried(turn=turn, error=failed.error, delay_seconds=delay))
        self.check_wait(delay, with_full_stop(failed.error))  # else it would keep its slot in vain
        if outage is not None or (not begun and (self._failures > 1 or asked is not None)):
            self._wait(failed.error)
        if outage is None:
            await failed.wait()
        if admission:
            await self._admitted(failed.most)

    async def may_pass(self, error: Exception) -> None:
        """Returns when a call at a spend limit may be tried again: with another key, or after a wait that is asked for.

        Raises the error where neither is so.
        """
        is_spent = isinstance(error, SpendLimitReached)
        if is_spent and self.has_other_key():
            return
        if not is_spent or self.idle is None or error.seconds is None:
            raise error
        with self.idle(str(error)):
            await asyncio.sleep(error.seconds + LOOK_SECONDS)

    def works(self) -> None:
        """Notes that the endpoint has begun to reply."""
        self._failures, self.error = 0, ""
        if self._admission:
            self._admission.passed()
        self._resume()

    async def _admitted(self, most: float | None) -> None:
        assert self._admission
        await self._admission.look()
        if self._admission.goes():
            return
        answer, seconds, error = await self._admission.ask()
        if answer == "wait":
            self.error = self.error or error
            self.check_wait(seconds, with_full_stop(self.error))
            self._wait(error)
            await self._admission.wait(most)
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self._take_turn(self._admission)

    async def _take_turn(self, admission: Admission) -> None:
        """Waits for the request's turn. It is reported where a known limit makes it wait for more than a moment."""
        report = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._report_limit, admission)
        try:
            await admission.take_turn()
        finally:
            report.cancel()

    def _report_limit(self, admission: Admission) -> None:
        if admission.limit is not None:
            self.error = self.error or admission.limit
            self._wait(admission.limit)

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
