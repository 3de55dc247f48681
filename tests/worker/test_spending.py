"""The day's caps on spending: reserved before each call, counted for all runs of the fleet together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.runs.keys import RESERVED_MONEY, record_key, spend_key
from deputize.shared.wire import now
from deputize.worker.task import carry_out
from tests.running import Bench, call, open_bench, say, script
from tests.waiting import until

PRICE = {"input": 2.0, "output": 10.0}
USAGE = {"input": 1000, "output": 100}  # $0.003
CAP = 0.05


@pytest.fixture
async def capped(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    spend = {"daily_usd": CAP, "per_label": {"team:docs": 0.02, "user": 0.02}}
    async with open_bench(redis_url, tmp_path / "home", spend=spend) as bench:
        yield bench


def endless(folder: Path, first: int = 0) -> str:
    turns = [{"blocks": [call("glob", pattern=str(first + n))], "usage": USAGE} for n in range(29)]
    return script(folder, *turns, price=PRICE)


async def spent(bench: Bench, counter: str = "*") -> float:
    return int(await bench.store.redis.hget(spend_key(f"{now():%Y-%m-%d}"), counter) or 0) / 1e9


async def reserved(bench: Bench) -> list[str]:
    return await bench.store.redis.hvals(RESERVED_MONEY)


async def test_a_run_is_ended_by_budget_before_the_days_cap_is_exceeded(capped: Bench, tmp_path: Path) -> None:
    result = await capped.run(model=endless(tmp_path))
    assert result.termination_reason == "budget"
    assert "spend.daily_usd (US dollars a day) 0.05 reached" in result.summary
    assert 0.03 < (result.usage.cost_usd or 0) <= CAP
    assert await spent(capped) == pytest.approx(result.usage.cost_usd)
    assert await reserved(capped) == []
    again = await capped.run(model=endless(tmp_path))
    assert (again.termination_reason, again.usage.total) == ("budget", 0)


async def test_runs_side_by_side_share_the_cap_and_wait_for_what_others_reserved(capped: Bench, tmp_path: Path) -> None:
    results = await asyncio.gather(*(capped.run(model=endless(tmp_path, 100 * n)) for n in range(4)))
    assert {result.termination_reason for result in results} == {"budget"}
    assert 0.03 < sum(result.usage.cost_usd or 0 for result in results) <= CAP
    assert await reserved(capped) == []


@pytest.mark.parametrize("labels", [{"team": "docs"}, {"user": "ada"}])
async def test_a_label_has_a_cap_of_its_own(capped: Bench, tmp_path: Path, labels: dict[str, str]) -> None:
    result = await capped.run(model=endless(tmp_path), labels=labels)
    assert result.termination_reason == "budget"
    assert "spend.per_label" in result.summary
    assert 0 < (result.usage.cost_usd or 0) <= 0.02
    other = await capped.run(
        model=script(tmp_path, {"blocks": [say("done")], "usage": USAGE}, price=PRICE), labels={"user": "bob"}
    )
    assert other.success
    assert await spent(capped) == pytest.approx((result.usage.cost_usd or 0) + 0.003)


async def test_what_a_lost_worker_had_reserved_is_given_back_by_the_next_one(capped: Bench, tmp_path: Path) -> None:
    slow = script(tmp_path, {"blocks": [say("done")], "usage": USAGE, "delay": 1000}, price=PRICE)
    id = await capped.accept(request(model=slow))
    running = asyncio.create_task(carry_out(capped.services, id))
    await until(lambda: reserves(capped, id))
    assert float((await reserved(capped))[0]) > 0
    running.cancel()
    await asyncio.wait({running})
    assert await reserves(capped, id)
    await capped.store.cancel(id)
    await carry_out(capped.services, id)
    assert (await capped.result(id)).termination_reason == "cancelled"
    assert await reserved(capped) == []


async def reserves(bench: Bench, id: str) -> bool:
    return bool(await bench.store.redis.hexists(record_key(id), "reserved"))


async def test_a_model_without_a_price_is_refused_where_spending_is_capped(capped: Bench) -> None:
    result = await capped.run(model="house-model")
    assert result.termination_reason == "refused"
    assert "the price of house-model is not known" in result.summary
    assert "prices" in result.summary


async def test_a_script_without_a_price_costs_nothing(capped: Bench, tmp_path: Path) -> None:
    assert (await capped.run(model=script(tmp_path, [say("done")]))).success


def request(**fields: Any) -> Any:
    from deputize.shared.request import DelegationRequest

    return DelegationRequest(task="do it", **fields)
