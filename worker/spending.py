"""One run's share of the day's caps on spending: reserved in Redis before each model call, booked after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..shared.connection import Pipe
from ..shared.delegation import TerminationReason
from ..shared.errors import Fenced, Refused
from ..shared.events import ProgressMade
from ..shared.runs.record import Claim
from ..shared.runs.spend import BILLIONTHS, SPEND, Cap, spend_call
from .emit import Emitter
from .limits import SMALLEST_REPLY, LimitReached, Meter, affordable
from .models.base import Model

FULL_SECONDS = 1.0
"""Seconds between two tries while other runs have reserved the rest of a cap."""


@dataclass(slots=True)
class Spending:
    """Books and reserves for one run. ``caps`` is not empty."""

    claim: Claim
    pipe: Pipe
    meter: Meter
    emit: Emitter
    caps: Sequence[Cap]
    _noted: bool = field(default=False)

    def check(self, model: Model) -> None:
        """Raises ``Refused`` for a model whose price is not known. Scripts cost nothing."""
        if model.price() is None and not model.name.startswith("scripted"):
            raise Refused(
                f"{self.caps[0].name} cannot be held: the price of {model.name} is not known. "
                "The operator of this service can set it in `prices`"
            )

    async def allowance(self, prompt_tokens: int, wanted: int) -> int:
        """Returns how many output tokens the next call may have; waits while other runs have reserved the rest.

        Raises ``LimitReached(BUDGET)`` where a cap is reached, and ``Fenced``.
        """
        if (price := self.meter.price) is None:
            return wanted
        hour = self.meter.hour_writes
        prompt = price.highest_prompt_cost(prompt_tokens, hour_writes=hour)
        # One token more: what is granted is converted back to whole tokens.
        most, least = (
            prompt + (output + 1) * price.rates(prompt_tokens).output / 1_000_000 for output in (wanted, SMALLEST_REPLY)
        )
        while True:
            verdict, *rest = await self._ask(most, least)
            match verdict:
                case "granted":
                    money = int(rest[0]) / BILLIONTHS
                    granted = affordable(prompt_tokens, money, price, hour_writes=hour)
                    return min(wanted, max(SMALLEST_REPLY, granted))
                case "over":
                    cap = self.caps[int(rest[0])]
                    raise LimitReached(TerminationReason.BUDGET, f"{cap.name} (US dollars a day)", f"{cap.usd:g}")
                case "full":
                    self._note_wait()
                    await asyncio.sleep(FULL_SECONDS)
                case _:
                    raise Fenced

    async def settle(self) -> None:
        """Books what was spent and releases the reservation."""
        await self._ask(0, 0)

    async def _ask(self, wanted: float, least: float) -> list[str]:
        keys, arguments = spend_call(
            self.claim.id, self.claim.fence, self.meter.own.cost_usd or 0, wanted, least, self.caps
        )
        answer = self.pipe.script(SPEND, keys, arguments)
        self.pipe.flush()
        return await asyncio.shield(answer)

    def _note_wait(self) -> None:
        if not self._noted:
            self._noted = True
            self.emit.emit(ProgressMade(message="waits: other runs have reserved what is left of the day's spend cap"))
