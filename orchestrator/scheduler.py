"""What every service does for the schedules of its settings: one of them begins each time's delegation.

Each step is one atomic change of the schedule in Redis, or the acceptance of a delegation under an idempotency key that
has the schedule's name and the time. So any service goes on from any step at which another one was killed, and two that
do the same step have the effect of one. All go by the clock of Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..shared.background import RepeatedCause, beside
from ..shared.connection import shielded
from ..shared.delegation import Delegation, Status
from ..shared.errors import KeyReused, NotFound, Refused, SpendCapReached, Unavailable
from ..shared.log import log
from ..shared.metrics import SCHEDULES_PAUSED
from ..shared.runs.schedule_state import ScheduleState, change, states_of
from ..shared.runs.store import kept_for
from ..shared.settings import Settings
from ..shared.settings.schedules import ScheduleSettings
from ..shared.text import count
from .delegations import Delegations, notice
from .guards import redis_guard
from .schedule_operations import request_of

LATE_SECONDS = 10
"""How late a time may be to start its own delegation. Older missed times start one delegation together."""
LOOK_SECONDS = 1.0
KEY_SECONDS = 7 * 24 * 3600
PAUSED = "schedule.paused"
"""The kind of the notification of a pause, and the label of its notice."""


@asynccontextmanager
async def scheduling(service: Delegations, settings: Settings) -> AsyncGenerator[None]:
    """Carries out the schedules meanwhile; not in a stack that lives only as long as a command."""
    if not settings.schedules or settings.temporary:
        yield
        return
    async with beside(Scheduler(service, settings).forever(), "the scheduler"):
        yield


@dataclass(slots=True)
class Scheduler:
    """Looks at the schedules, and does the next step of each."""

    service: Delegations
    settings: Settings
    _trouble: RepeatedCause = field(default_factory=lambda: RepeatedCause("schedules are not carried out"))

    async def forever(self) -> None:
        while True:
            wait = LOOK_SECONDS
            try:
                wait = await shielded(self.look())
                self._trouble.works()
            except Unavailable as error:
                self._trouble.failed(error)
            await asyncio.sleep(wait)

    async def look(self) -> float:
        """Does what is due. Returns the seconds until the next look."""
        async with redis_guard(self.settings):
            redis = self.service.store.redis
            now, states = await states_of(redis, [*self.settings.schedules])
            soonest = now + LOOK_SECONDS
            for name, state in states.items():
                table = self.settings.schedules[name]
                own = self.service.of(table.owner, is_confined=True)
                soonest = min(soonest, await Step(own, name, state, now).take(table))
            seconds, micros = await redis.time()
        return min(LOOK_SECONDS, max(0.01, soonest - seconds - micros / 1_000_000))


@dataclass(frozen=True, slots=True)
class Step:
    """The next step of one schedule, as it was seen at a time of Redis."""

    service: Delegations
    name: str
    state: ScheduleState
    now: int

    async def take(self, table: ScheduleSettings) -> float:
        """Does the step. Returns the time at which the next one is due."""
        try:
            return await self._take(table)
        except Refused as error:
            await self._refused(table, error)
            return self.now

    async def _take(self, table: ScheduleSettings) -> float:
        state = self.state
        due = int(state.due or 0)
        is_due = bool(due) and due <= self.now
        if state.times != table.times and not is_due:
            due = table.next_after(self.now) or 0
            await self._change(seen=("times", "due"), times=table.times, due=str(due))
            return due
        last = await self._last()
        if await self._judge(table, last) or state.paused:
            return self.now + LOOK_SECONDS
        is_busy = last is not None and not last.status.finished
        if state.pending:
            return await self._begin(table, state.pending, last if is_busy else None)
        if not is_due:
            return due
        following = table.next_after(due if self.now - due <= LATE_SECONDS else self.now) or 0
        if is_busy and table.overlap == "skip":
            await self._change(seen=("due", "pending"), due=str(following), skipped=str(due))
            return following
        if await self._change(seen=("due", "pending"), due=str(following), pending=str(due)):
            return await self._begin(table, str(due), last if is_busy else None)
        return self.now

    async def _begin(self, table: ScheduleSettings, due: str, running: Delegation | None) -> float:
        """Accepts the delegation of a time, or waits for the end of the last one, which is ``running``."""
        if running and table.overlap == "queue":
            return self.now + LOOK_SECONDS
        if running and table.overlap == "cancel":
            with suppress(NotFound):
                await self.service.cancel(running.id)
        key = f"schedule:{self.name}@{datetime.fromtimestamp(int(due), UTC):%Y-%m-%dT%H:%M:%SZ}"
        try:
            id = (await self.service.create(request_of(self.name, table, key), key_seconds=KEY_SECONDS)).delegation.id
        except KeyReused:  # it was accepted before, with other settings or for a record that was removed
            id = await self.service.store.redis.hget(kept_for(key, table.owner), "id") or ""
        done = await change(self._redis, self.name, {"pending": due}, pending="", last=id, last_due=due, error="")
        if done:
            log.info("the schedule %s has begun %s", self.name, id)
        return self.now

    async def _judge(self, table: ScheduleSettings, last: Delegation | None) -> bool:
        """Counts the end of the last delegation. Returns whether nothing more is to be done now."""
        if not self.state.last or self.state.judged == self.state.last or (last and not last.status.finished):
            return False
        if last is None or last.status is Status.CANCELLED:  # neither a failure nor a success
            return not await self._change(seen=("last", "judged"), judged=self.state.last)
        if last.result and last.result.success:
            return not await self._change(seen=("last", "judged"), judged=last.id, failures="")
        return await self._count(table, f"{last.id} has failed", judged=last.id)

    async def _refused(self, table: ScheduleSettings, error: Refused) -> None:
        """Counts a time whose request was refused; not where a cap was reached, which passes."""
        log.warning("the schedule %s could not begin anything: %s", self.name, error)
        given_up = {"pending": "", "error": str(error)[:500]}
        if isinstance(error, SpendCapReached):
            await self._change(seen=("due",), **given_up)
        else:
            await self._count(table, str(error), **given_up)

    async def _count(self, table: ScheduleSettings, reason: str, **changed: str) -> bool:
        """Counts a failure, and pauses after so many in a row. Returns whether nothing more is to be done now."""
        failures = int(self.state.failures or 0) + 1
        if pauses := 0 < table.pause_after <= failures:
            changed["paused"] = f"{count(failures, 'failure')} in a row, the last: {reason}"[:500]
            await self._notify(table, changed["paused"])
        counts = {SCHEDULES_PAUSED.field(): 1} if pauses else {}
        seen = {name: getattr(self.state, name) for name in ("failures", "last", "judged")}
        is_ours = await change(self._redis, self.name, seen, counts, failures=str(failures), **changed)
        if is_ours and pauses:
            log.error("the schedule %s is paused: %s", self.name, changed["paused"])
        return pauses or not is_ours

    async def _notify(self, table: ScheduleSettings, reason: str) -> None:
        """Notifies the webhook of the schedule, before the pause is noted.

        A service that is killed in between repeats both. The key has what failed, so that each pause notifies once.
        """
        paused = f"The schedule {self.name} is paused"
        key = f"{PAUSED}:{self.name}:{self.state.last}@{self.state.pending or self.state.due}"
        try:
            request = notice(paused, table.request.get("webhook"), PAUSED, self.name, key)
            await self.service.notify(request, PAUSED, f"{paused}: {reason}")
        except KeyReused:  # with an earlier table
            pass
        except Refused as error:
            log.warning("nothing is notified of the pause of the schedule %s: %s", self.name, error)

    async def _last(self) -> Delegation | None:
        """Returns the last delegation; None where there is none, or its record was removed."""
        if not self.state.last or self.state.judged == self.state.last:
            return None
        with suppress(NotFound):
            return await self.service.get(self.state.last)
        return None

    async def _change(self, seen: tuple[str, ...], **changed: str) -> bool:
        return await change(self._redis, self.name, {name: getattr(self.state, name) for name in seen}, **changed)

    @property
    def _redis(self) -> object:
        return self.service.store.redis
