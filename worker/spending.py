"""Money: what a run may spend is reserved before each model call, and booked after it, for all that it counts for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ..shared.connection import Pipe, retried
from ..shared.delegation import TerminationReason
from ..shared.errors import Fenced, ModelUnavailable, Unavailable
from ..shared.events import ProgressMade
from ..shared.runs.caps import Cap
from ..shared.runs.record import OWNER, RESERVED
from ..shared.runs.spend import BILLIONTHS, SPEND, spend_call
from ..shared.runs.spend_report import owner_caps, seconds_to_midnight
from .core.limits import CapReached, LimitReached
from .core.outcome import RunOutcome
from .core.part import Part
from .core.run_context import RunContext

FULL_SECONDS = 1.0
"""Seconds between two tries while other runs have reserved the rest of a cap."""
LOOK_SECONDS = 10.0
"""Seconds between two looks whether a cap that was reached has room again."""


@dataclass(slots=True)
class ReservedMoney(Part):
    """One run's reservations: made in Redis before each model call, and replaced by what the call cost.

    They count for the run's own limit and those of the delegations that it is nested in, and for the caps of its owner,
    its labels and the fleet.
    """

    must_settle = True  # the last spending would be lost, and its reservation would stay
    run: RunContext
    pipe: Pipe
    caps: Sequence[Cap]
    """Those of the settings. Those of the owner are in Redis, where they may change while the run works."""
    full_seconds: float = FULL_SECONDS
    look_seconds: float = LOOK_SECONDS
    under_way: bool = False
    _number: int = 0
    _awaited: tuple[Cap, float] | None = None
    """The cap that was reached last, and what the smallest reply costs."""
    _noted: bool = False

    @property
    def is_capped(self) -> bool:
        """Whether anything caps it, or may."""
        return bool(self.caps) or OWNER in self.run.claim.kept or self.run.meter.limits.max_cost_usd is not None

    async def first_cap(self, redis: Any) -> str:
        """Returns the name of a cap that needs a known price; "" where there is none."""
        owner = self.run.claim.kept.get(OWNER)
        caps = [*self.caps, *(await retried(lambda: owner_caps(redis, owner)) if owner else ())]
        return caps[0].name if caps else ""

    @asynccontextmanager
    async def reserved(self, prompt_tokens: int, wanted: int) -> AsyncGenerator[int]:
        """Enters with how many output tokens the call may have; waits while other runs have reserved the rest.

        Where the call is cut off, it counts as spent in full: nothing states what it costs. Raises
        ``LimitReached(BUDGET)`` where a cap is reached, ``CapReached`` where the run waits for it, and ``Fenced``.
        """
        meter, self.under_way = self.run.meter, False
        if not self.is_capped or (costs := meter.cost_range(prompt_tokens, wanted)) is None:
            yield wanted
            return
        allowed = await self._allowed(prompt_tokens, wanted, *costs)
        try:
            yield allowed
        except asyncio.CancelledError:
            self._count_begun()
            self._send(cut=self.under_way)  # not awaited: the task is to end
            raise
        except BaseException:
            await self._ask(cut=self._count_begun())
            raise
        await self._ask()

    async def again(self, prompt_tokens: int, wanted: int) -> int:
        """Reserves for the call under way once more, because its price has changed; returns as ``reserved`` does."""
        if not self.is_capped or (costs := self.run.meter.cost_range(prompt_tokens, wanted)) is None:
            return wanted
        return await self._allowed(prompt_tokens, wanted, *costs)

    async def room(self) -> None:
        """Waits, with neither slot nor clock, until the cap that was reached has room for the smallest reply."""
        assert self._awaited
        cap, least = self._awaited
        detail = f"{cap.limit} {cap.usd:g} is reached; its window moves on at midnight UTC"
        with self.run.waits.reported("budget", detail):
            while True:
                verdict, *_ = await self._ask(least, least)
                if verdict not in ("over", "full"):
                    break
                await asyncio.sleep(min(self.look_seconds, seconds_to_midnight()))
            await self._ask()

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        """Books what is not booked yet, also where an earlier attempt had reserved and nothing caps the run now."""
        if self.is_capped or RESERVED in self.run.claim.kept:
            await self._ask()
        return outcome

    def _count_begun(self) -> bool:
        """Counts what is known of a reply that has begun and does not end; returns whether there is one."""
        begun = self.run.meter.begun_reply
        if begun is None or not begun.total:
            return False
        self.run.meter.spend(begun, wasted=True)
        return True

    async def _allowed(self, prompt_tokens: int, wanted: int, most: float, least: float) -> int:
        return self.run.meter.capped_allowance(prompt_tokens, wanted, await self._reserve(most, least))

    async def _reserve(self, most: float, least: float) -> float:
        """Returns the US dollars that are reserved."""
        self._number += 1
        while True:
            verdict, *rest = await self._ask(most, least)
            match verdict:
                case "granted":
                    return int(rest[0]) / BILLIONTHS
                case "over":
                    cap = Cap.of(json.loads(rest[0]))
                    waits = self.run.claim.request.on_cap == "wait" and not self.run.meter.reached
                    kind = CapReached if waits and cap.days and cap.usd >= least else LimitReached
                    self._awaited = cap, least
                    raise kind(TerminationReason.BUDGET, cap.limit, f"{cap.usd:g}")
                case "full":
                    if not self._noted:
                        self._noted = True
                        message = "waits: other runs have reserved the rest of a cap on money"
                        self.run.emit.emit(ProgressMade(message=message))
                    await asyncio.sleep(self.full_seconds)
                case _:
                    raise Fenced

    async def _ask(self, wanted: float = 0, least: float = 0, *, cut: bool = False) -> list[str]:
        try:
            return await asyncio.shield(self._send(wanted, least, cut=cut))
        except Unavailable as error:
            raise ModelUnavailable(f"no money can be reserved: {error}", may_pass=True) from error

    def _send(self, wanted: float = 0, least: float = 0, *, cut: bool = False) -> asyncio.Future[list[str]]:
        claim, spent = self.run.claim, self.run.meter.own.cost_usd or 0
        caps = [cap.to_dict() for cap in self.caps]
        call = spend_call(claim.id, claim.fence, spent, wanted, least, caps, number=self._number, cut=cut)
        answer = self.pipe.deferred(SPEND, lambda: (*call, ()), lasts=lambda: wanted > 0)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may not be awaited
        self.pipe.flush()
        return answer
