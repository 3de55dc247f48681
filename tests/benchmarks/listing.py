"""How long a list with a filter and a report of cost take where 10,000 delegations have ended, over HTTP."""

from __future__ import annotations

import asyncio
import time

from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult, Usage
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import RECORD, WRITING, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from tests.benchmarks.number import Number
from tests.benchmarks.parts import open_parts

FINISHED = 10_000
RARE = 200
"""One in so many has failed."""
QUERIES = {
    "?status=failed": "status=failed",
    "?session=": "session=s7",
    "?label=": "label=rare:x",
    "both status and label": "status=succeeded&label=team:t1",
}


async def measure(runs: int) -> list[Number]:
    samples: dict[str, list[float]] = {name: [] for name in (*QUERIES, "cost")}
    async with open_parts() as parts:
        await fill(parts.redis_url)
        url, http = f"{await parts.api()}/v1", parts.mock.http
        for _ in range(runs + 1):
            for name, query in QUERIES.items():
                begun = time.perf_counter()
                answer = (await http.get(f"{url}/delegations?{query}&limit=50")).raise_for_status()
                samples[name].append((time.perf_counter() - begun) * 1000)
                assert answer.json()["items"]
            begun = time.perf_counter()
            answer = (await http.get(f"{url}/cost")).raise_for_status()
            samples["cost"].append((time.perf_counter() - begun) * 1000)
            assert answer.json()["total"]["delegations"] == FINISHED
    first, *others = (f"{FINISHED:,} finished: a list with {name}, 50 at most" for name in QUERIES)
    most = dict.fromkeys(QUERIES, 15.0) | {"cost": 20.0}
    names = dict(zip(samples, (first, *others, "… a report of what all of them cost"), strict=True))
    return [Number(names[each], "ms", taken[1:], at_most=most[each]) for each, taken in samples.items()]


async def fill(url: str) -> None:
    """Lets 10,000 delegations end."""
    async with connect(url) as redis, Pipe(redis, WRITING) as pipe:
        store = RunStore(redis, 3600)
        for start in range(0, FINISHED, 500):
            new = [(new_id(), request, request.limits) for request in map(_request, range(start, start + 500))]
            ended = [(at, answer.id) for at, answer in enumerate(await store.accept(new, 3600), start)]
            claims = [(at, await store.claim(id, "token", "worker", 3600)) for at, id in ended]
            calls = [(claim, _ending(at, claim.id)) for at, claim in claims if claim]
            written = [pipe.script(RECORD, *script_call(update, claim.id, claim.fence)) for claim, update in calls]
            pipe.flush()
            assert {*await asyncio.gather(*written)} == {"written"}


def _request(at: int) -> DelegationRequest:
    labels = {"team": f"t{at % 5}"} | ({"rare": "x"} if at % 1000 == 7 else {})
    return DelegationRequest(task="do it " * 20, session_id=f"s{at // 10}", labels=labels)


def _ending(at: int, id: str) -> RunUpdate:
    status = Status.FAILED if at % RARE == 3 else Status.SUCCEEDED
    usage = Usage(input_tokens=1000 + at, output_tokens=at, cost_usd=0.01)
    reason = TerminationReason.COMPLETED if status == Status.SUCCEEDED else TerminationReason.ERROR
    result = ToolAgentResult(
        delegation_id=id,
        status=status,
        termination_reason=reason,
        summary="done " * 30,
        details="x\n" * 200,
        usage=usage,
    )
    fields = {
        "status": status.value,
        "result": result.to_json(),
        "finished": now().isoformat(),
        "spent": usage.to_json(),
    }
    return RunUpdate(fields=fields, retention=3600)
