"""The metrics that are counted in Redis: totals since ever, each raised in the write that makes true what it counts.

They are in one hash, so every process of the service reports the same, and no file or process has to live for them. Its
fields are JSON lists of a metric's name and the values of its labels, which are of few: no ids, and no names that a
caller or a model can choose freely. ``orchestrator/metrics`` renders them, with what is measured at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic_core import to_json

from .delegation import TerminationReason
from .events import Event, ModelRetried, Replied, RunFinished, RunRetried

INFINITY = "+Inf"
SUM = "sum"
"""Stands for the sum of a histogram's values where others have the bound of a bucket."""
OTHER = "other"
"""The label of what has a name that is not the operator's."""


@lru_cache(maxsize=4096)
def _field(*parts: str) -> str:
    return to_json(parts).decode()


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric as Prometheus knows it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    unit: float = 1
    """What 1 in Redis stands for, which has whole numbers; in a histogram in the sum."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets; in Redis each value is in one of them."""
    begins_with: Sequence[tuple[str, ...]] = ()
    """Values of its labels that are reported with 0, too, so that the first increase is seen."""

    def field(self, *values: str) -> str:
        """Returns the field of the hash for these values of its labels."""
        return _field(self.name, *values)

    def observed(self, value: float, *values: str) -> dict[str, int]:
        """Returns what one value adds to a histogram."""
        bucket = next((f"{bound:g}" for bound in self.buckets if value <= bound), INFINITY)
        return {_field(self.name, *values, bucket): 1, _field(self.name, *values, SUM): round(value / self.unit)}


_CANCELLED = TerminationReason.CANCELLED, TerminationReason.WRAPPED_UP
ACCEPTED = Metric("deputize_delegations_accepted_total", "counter", "Delegations that were accepted.")
FINISHED = Metric(
    "deputize_delegations_finished_total",
    "counter",
    "Delegations that have ended.",
    ("status", "reason"),
    begins_with=[
        ("succeeded", "completed"),
        *(("cancelled" if each in _CANCELLED else "failed", each.value) for each in TerminationReason),
    ],
)
RUN_RETRIES = Metric(
    "deputize_run_retries_total", "counter", "Failed runs that are done again from the start.", ("reason",)
)
LEASES_LOST = Metric("deputize_leases_lost_total", "counter", "Runs whose worker was lost or was blocked.")
STORE_LOSSES = Metric(
    "deputize_store_losses_total",
    "counter",
    "Failovers of Redis that lost acknowledged writes, and accepted delegations that were lost so.",
    ("what",),
    begins_with=[("acknowledgement",), ("delegation",)],
)
TURNS = Metric("deputize_turns_total", "counter", "Turns, each with one complete reply of the model.")
TOKENS = Metric(
    "deputize_tokens_total",
    "counter",
    "Tokens; input is without what was read from the prompt cache or written to it.",
    ("model", "kind"),
)
COST = Metric("deputize_cost_usd_total", "counter", "US dollars, of models with a price.", ("model",), unit=1e-6)
MODEL_RETRIES = Metric("deputize_model_retries_total", "counter", "Requests to models that failed and were sent again.")
FIRST_TOKEN = Metric(
    "deputize_first_token_seconds",
    "histogram",
    "Seconds from a request to the model until its reply begins.",
    ("model",),
    unit=1e-3,
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30),
)
TOOL = Metric(
    "deputize_tool_duration_seconds",
    "histogram",
    "Seconds that a tool call was executed, without waiting for permission.",
    ("tool", "status"),
    unit=1e-3,
    buckets=(0.01, 0.1, 1, 10, 60, 600),
)
SANDBOX_FAILURES = Metric(
    "deputize_sandbox_failures_total",
    "counter",
    "Tool calls, and commands of checks, that failed because no sandbox could be set up.",
)
WEBHOOK_TRIES = Metric(
    "deputize_webhook_tries_total",
    "counter",
    "Tries to send a notification: delivered, to be retried, or failed for good.",
    ("outcome",),
    begins_with=[("delivered",), ("retried",), ("failed",)],
)
SCHEDULES_PAUSED = Metric(
    "deputize_schedules_paused_total", "counter", "Pauses of schedules after failures in a row, not those by hand."
)
COUNTED = [
    *(ACCEPTED, FINISHED, RUN_RETRIES, LEASES_LOST, TURNS, TOKENS, COST, MODEL_RETRIES, FIRST_TOKEN, TOOL),
    *(SANDBOX_FAILURES, WEBHOOK_TRIES, STORE_LOSSES, SCHEDULES_PAUSED),
]
KINDS = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadTokens": "cache_read",
    "cacheWriteTokens": "cache_write",
}
"""The kinds of tokens, by their names in ``Usage``."""


def counted(event: Event) -> dict[str, int]:
    """Returns what an event adds, in the write that stores it."""
    match event:
        case Replied():
            return {TURNS.field(): 1}
        case ModelRetried():
            return {MODEL_RETRIES.field(): 1}
        case RunRetried():
            return {RUN_RETRIES.field(event.reason.value): 1}
        case RunFinished():
            return {FINISHED.field(event.result.status.value, event.result.termination_reason.value): 1}
        case _:
            return {}


@lru_cache(maxsize=256)
def spent_fields(model: str) -> Mapping[str, str]:
    """Returns the fields for what a run spends with this model, by the names of ``Usage``, for ``count.lua``."""
    return {name: TOKENS.field(model, kind) for name, kind in KINDS.items()} | {"costUsd": COST.field(model)}
