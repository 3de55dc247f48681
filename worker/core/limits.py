"""Limit enforcement: whether a run has had enough turns, tool calls, time, tokens, money or files is decided here.

Caps on money are compared in Redis (``spend.lua``): whole trees, owners and the fleet share them, so comparing and
reserving is one atomic step. ``Meter.capped_allowance`` is passed the money that is granted.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...shared.delegation import TerminationReason, Usage
from ...shared.errors import DeputizeError, ModelUnavailable, Refused
from ...shared.limits import Limits
from ...shared.text import plain_number
from ..models.base import Model, Price, priced

SUMMARY_SHARE = 0.1
SUMMARY_SECONDS = 15.0
"""The end of the run's time is reserved for the final turn without tools, so that the whole run keeps its limit."""
REPORT_TOKENS = 1_000
"""Output tokens that are reserved for the final turn, within SUMMARY_SHARE of the limit."""
REPORT_PROMPT_TOKENS = 20_000
"""Prompt tokens that are reserved for it: a conversation that has more may be replaced by the log of the steps."""
HALF_UNIT = 0.5e-9
"""US dollars: what is reserved is rounded to billionths."""
SMALLEST_REPLY = 64
"""Output tokens below which a model call is useless."""


class LimitReached(DeputizeError):
    """What ends the work before the final turn: a regular termination, not a failure. ``str`` names limit and value.

    With None as its value ``limit`` is the reason in words, as where the model did not hand in its output.
    """

    def __init__(self, reason: TerminationReason, limit: str, value: object) -> None:
        number = plain_number(value) if isinstance(value, float) else value
        super().__init__(limit if value is None else f"{limit} {number} reached")
        self.reason = reason
        self.kept = reason.value, limit, value
        """What it can be made of again, as JSON."""


class CapReached(LimitReached):
    """A cap on money whose window moves on: the run waits for that."""


@dataclass(slots=True)
class Meter:
    """Counts what a run has used over all its attempts, and checks it against the limits."""

    limits: Limits
    price: Price | None = None
    hour_writes: bool = False
    """Whether its prompts may be cached for an hour, which costs more than 5 minutes do."""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    wasted: Usage = field(default_factory=Usage)
    """The part of ``usage`` spent on failed tries: replies that were cut and requested again."""
    own: Usage = field(default_factory=Usage)
    """The part of ``usage`` that this run spent itself: without its child delegations."""
    own_stored: Usage | None = None
    """What was stored last of it."""
    earlier_seconds: float = 0.0
    """Seconds used by earlier attempts."""
    begun: float = field(default_factory=time.monotonic)
    paused_at: float | None = None
    """When the run's time was stopped, if it is."""
    pauses: int = 0
    """How many blocks stop it now."""
    begun_reply: Usage | None = None
    """Minimum usage of the reply being streamed: billed even when the worker is lost before its end."""
    begun_turn: bool = False
    """Whether that reply counts as a turn."""
    reached: LimitReached | None = None
    """The limit that ended the run, whose final turn another attempt may have to make."""
    wraps_up: LimitReached | None = None
    """Set when the caller has asked the run to wrap up."""
    refused_call: bool = False
    outgrown: int = 0
    """How many bytes the files may have on disk, if they have more."""
    lent: dict[str, Limits] = field(default_factory=dict[str, Limits])
    """The limits of running child delegations, by id: their tokens and cost are reserved."""
    booked: list[str] = field(default_factory=list[str])
    """The child delegations whose usage is included in ``usage``."""

    def set_price(self, model: Model, cap: str = "") -> None:
        """Sets the price of further replies. For caps on money, scripts cost nothing.

        Raises ``Refused`` where a cost limit or the ``cap`` of this name has no known price to enforce it.
        """
        self.price = model.price()
        if self.limits.max_cost_usd is not None and self.price is None:
            detail = (
                f"maxCostUsd cannot be enforced: the price of {model.name} is not known. Use maxTokens, or leave it out"
            )
            raise Refused(detail, [{"pointer": "/limits/maxCostUsd", "detail": detail}])
        if cap and self.price is None and not model.name.startswith("scripted"):
            raise Refused(
                f"{cap} cannot be enforced: the price of {model.name} is not known. "
                "The operator of this service can set it in `prices`"
            )

    @property
    def elapsed(self) -> float:
        """Returns the seconds of the run's time used, over all attempts."""
        return self.earlier_seconds + (self.paused_at or time.monotonic()) - self.begun

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stops the run's time while the block runs. Blocks may overlap: the time goes on at the end of the last."""
        self.pauses += 1
        self.paused_at = self.paused_at or time.monotonic()
        try:
            yield
        finally:
            self.pauses -= 1
            if not self.pauses:
                self.begun += time.monotonic() - self.paused_at
                self.paused_at = None

    @property
    def time_left(self) -> float:
        """Returns the seconds until the work must stop, without the time reserved for the summary."""
        whole = self.limits.timeout_seconds
        return whole - min(SUMMARY_SECONDS, whole * SUMMARY_SHARE) - self.elapsed

    @property
    def time_for_summary(self) -> float:
        """Returns the seconds left for the final turn, so that the run's total time is not exceeded."""
        return self.limits.timeout_seconds - self.elapsed

    def check_wait(self, seconds: float, why: str) -> None:
        """Raises ``ModelUnavailable`` where the whole time ends before a request that is possible in ``seconds``."""
        if seconds >= (left := self.time_for_summary):
            raise ModelUnavailable(
                f"the next request is possible in {seconds:.0f} s, but the run has only {max(left, 0):.0f} s left: "
                f"{why} Try again later, or with a longer timeoutSeconds.",
                may_pass=True,
            )

    def wrap_up(self) -> None:
        """Ends the work before its next turn: the caller asks for it."""
        self.wraps_up = LimitReached(TerminationReason.WRAPPED_UP, "its caller asked it to wrap up", None)

    def check_turn(self) -> None:
        if self.reached:
            raise self.reached
        if self.wraps_up:
            raise self.wraps_up
        if self.outgrown:
            raise LimitReached(TerminationReason.BUDGET, "sandbox.disk_bytes", self.outgrown)
        if self.refused_call:
            raise LimitReached(TerminationReason.MAX_TOOL_CALLS, "maxToolCalls", self.limits.max_tool_calls)
        if self.turns >= self.limits.max_turns:
            raise LimitReached(TerminationReason.MAX_TURNS, "maxTurns", self.limits.max_turns)
        if self.time_left <= 0:
            raise self.out_of_time()

    @property
    def may_go_on(self) -> bool:
        """Whether another turn is possible."""
        try:
            self.check_turn()
        except LimitReached:
            return False
        return not self.is_spent

    def begin_turn(self) -> int:
        """Counts a turn and returns its number, from 1. Raises ``LimitReached``."""
        self.check_turn()
        self.turns += 1
        return self.turns

    def take_back_turn(self) -> None:
        """Makes the last turn one that was not used."""
        self.turns -= 1

    def take_call(self) -> bool:
        """Counts a tool call; returns False where none is left."""
        if self.tool_calls >= self.limits.max_tool_calls:
            self.refused_call = True
            return False
        self.tool_calls += 1
        return True

    def note_disk(self, size: int, most: int) -> None:
        """Takes how many bytes the files have on disk, and how many they may have, for the check before a turn."""
        self.outgrown = most if size > most else 0

    def out_of_time(self) -> LimitReached:
        return LimitReached(TerminationReason.TIMEOUT, "timeoutSeconds", self.limits.timeout_seconds)

    def begin_reply(self, usage: Usage, *, counted: bool) -> None:
        """Records the usage owed from now on; ``counted``: the reply counts as one of the limit's turns."""
        self.begun_reply, self.begun_turn = self._priced(usage), counted

    def spend(self, usage: Usage, *, wasted: bool = False) -> Usage:
        """Adds the usage of a model call; returns it with its cost, where the price is known."""
        self.begun_reply = None
        usage = self._priced(usage)
        self.usage += usage
        self.own += usage
        if wasted:
            self.wasted += usage
        return usage

    def _priced(self, usage: Usage) -> Usage:
        if not usage.total:
            return usage.model_copy(update={"cost_usd": usage.cost_usd or 0.0, "cache_saved_usd": 0.0})
        return usage if usage.cost_usd and not self.price else priced(usage, self.price)

    @property
    def has_budget(self) -> bool:
        """Whether the run has a limit of tokens or cost, so that calls are reserved before they are made."""
        return self.limits.max_tokens is not None or self.limits.max_cost_usd is not None

    @property
    def tokens_left(self) -> int | None:
        """Returns the tokens neither used nor reserved by this run or its children; None without a limit."""
        if self.limits.max_tokens is None:
            return None
        return self.limits.max_tokens - self.usage.total - sum(each.max_tokens or 0 for each in self.lent.values())

    @property
    def money_left(self) -> float | None:
        """Returns the same in US dollars."""
        if self.limits.max_cost_usd is None:
            return None
        lent = sum(each.max_cost_usd or 0.0 for each in self.lent.values())
        return self.limits.max_cost_usd - (self.usage.cost_usd or 0.0) - lent

    @property
    def is_spent(self) -> bool:
        """Whether tokens or money do not suffice for another reply."""
        tokens, money = self.tokens_left, self.money_left
        return (tokens is not None and tokens < SMALLEST_REPLY) or (money is not None and money <= 0)

    def spent_only(self) -> Meter:
        """Returns a meter for another try of the run, which counts what was spent and nothing else."""
        return Meter(self.limits, usage=self.usage, wasted=self.wasted, own=self.own, booked=self.booked)

    def lend(self, id: str, asked: Limits, sharers: int) -> Limits:
        """Returns the limits of a child delegation: those requested, capped by what this run has left.

        Tokens and cost that are not requested explicitly are divided among the ``sharers`` and this run. The end of the
        time is reserved, so that this run can use the child's result. Raises ``LimitReached`` where nothing is left.
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
        """Releases the reservation of a child delegation and adds what it used. Idempotent."""
        self.lent.pop(id, None)
        if id not in self.booked:
            self.booked.append(id)
            self.usage += usage

    def output_allowance(self, prompt_tokens: int, wanted: int) -> int:
        """Returns how many output tokens the next call may have, given an upper bound of its prompt's tokens.

        The maximum cost of the call is reserved before it is made, so the token and cost limits are as exact as the
        bound; from the second turn on, so is that of the final turn. Raises ``LimitReached(BUDGET)`` where not even a
        short reply fits.
        """
        allowed, (report_tokens, report_usd) = wanted, self._reserved(prompt_tokens)
        if (tokens := self.tokens_left) is not None:
            allowed = min(allowed, tokens - report_tokens - prompt_tokens)
            if allowed < SMALLEST_REPLY:
                raise LimitReached(TerminationReason.BUDGET, "maxTokens", self.limits.max_tokens)
        if (money := self.money_left) is not None and self.price is not None:
            left = money - report_usd
            allowed = min(allowed, affordable(prompt_tokens, left, self.price, hour_writes=self.hour_writes))
            if allowed < SMALLEST_REPLY:
                raise LimitReached(TerminationReason.BUDGET, "maxCostUsd", self.limits.max_cost_usd)
        return allowed

    def _reserved(self, prompt_tokens: int) -> tuple[int, float]:
        """Returns the tokens and US dollars reserved for the final turn: none in the first turn, and in that itself."""
        if self.turns < 2 or self.reached:
            return 0, 0.0
        prompt, limits = min(prompt_tokens, REPORT_PROMPT_TOKENS), self.limits
        tokens, usd = prompt + min(REPORT_TOKENS, int((limits.max_tokens or 0) * SUMMARY_SHARE)), 0.0
        if self.price:
            report = REPORT_TOKENS * self.price.rates(prompt).output / 1_000_000
            usd = min(report, (limits.max_cost_usd or 0) * SUMMARY_SHARE)
            usd += self.price.highest_prompt_cost(prompt, hour_writes=self.hour_writes)
        return tokens, usd

    def cost_range(self, prompt_tokens: int, wanted: int) -> tuple[float, float] | None:
        """Returns the US dollars that a call costs at most, and with the smallest reply; None without a price."""
        if self.price is None:
            return None
        prompt = self.price.highest_prompt_cost(prompt_tokens, hour_writes=self.hour_writes)
        output = self.price.rates(prompt_tokens).output / 1_000_000
        # One token more: what is granted is converted back to whole tokens.
        return prompt + (wanted + 1) * output, prompt + SMALLEST_REPLY * output

    def capped_allowance(self, prompt_tokens: int, wanted: int, granted: float) -> int:
        """Returns how many of the ``wanted`` output tokens the next call may have for the US dollars ``granted``."""
        assert self.price is not None
        output = affordable(prompt_tokens, granted + HALF_UNIT, self.price, hour_writes=self.hour_writes)
        return min(wanted, max(SMALLEST_REPLY, output))

    def unstored(self) -> Usage | None:
        """Returns what the run has spent itself, to be stored; None where that is stored already."""
        if self.own_stored is self.own:
            return None
        self.own_stored = self.own
        return self.own

    def checkpoint(self) -> dict[str, object]:
        """Returns the state for the next attempt, to be encoded as JSON; ``restored`` reads it."""
        return {
            "turns": self.turns,
            "toolCalls": self.tool_calls,
            "usage": self.usage,
            "wasted": self.wasted,
            "own": self.own,
            "elapsed": round(self.elapsed, 3),
            "begun": self.begun_reply,
            "begunTurn": self.begun_turn,
            "booked": self.booked,
            "reached": self.reached and self.reached.kept,
        }

    @classmethod
    def restored(cls, limits: Limits, checkpoint: Mapping[str, Any], elapsed: float = 0.0) -> Meter:
        """Returns a meter that continues from an earlier attempt's checkpoint, or a new one where there is none.

        ``elapsed``: the seconds used by earlier attempts, where that is known beyond the checkpoint.
        """
        if not checkpoint:
            return cls(limits, earlier_seconds=elapsed)
        meter = cls(
            limits,
            turns=int(str(checkpoint["turns"])),
            tool_calls=int(str(checkpoint["toolCalls"])),
            usage=Usage.model_validate(checkpoint["usage"]),
            wasted=Usage.model_validate(checkpoint["wasted"]),
            own=Usage.model_validate(checkpoint.get("own", checkpoint["usage"])),
            earlier_seconds=max(float(str(checkpoint["elapsed"])), elapsed),
            booked=list(checkpoint.get("booked", ())),
        )
        if kept := checkpoint.get("reached"):
            meter.reached = LimitReached(TerminationReason(kept[0]), *kept[1:])
        if checkpoint.get("begun"):
            # That reply is requested again: its turn is not counted twice, its cost is.
            meter.turns -= bool(checkpoint.get("begunTurn", True))
            begun = Usage.model_validate(checkpoint["begun"])
            meter.usage, meter.wasted, meter.own = meter.usage + begun, meter.wasted + begun, meter.own + begun
        return meter


def affordable(prompt_tokens: int, money: float, price: Price, *, hour_writes: bool = False) -> int:
    """Returns the output tokens affordable after the prompt is paid for; ``hour_writes``: it may be cached so long."""
    left = money - price.highest_prompt_cost(prompt_tokens, hour_writes=hour_writes)
    output = price.rates(prompt_tokens).output
    return int(left * 1_000_000 / output) if output else 1 << 30
