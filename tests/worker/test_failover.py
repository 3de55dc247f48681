"""Runs over a Redis with replicas: what has an effect begins when they know, and a loss makes it doubtful."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import ProgressMade
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import ACKNOWLEDGED, record_key
from deputize.shared.runs.record import DOUBT
from deputize.shared.runs.replicas import ReplicatedPipe
from deputize.worker.task import carry_out
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from tests.processes.replication import Replicated
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until

two_replicas = pytest.mark.parametrize("replicated", [2], indirect=True)


class Pay(Tool[Params]):
    """Pays. Nobody can be asked whether that has happened."""

    name = "pay"
    kind = Kind.EDIT
    effect = Effect.EFFECTFUL
    params = Params
    times = 0

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        self.times += 1
        return ToolResult("paid")


@asynccontextmanager
async def paying(url: str, home: Path, **settings: Any) -> AsyncGenerator[tuple[Bench, Pay]]:
    pay = Pay()
    own = {"redis": {"replicas": 1}, "local": False} | settings
    async with open_bench(url, home, offered=(*BUILTIN, pay), **own) as bench:
        yield bench, pay


async def accepted(bench: Bench, model: str, **fields: Any) -> str:
    return await bench.accept(DelegationRequest(task="do it", model=model, tools=["*"], **fields))


def counted(replicated: Replicated) -> int:
    return sum(map(int, replicated.primary.client.hvals(ACKNOWLEDGED)))


async def three_steps(bench: Bench, id: str) -> list[Any] | None:
    steps = await bench.steps(id)
    return steps[:3] if len(steps) > 2 else None


async def test_an_effect_begins_when_a_replica_knows_of_it(replicated: Replicated, tmp_path: Path) -> None:
    async with paying(replicated.url, tmp_path) as (bench, pay):
        id = await accepted(bench, script(tmp_path, [call("glob", pattern="*")], [call("pay")], [say("done")]))
        (replica,) = replicated.replicas
        replica.lag()
        running = asyncio.create_task(carry_out(bench.services, id))
        before = counted(replicated)
        await until(lambda: counted(replicated) > before + 3)  # each time replicas are waited for
        assert pay.times == 0
        replica.follow(replicated.primary)
        await running
        assert (pay.times, [step.result for step in await bench.steps(id)][1]) == (1, "paid")


async def test_an_effect_that_no_replica_knows_of_is_not_executed(replicated: Replicated, tmp_path: Path) -> None:
    async with paying(replicated.url, tmp_path) as (bench, pay):
        assert isinstance(bench.services.pipe, ReplicatedPipe)
        bench.services.pipe.seconds = 0.1
        id = await accepted(bench, script(tmp_path, [call("pay")], [say("done")]))
        replicated.replicas[0].lag()
        await carry_out(bench.services, id)
        (step,) = await bench.steps(id)
        assert (pay.times, (await bench.result(id)).termination_reason) == (0, "completed")
        assert "not executed: 0 of 1 replicas of Redis acknowledge writes" in step.error


async def test_a_model_call_whose_money_no_replica_knows_of_is_not_made(replicated: Replicated, tmp_path: Path) -> None:
    async with paying(replicated.url, tmp_path) as (bench, _):
        assert isinstance(bench.services.pipe, ReplicatedPipe)
        bench.services.pipe.seconds = 0.1
        model = script(tmp_path, [say("done")], price={"input": 1, "output": 1})
        id = await accepted(bench, model, limits=Limits(max_cost_usd=1))
        replicated.replicas[0].lag()
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert result.termination_reason == "model_unavailable"
        assert "no money can be reserved: 0 of 1 replicas of Redis" in result.summary


@two_replicas
async def test_after_a_loss_the_effects_of_a_turn_are_doubted_once(replicated: Replicated, tmp_path: Path) -> None:
    """The promoted replica does not even know that the run has begun."""
    behind = replicated.replicas[1]
    async with paying(replicated.url, tmp_path) as (bench, pay):
        model = script(
            tmp_path, [call("pay"), call("glob", pattern="*")], [call("pay")], [call("bash", command="sleep 1000")]
        )
        id = await accepted(bench, model)
        await until(lambda: behind.client.exists(record_key(id)))
        behind.lag()
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: pay.times == 2)
        replicated.fail_over(behind)
        (other,) = replicated.replicas
        other.follow(behind)
        await running  # fenced by its next write
        assert behind.client.hget(record_key(id), "attempt") == b"0"
        again = asyncio.create_task(carry_out(bench.services, id))
        first, pure, second = await until(partial(three_steps, bench, id))
        again.cancel()
        await asyncio.wait({again})
        assert pay.times == 3
        assert "outcome unknown: Redis has lost which calls were executed last" in first.error
        assert (pure.error, second.result) == (None, "paid")
        assert any("replicas had acknowledged" in each.message for each in await bench.seen(id, ProgressMade))
        assert await bench.store.redis.hget(record_key(id), DOUBT) == ""


async def test_a_run_that_lost_nothing_is_not_doubted(replicated: Replicated, tmp_path: Path) -> None:
    async with paying(replicated.url, tmp_path) as (bench, pay):
        id = await accepted(bench, script(tmp_path, [call("pay")], [call("bash", command="sleep 1000")], [say("done")]))
        running = asyncio.create_task(carry_out(bench.services, id))
        await until(lambda: pay.times == 1)
        replicated.fail_over(replicated.replicas[0])
        running.cancel()
        await asyncio.wait({running})
        assert await bench.store.redis.hget(record_key(id), DOUBT) is None
