"""The only place that says "enough": turns, tool calls, time, tokens and money, each exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared import tokens
from shared.delegation import Limits, TerminationReason, Usage
from shared.errors import DeputizeError, Refused
from worker.models.base import Call, Model, Price, Prompt
from worker.threads import run_in_thread

SUMMARY_SHARE = 0.1
SUMMARY_SECONDS = 15.0
"""The last turn without tools gets this tail of the run's time, so that the whole run keeps its limit."""
SMALLEST_REPLY = 64
"""Output tokens below which asking the model is of no use."""


class LimitReached(DeputizeError):
    """A limit ends the run: an ending with a reason, not a crash. ``str`` says which limit and how high it is."""

    def __init__(self, reason: TerminationReason, limit: str, value: object) -> None:
        super().__init__(f"{limit} {value} reached")
        self.reason = reason


def check_price(limits: Limits, model: Model) -> None:
    """Raises ``Refused`` for a bound on money where the model's price is not known: it could not be held."""
    if limits.max_cost_usd is not None and model.price() is None:
        detail = f"maxCostUsd cannot be held: the price of {model.name} is not known. Use maxTokens, or leave it out"
        raise Refused(detail, [{"pointer": "/limits/maxCostUsd", "detail": detail}])


@dataclass(slots=True)
class Meter:
    """What a run has used so far, over all its attempts, held against its limits."""

    limits: Limits
    price: Price | None
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    wasted: Usage = field(default_factory=Usage)
    """The part of ``usage`` that bought nothing: turns that were cut and asked again."""
    earlier_seconds: float = 0.0
    """Time used by earlier attempts."""
    begun: float = field(default_factory=time.monotonic)
    begun_reply: Usage | None = None
    """What the reply under way costs at least: owed even when its worker is lost before the end."""
    begun_turn: bool = False
    """Whether that reply is a turn that was counted."""
    refused_call: bool = False
    lent: dict[str, Limits] = field(default_factory=dict[str, Limits])
    """The limits of nested delegations under way, by id: their tokens and money are spoken for."""
    booked: list[str] = field(default_factory=list[str])
    """The nested delegations whose usage is in ``usage``."""

    @property
    def elapsed(self) -> float:
        """Seconds of the run's time used, over all attempts."""
        return self.earlier_seconds + time.monotonic() - self.begun

    @property
    def time_left(self) -> float:
        """Seconds until the work must stop; what is kept back for the summary is not in it."""
        whole = self.limits.timeout_seconds
        return whole - min(SUMMARY_SECONDS, whole * SUMMARY_SHARE) - self.elapsed

    @property
    def time_for_summary(self) -> float:
        """Seconds in which the last turn must be done, so that the run's whole time is not exceeded."""
        return self.limits.timeout_seconds - self.elapsed

    def check_turn(self) -> None:
        """Raises ``LimitReached`` where no turn may begin any more."""
        if self.refused_call:
            raise LimitReached(TerminationReason.MAX_TOOL_CALLS, "maxToolCalls", self.limits.max_tool_calls)
        if self.turns >= self.limits.max_turns:
            raise LimitReached(TerminationReason.MAX_TURNS, "maxTurns", self.limits.max_turns)
        if self.time_left <= 0:
            raise self.out_of_time()

    def begin_turn(self) -> int:
        """Counts a turn and gives its number, from 1. Raises ``LimitReached``."""
        self.check_turn()
        self.turns += 1
        return self.turns

    def take_call(self) -> bool:
        """Counts a tool call, or says that there are no more."""
        if self.tool_calls >= self.limits.max_tool_calls:
            self.refused_call = True
            return False
        self.tool_calls += 1
        return True

    def out_of_time(self) -> LimitReached:
        return LimitReached(TerminationReason.TIMEOUT, "timeoutSeconds", self.limits.timeout_seconds)

    def begin_reply(self, usage: Usage, *, counted: bool) -> None:
        """Notes what is owed from now on; ``counted`` says whether the reply is one of the turns of the limit."""
        self.begun_reply, self.begun_turn = usage, counted

    def spend(self, usage: Usage, *, wasted: bool = False) -> Usage:
        """Adds what a call has used, priced where the price is known, and gives it back priced."""
        self.begun_reply = None
        cost = self.price.cost(usage) if self.price else usage.cost_usd if usage.cost_usd else None
        if cost is None and not usage.total:
            cost = 0.0
        priced = usage.model_copy(update={"cost_usd": cost})
        self.usage += priced
        if wasted:
            self.wasted += priced
        return priced

    @property
    def tokens_left(self) -> int | None:
        """Tokens that neither this run nor a nested one has or may still use; None: there is no limit."""
        if self.limits.max_tokens is None:
            return None
        return self.limits.max_tokens - self.usage.total - sum(each.max_tokens or 0 for each in self.lent.values())

    @property
    def money_left(self) -> float | None:
        """The same in US dollars."""
        if self.limits.max_cost_usd is None:
            return None
        lent = sum(each.max_cost_usd or 0.0 for each in self.lent.values())
        return self.limits.max_cost_usd - (self.usage.cost_usd or 0.0) - lent

    def lend(self, id: str, asked: Limits, sharers: int) -> Limits:
        """The limits of a nested delegation: what is asked for, as far as this run has it itself.

        Tokens and money that nobody asks for are divided among the ``sharers`` who are to have some, and this run. Of
        the time a tail is kept back, in which this run can use what came out. Raises ``LimitReached`` where nothing
        is left.
        """
        given = asked.capped(self.limits).model_dump()
        if self.time_left <= 0:
            raise self.out_of_time()
        given["timeout_seconds"] = min(given["timeout_seconds"], self.time_left * (1 - SUMMARY_SHARE))
        if (tokens := self.tokens_left) is not None:
            given["max_tokens"] = min(asked.max_tokens or tokens // (sharers + 1), tokens)
            if given["max_tokens"] < SMALLEST_REPLY:
                raise LimitReached(TerminationReason.BUDGET, "maxTokens", self.limits.max_tokens)
        if (money := self.money_left) is not None:
            given["max_cost_usd"] = min(asked.max_cost_usd or money / (sharers + 1), money)
            if given["max_cost_usd"] <= 0:
                raise LimitReached(TerminationReason.BUDGET, "maxCostUsd", self.limits.max_cost_usd)
        self.lent[id] = Limits(**given)
        return self.lent[id]

    def book(self, id: str, usage: Usage) -> None:
        """Takes back what was lent to a nested delegation, and adds what it used: once, however often it is told."""
        self.lent.pop(id, None)
        if id not in self.booked:
            self.booked.append(id)
            self.usage += usage

    def output_allowance(self, prompt_tokens: int, wanted: int) -> int:
        """How many output tokens the next call may have, given an upper bound of its prompt's tokens.

        What the call can cost at most is reserved before it is made, so tokens and money hold exactly as far as
        the bound does. Raises ``LimitReached(BUDGET)`` where not even a short reply fits.
        """
        allowed = wanted
        if (tokens := self.tokens_left) is not None:
            allowed = min(allowed, tokens - prompt_tokens)
            if allowed < SMALLEST_REPLY:
                raise LimitReached(TerminationReason.BUDGET, "maxTokens", self.limits.max_tokens)
        if (money := self.money_left) is not None and self.price is not None:
            allowed = min(allowed, _affordable(prompt_tokens, money, self.price))
            if allowed < SMALLEST_REPLY:
                raise LimitReached(TerminationReason.BUDGET, "maxCostUsd", self.limits.max_cost_usd)
        return allowed

    def checkpoint(self) -> dict[str, object]:
        """What the next attempt must know, to be encoded on its way; read back by ``restored``."""
        return {
            "turns": self.turns,
            "toolCalls": self.tool_calls,
            "usage": self.usage,
            "wasted": self.wasted,
            "elapsed": round(self.elapsed, 3),
            "begun": self.begun_reply,
            "begunTurn": self.begun_turn,
            "booked": self.booked,
        }

    @classmethod
    def restored(cls, limits: Limits, price: Price | None, checkpoint: dict[str, Any]) -> Meter:
        """A meter that goes on where the checkpoint of an earlier attempt stands; a new one where there is none."""
        if not checkpoint:
            return cls(limits, price)
        meter = cls(
            limits,
            price,
            turns=int(str(checkpoint["turns"])),
            tool_calls=int(str(checkpoint["toolCalls"])),
            usage=Usage.model_validate(checkpoint["usage"]),
            wasted=Usage.model_validate(checkpoint["wasted"]),
            earlier_seconds=float(str(checkpoint["elapsed"])),
            booked=list(checkpoint.get("booked", ())),
        )
        if checkpoint.get("begun"):
            # That reply is asked for again: its turn is not counted twice, its cost is.
            meter.turns -= bool(checkpoint.get("begunTurn", True))
            meter.spend(Usage.model_validate(checkpoint["begun"]), wasted=True)
        return meter


def _affordable(prompt_tokens: int, money: float, price: Price) -> int:
    """The output tokens that the money buys beside the prompt."""
    rate = price.above if price.above and price.band is not None and prompt_tokens > price.band else price
    left = money - prompt_tokens * max(rate.input, rate.cache_write) / 1_000_000
    return int(left * 1_000_000 / rate.output) if rate.output else 1 << 30


class PromptBound:
    """An upper bound of a prompt's tokens: what was billed for the part already sent, plus a bound of what is new.

    Claude counts 1.2 to 1.9 times what the local encoding does; the bound takes 2. Where no limit asks for it,
    nothing is counted. ``as_sent`` gives the prompt its form on the wire, message by message.
    """

    FACTOR = 2.0
    FEW_BYTES = 10_000

    def __init__(self, limits: Limits, as_sent: Callable[[Prompt], Prompt] = lambda prompt: prompt) -> None:
        self._asked = limits.max_tokens is not None or limits.max_cost_usd is not None
        self._as_sent = as_sent
        self._billed = 0
        self._sent = 0

    def of(self, prompt: Prompt) -> int:
        if not self._asked:
            return 0
        prompt = self._as_sent(prompt)
        new = b"".join(prompt.messages[self._sent :]).decode("utf-8", "replace")
        if not self._sent:
            new += prompt.system + "".join(f"{tool.name}{tool.description}{tool.schema}" for tool in prompt.tools)
        return self._billed + self.estimate(new)

    async def counted(self, prompt: Prompt) -> int:
        """``of``, off the event loop where there may be much to count."""
        if not self._asked:
            return 0
        if self._sent and sum(map(len, prompt.messages[self._sent :])) <= self.FEW_BYTES:
            return self.of(prompt)
        return await run_in_thread(self.of, prompt)

    def learn(self, usage: Usage, sent: int) -> None:
        """Takes what one call was billed: from now on that covers the first ``sent`` messages."""
        self._billed, self._sent = usage.total, sent

    def restart(self) -> None:
        """Another conversation begins: nothing of it was billed yet."""
        self._billed = self._sent = 0

    def estimate(self, text: str) -> int:
        """An upper bound of one text's tokens."""
        return int(tokens.count(text) * self.FACTOR)


class Repetition:
    """Sees a run that goes in circles: one call, or a cycle of up to 5 calls, repeated 5 times in a row."""

    TIMES = 5
    LONGEST = 5

    def __init__(self, polled: Collection[str] = ()) -> None:
        self._polled = polled
        """Names of tools that are asked the same again on purpose."""
        self._seen: list[str] = []

    def watch(self, calls: Sequence[Call]) -> None:
        """Notes the calls of a turn. Raises ``LimitReached`` when the last ones are a cycle that came round 5 times."""
        for call in calls:
            if call.name in self._polled:
                continue
            spelled = f"{call.name}{json.dumps(call.arguments, sort_keys=True)}"
            self._seen = [*self._seen[-self.TIMES * self.LONGEST + 1 :], spelled]
            if any(self._circles(length) for length in range(1, self.LONGEST + 1)):
                raise LimitReached(TerminationReason.LOOP_DETECTED, "identical calls repeated", self.TIMES)

    def _circles(self, length: int) -> bool:
        tail = self._seen[-length * self.TIMES :]
        return len(tail) == length * self.TIMES and tail == tail[:length] * self.TIMES
