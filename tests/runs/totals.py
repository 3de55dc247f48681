"""What /metrics reports, and whether its totals are those of the records and events that they were counted with."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deputize.orchestrator.metrics.exposition import exposition
from deputize.shared.events import StepCompleted
from deputize.shared.fleet import Fleet
from deputize.shared.metrics import ACCEPTED, COST, COUNTED, FINISHED, KINDS, TOKENS, TOOL, TURNS, counted
from deputize.shared.runs.keys import INDEX, METRICS, record_key
from deputize.shared.runs.record import SPENT
from deputize.shared.runs.store import RunStore

Reported = dict[tuple[str, ...], float]
"""Values by the name and the values of the labels, in the order of the labels' names."""
OF_EVENTS = (FINISHED.name, TURNS.name, "deputize_model_retries_total", "deputize_run_retries_total")


def parsed(text: str) -> Reported:
    """What Prometheus reads of it; no series is in it twice."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    keys = [(sample.name, *(value for _, value in sorted(sample.labels.items()))) for sample in samples]
    assert len({*keys}) == len(keys)
    return {key: sample.value for key, sample in zip(keys, samples, strict=True)}


async def reported(redis: Any) -> Reported:
    return parsed(await exposition(redis, Fleet(redis)))


async def check_totals(redis: Any) -> Reported:
    """Asserts that all delegations of this Redis, none of which was removed, were counted once; gives what is reported.

    A call is counted by the attempt that executed it, if its step ended there: so at most as often as a step has ended.
    """
    store, wanted, steps = RunStore(redis, 60), Counter[tuple[str, ...]](), 0
    for id in await redis.zrange(INDEX, 0, -1):
        wanted[ACCEPTED.name,] += 1
        for event in [envelope.event for envelope in await store.events(id)]:
            wanted.update({tuple(json.loads(field)): amount for field, amount in counted(event).items()})
            steps += isinstance(event, StepCompleted)
        spent = json.loads(await redis.hget(record_key(id), SPENT) or "{}")
        wanted.update({(TOKENS.name, kind): spent.get(name, 0) for name, kind in KINDS.items()})
        wanted[COST.name,] += round((spent.get("costUsd") or 0) * 1e6)
    found = Counter[tuple[str, ...]]()
    for field, total in (await redis.hgetall(METRICS)).items():
        name, *labels = json.loads(field)
        assert name in {metric.name for metric in COUNTED}
        if name in (*OF_EVENTS, ACCEPTED.name):
            found[name, *labels] += int(total)
        elif name == TOKENS.name:
            found[name, labels[-1]] += int(total)
        elif name == COST.name:
            found[name,] += int(total)
    assert +found == +wanted, f"counted too often: {+(found - wanted)}, too rarely: {+(wanted - found)}"
    totals = await reported(redis)
    assert sum(value for key, value in totals.items() if key[0] == f"{TOOL.name}_count") <= steps
    return totals
