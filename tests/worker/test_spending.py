"""The day's caps on spending: reserved before each call, counted for all runs of the fleet together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deputize.shared.request import Limits
from deputize.shared.runs.keys import RESERVED_MONEY, record_key, spend_key
from deputize.shared.runs.spend import Cap
from deputize.shared.wire import now
from deputize.worker.limits import Meter
from deputize.worker.model_calls import Spending
from deputize.worker.models.base import Price
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


@dataclass
class GrantingPipe:
    """Grants what is asked for, or this much, in billionths, and keeps what that was."""

    granted: int | None = None
    asked: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def script(self, _: object, keys: object, arguments: dict[str, Any]) -> asyncio.Future[list[str]]:
        self.asked.append((arguments["wanted"], arguments["least"]))
        granted: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        granted.set_result(["granted", str(self.granted or arguments["wanted"])])
        return granted

    def flush(self) -> None: ...


@pytest.mark.parametrize(("hour", "prompt"), [(False, 2.5), (True, 4)])
async def test_the_dearest_rate_that_a_prompt_may_have_is_reserved(hour: bool, prompt: float) -> None:
    pipe: Any = GrantingPipe()
    claim: Any = SimpleNamespace(id="dlg_1", fence="1:a")
    meter = Meter(Limits(), Price(input=2, output=10, cache_read=0.2, cache_write=2.5), hour_writes=hour)
    run: Any = SimpleNamespace(claim=claim, meter=meter)
    spending = Spending(run, pipe, [Cap("spend.daily_usd", "*", 1)])
    assert await spending.allowance(1000, 500) == 500
    assert pipe.asked == [(1000 * prompt * 1000 + 501 * 10_000, 1000 * prompt * 1000 + 65 * 10_000)]
    pipe.granted = round(1000 * prompt * 1000 + 200.5 * 10_000)
    assert await spending.allowance(1000, 500) == 200


def request(**fields: Any) -> Any:
    from deputize.shared.request import DelegationRequest

    return DelegationRequest(task="do it", **fields)
