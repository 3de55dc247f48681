"""Automatic retries: a failed run is done again under the same id, with fresh files, and nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Status, ToolAgentResult
from deputize.shared.events import RunRetried, StepStarted
from deputize.shared.limits import Limits
from deputize.shared.request import AutomaticRetry, DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.shared.settings import Settings
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, call, refuse, stall, text
from tests.runs.bench import Bench, open_bench
from tests.runs.totals import check_totals
from tests.waiting import until

LOOKS, WRITES = Turn([call("glob", pattern="*")]), Turn([call("write_file", path="a.txt", content="x")])
OVERLOADED = Turn([text("done")], faults=[refuse(529)])


@dataclass
class Retried:
    """A worker whose model is the fake one and whose requests are not sent again."""

    bench: Bench
    model: FakeModel

    async def submit(self, *turns: Turn, attempts: int = 2, on: Any = None, **fields: Any) -> str:
        self.model.script("the task", turns)
        retry = AutomaticRetry(attempts=attempts, on=on) if on else AutomaticRetry(attempts=attempts)
        return await self.bench.accept(DelegationRequest(task="the task", retry=retry, **fields))

    async def finish(self, id: str) -> ToolAgentResult:
        """Carries it out as often as it is due."""
        while not (await self.bench.store.get(id)).status.finished:
            await carry_out(self.bench.services, id)
        return await self.bench.result(id)

    async def types(self, id: str) -> list[str]:
        kept = [envelope.event.type for envelope in await self.bench.events(id)]
        return [each for each in kept if each.startswith("run_")]


@pytest.fixture
async def retried(redis_url: str, tmp_path: Path) -> AsyncIterator[Retried]:
    async with AsyncExitStack() as opened:
        model = await opened.enter_async_context(FakeModel())
        endpoint = Settings.load(environ=model.variables).model_endpoint
        more: dict[str, Any] = {"model_endpoint": endpoint, "model_retry_seconds": 0}
        bench = await opened.enter_async_context(open_bench(redis_url, tmp_path / "home", **more))
        yield Retried(bench, model)


async def test_a_failed_run_begins_again_under_its_id_with_fresh_files_and_its_costs_are_one(retried: Retried) -> None:
    id = await retried.submit(LOOKS, WRITES, OVERLOADED)
    result = await retried.finish(id)
    assert (result.success, result.summary, result.attempts, result.turn_count) == (True, "done", 2, 3)
    assert (result.files_modified, result.errors) == (["a.txt"], [])
    assert await retried.types(id) == ["run_queued", "run_started", "run_retried", "run_started", "run_finished"]
    looked = [asked.body["messages"] for asked in retried.model.journal if len(asked.body["messages"]) == 3]
    assert len(looked) == 2
    assert looked[0] == looked[1], "the second try sees what the first one saw, not the file that it wrote"
    kept = await retried.bench.events(id)
    usages = [envelope.event.usage for envelope in kept if envelope.event.type == "replied"]
    assert (len(usages), result.usage.output_tokens) == (5, sum(usage.output_tokens for usage in usages))
    steps = [envelope.event.step.id for envelope in kept if isinstance(envelope.event, StepStarted)]
    assert len(steps) == len({*steps}) == 4
    totals = await check_totals(retried.bench.store.redis)
    assert totals["deputize_run_retries_total", "model_unavailable"] == 1


async def test_the_last_failure_is_the_result_and_the_delays_grow(retried: Retried) -> None:
    id = await retried.submit(WRITES, on=["max_turns"], limits=Limits(max_turns=1))
    result = await retried.finish(id)
    assert (result.termination_reason, result.attempts, result.files_modified) == ("max_turns", 3, ["a.txt"])
    events = await retried.bench.seen(id, RunRetried)
    assert [(each.reason, each.retry, each.of, each.delay_seconds) for each in events] == [
        ("max_turns", 1, 2, 1.0),
        ("max_turns", 2, 2, 2.0),
    ]


@pytest.mark.parametrize(
    ("turn", "fields"),
    [
        (Turn([text("done")], faults=[refuse(401)]), {}),
        (WRITES, {"limits": Limits(max_turns=1)}),
        (WRITES, {"on": ["timeout", "error"], "limits": Limits(max_turns=1)}),
    ],
    ids=["wrong credentials", "a reason that is not in the default", "a reason that is not named"],
)
async def test_what_would_end_the_same_way_or_is_not_asked_for_is_not_done_again(
    retried: Retried, turn: Turn, fields: dict[str, Any]
) -> None:
    result = await retried.finish(await retried.submit(turn, **fields))
    assert (result.status, result.attempts) == ("failed", 1)


async def test_a_script_without_a_rule_for_the_task_is_asked_once(retried: Retried, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"rules": [{"match": {"contains": "another task"}, "turns": [[{"text": "x"}]]}]}')
    id = await retried.submit(on=["model_unavailable"], model=f"scripted:{path}")
    result = await retried.finish(id)
    assert (result.termination_reason, result.attempts) == ("model_unavailable", 1)
    assert "no rule of it matches this task" in result.summary


async def test_the_limits_of_tokens_hold_for_all_tries_together(retried: Retried) -> None:
    limits = Limits(max_turns=1, max_tokens=9000)
    result = await retried.finish(await retried.submit(WRITES, attempts=10, on=["max_turns"], limits=limits))
    assert 1 < result.attempts < 11
    assert result.usage.total <= 9000


async def test_a_worker_lost_in_the_next_try_goes_on_with_that_try(retried: Retried) -> None:
    turns = [WRITES, Turn([call("read_file", path="a.txt")]), Turn([text("done")], faults=[refuse(529), stall()])]
    id = await retried.submit(*turns)
    assert await carry_out(retried.bench.services, id) is None
    running = asyncio.create_task(carry_out(retried.bench.services, id))
    await until(lambda: len(retried.model.journal) == 6)
    assert await carry_out(retried.bench.services, id) is None, "it has a worker already"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    result = await retried.finish(id)
    assert (result.success, result.attempts, result.files_modified) == (True, 3, ["a.txt"])
    types = [each for each in await retried.types(id) if each != "run_queued"]
    assert types == ["run_started", "run_retried", "run_started", "run_resumed", "run_finished"]
    assert len(result.details.splitlines()) == 2


async def test_between_two_tries_it_is_queued_with_a_time_and_may_be_cancelled(retried: Retried) -> None:
    retried.bench.services.retry_seconds = 3600
    id = await retried.submit(WRITES, OVERLOADED)
    await carry_out(retried.bench.services, id)
    store = retried.bench.store
    assert ((await store.get(id)).status, await store.reap(30)) == (Status.QUEUED, [])
    assert await store.redis.zscore(LEASES, id) > 0
    await store.cancel(id)
    await retried.bench.requeue(id)
    await carry_out(retried.bench.services, id)
    result = await retried.bench.result(id)
    assert (result.status, result.attempts, result.files_modified) == ("cancelled", 2, [])
    assert result.usage.total > 0
