"""What ``GET /metrics`` reports, in the text format of Prometheus: totals that are kept in Redis, and its state now.

All of it is read from Redis at each scrape, so any process of the service answers for the whole fleet. A total is since
ever: it outlives workers, the service and the records. After a flush of Redis it begins at 0, as after a restart.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, get_args

from ...shared.connection import Script
from ...shared.fleet import Fleet
from ...shared.metrics import COUNTED, INFINITY, RUN_RETRIES, SUM, Metric
from ...shared.request import RetryReason
from ...shared.runs.disk import RECORD_PARTS
from ...shared.runs.keys import LEASES, METRICS, PENDING
from ...shared.runs.webhook_queue import QUEUES

MEDIA_TYPE = "text/plain; version=0.0.4"
SURVEY = Script("survey")
SURVEYED = 1000
"""Delegations that are counted in one step, which keeps Redis busy for about 2 ms."""
Samples = Mapping[tuple[str, ...], float]
"""Values by the values of the labels."""

QUEUED = Metric("deputize_queue_depth", "gauge", "Delegations that a worker may claim.")
OLDEST = Metric("deputize_queue_oldest_seconds", "gauge", "For how long the first one of them could have been claimed.")
HELD = Metric(
    "deputize_delegations_held",
    "gauge",
    "Delegations that no worker may claim yet: they wait for others (after), or are paused.",
    ("why",),
    begins_with=[("after",), ("paused",)],
)
RUNNING = Metric("deputize_delegations_running", "gauge", "Delegations that a worker executes.")
WAITING = Metric(
    "deputize_delegations_waiting",
    "gauge",
    "Delegations whose run waits for something outside, without a slot.",
    ("why",),
    begins_with=[("permission",), ("subagent",), ("shared_prefix",), ("rate",), ("batch",)],
)
PERMISSIONS = Metric("deputize_permissions_pending", "gauge", "Permission requests without an answer.")
UNDELIVERED = Metric(
    "deputize_webhooks_undelivered", "gauge", "Notifications that have not arrived, those that failed for good, too."
)
WORKERS = Metric("deputize_workers", "gauge", "Workers that are alive.")
SLOTS = Metric("deputize_worker_slots", "gauge", "How many runs the worker executes at most at a time.", ("worker",))
LOADED = Metric("deputize_worker_running", "gauge", "Runs that the worker executes or that wait there.", ("worker",))
SANDBOXED = Metric("deputize_worker_sandbox", "gauge", "1 where commands can run on the worker, else 0.", ("worker",))
LAG = Metric(
    "deputize_worker_loop_lag_seconds",
    "gauge",
    "The longest time of the last minute by which the worker's event loop was late.",
    ("worker",),
)
FROM_THE_START = {RUN_RETRIES.name: [(reason,) for reason in get_args(RetryReason)]}
"""Further series that are reported with 0, too."""
STATE = [
    *(QUEUED, OLDEST, HELD, RUNNING, WAITING, PERMISSIONS, UNDELIVERED, WORKERS, SLOTS, LOADED, SANDBOXED, LAG),
]


async def exposition(redis: Any, fleet: Fleet) -> str:
    """Returns all metrics as text. Raises one of ``REDIS_ERRORS``."""
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.hgetall(METRICS).zrange(LEASES, 0, -1).hlen(PENDING)
        for queue in QUEUES:
            pipeline.zcard(queue)
        totals, ids, permissions, *undelivered = await pipeline.execute()
    state = {PERMISSIONS: {(): permissions}, UNDELIVERED: {(): sum(undelivered)}}
    state |= await _delegations(redis, ids) | await _fleet(fleet)
    counted = _counted(totals)
    blocks = [_block(metric, counted[metric.name]) for metric in COUNTED]
    return "".join(blocks + [_block(metric, state[metric]) for metric in STATE])


async def _delegations(redis: Any, ids: Sequence[str]) -> dict[Metric, Samples]:
    found, oldest = Counter[str](), 0
    for start in range(0, len(ids), SURVEYED):
        arguments = {"ids": ids[start : start + SURVEYED], **RECORD_PARTS}
        page: dict[str, int] = json.loads(await SURVEY.run(redis, [LEASES], arguments))
        oldest = max(oldest, page.pop("oldest_ms"))
        found.update(page)
    return {
        QUEUED: {(): found["queued"]},
        OLDEST: {(): oldest / 1000},
        HELD: {(why,): found[why] for why in ("after", "paused")},
        RUNNING: {(): found["running"]},
        WAITING: {(name[8:],): number for name, number in found.items() if name.startswith("waiting:")},
    }


async def _fleet(fleet: Fleet) -> dict[Metric, Samples]:
    cards = await fleet.workers()
    return {
        WORKERS: {(): len(cards)},
        SLOTS: {(card.name,): card.concurrency for card in cards},
        LOADED: {(card.name,): card.running for card in cards},
        SANDBOXED: {(card.name,): card.sandbox is None for card in cards},
        LAG: {(card.name,): card.loop_lag_seconds for card in cards},
    }


def _counted(totals: Mapping[str, str]) -> defaultdict[str, dict[tuple[str, ...], float]]:
    """Returns the totals by the names of their metrics. Those of a newer version are ignored, as all others are."""
    found: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for field, total in totals.items():
        name, *values = json.loads(field)
        found[name][(*values,)] = int(total)
    return found


def _block(metric: Metric, samples: Samples) -> str:
    """Returns a metric with its description."""
    lines = _histogram(metric, samples) if metric.type == "histogram" else _lines(metric, samples)
    return "\n".join([f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}", *lines, ""])


def _lines(metric: Metric, samples: Samples) -> Iterator[str]:
    begins_with = [*metric.begins_with, *FROM_THE_START.get(metric.name, [])]
    known = dict.fromkeys(begins_with if metric.labels else [()], 0.0)
    for values, value in sorted({**known, **samples}.items()):
        yield _line(metric.name, metric.labels, values, value * metric.unit)


def _histogram(metric: Metric, samples: Samples) -> Iterator[str]:
    """Yields the lines of a histogram, whose buckets also count what the smaller ones do."""
    bounds, labels = [*(f"{bound:g}" for bound in metric.buckets), INFINITY], (*metric.labels, "le")
    for values in sorted({values[:-1] for values in samples}):
        numbers = [*accumulate(samples.get((*values, bound), 0) for bound in bounds)]
        for bound, number in zip(bounds, numbers, strict=True):
            yield _line(f"{metric.name}_bucket", labels, (*values, bound), number)
        yield _line(f"{metric.name}_sum", metric.labels, values, samples.get((*values, SUM), 0) * metric.unit)
        yield _line(f"{metric.name}_count", metric.labels, values, numbers[-1])


def _line(name: str, labels: Sequence[str], values: Sequence[str], value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(labels, values, strict=True))
    return f"{name}{{{pairs}}} {value:.15g}" if pairs else f"{name} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
