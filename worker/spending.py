"""The day's caps: what a run may spend is reserved before each model call, and booked after it, for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ..shared.connection import Pipe
from ..shared.errors import Fenced
from ..shared.events import ProgressMade
from ..shared.runs.spend import BILLIONTHS, SPEND, Cap, spend_call
from .core.outcome import RunOutcome
from .core.part import Part
from .core.run_context import RunContext

FULL_SECONDS = 1.0
"""Seconds between two tries while other runs have reserved the rest of a cap."""


@dataclass(slots=True)
class DaySpending(Part):
    """One run's share of the day's caps: reserved in Redis before each model call, booked after it."""

    must_settle = True  # the last spending would be lost, and its reservation would stay
    run: RunContext
    pipe: Pipe
    caps: Sequence[Cap]
    """Empty where the day's spending is not capped: then nothing is asked."""
    _noted: bool = False

    @property
    def is_capped(self) -> bool:
        return bool(self.caps)

    async def allowance(self, prompt_tokens: int, wanted: int) -> int:
        """Returns how many output tokens the next call may have; waits while other runs have reserved the rest.

        Raises ``LimitReached(BUDGET)`` where a cap is reached, and ``Fenced``.
        """
        if not self.caps or (costs := self.run.meter.cost_range(prompt_tokens, wanted)) is None:
            return wanted
        return self.run.meter.capped_allowance(prompt_tokens, wanted, await self._reserve(*costs))

    async def book(self) -> None:
        """Books what was spent and releases the reservation."""
        if self.caps:
            await self._ask(0, 0)

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        await self.book()
        return outcome

    async def _reserve(self, most: float, least: float) -> float | Cap:
        """Returns the US dollars that are reserved, or the cap that is reached."""
        while True:
            verdict, *rest = await self._ask(most, least)
            match verdict:
                case "granted":
                    return int(rest[0]) / BILLIONTHS
                case "over":
                    return self.caps[int(rest[0])]
                case "full":
                    if not self._noted:
                        self._noted = True
                        message = "waits: other runs have reserved the rest of the day's spend cap"
                        self.run.emit.emit(ProgressMade(message=message))
                    await asyncio.sleep(FULL_SECONDS)
                case _:
                    raise Fenced

    async def _ask(self, wanted: float, least: float) -> list[str]:
        claim, spent = self.run.claim, self.run.meter.own.cost_usd or 0
        answer = self.pipe.script(SPEND, *spend_call(claim.id, claim.fence, spent, wanted, least, self.caps))
        self.pipe.flush()
        return await asyncio.shield(answer)
