"""A run whose model's endpoint fails for a while: the retries hold its limits."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import ModelUnavailable
from deputize.shared.events import ResumedWaiting
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import RESERVED_MONEY, record_key
from deputize.shared.settings import Settings
from deputize.worker.core.limits import Meter
from deputize.worker.fleet.admission.outage import LONGEST_SECONDS
from deputize.worker.models.retry import SPEND_LIMIT_CODE
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Fault, Turn, cut, refuse, text
from tests.runs.bench import Bench, bench_at, open_bench
from tests.waiting import until


async def ran(redis_url: str, home: Path, turn: Turn, retry_seconds: str, **limits: float) -> ToolAgentResult:
    async with FakeModel() as model:
        model.script("", [turn])
        variables = model.variables
        settings = Settings.load(environ={**variables, "DEPUTIZE_MODEL_RETRY_SECONDS": retry_seconds})
        given: dict[str, Any] = {
            "model_endpoint": settings.model_endpoint,
            "model_retry_seconds": settings.model_retry_seconds,
        }
        async with open_bench(redis_url, home, **given) as bench:
            return await bench.run(limits=limits)


async def test_replies_that_are_cut_again_and_again_stay_within_the_token_budget(
    redis_url: str, tmp_path: Path
) -> None:
    turn = Turn([text("words " * 50)], usage={"input_tokens": 4000}, faults=[cut()] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "300", max_tokens=14_000)
    assert result.termination_reason == "budget"
    assert 0 < result.usage.total <= 14_000


async def test_replies_that_are_cut_again_and_again_stay_within_a_cap_on_money(redis_url: str, tmp_path: Path) -> None:
    """Each try reserves anew: what the tries before have cost is spent."""
    async with FakeModel() as model:
        model.script("", [Turn([text("words " * 50)], usage={"input_tokens": 4000}, faults=[cut()] * 100)])
        more: dict[str, Any] = {"spend": {"daily_usd": 0.05}, "model_retry_seconds": 300}
        async with bench_at(model, redis_url, tmp_path / "home", **more) as bench:
            result = await bench.run()
            assert (result.termination_reason, result.turn_count) == ("budget", 1)
            assert 0.02 < (result.usage.cost_usd or 0) <= 0.05
            assert await bench.store.redis.hvals(RESERVED_MONEY) == []


async def test_a_run_waits_for_its_endpoint_no_longer_than_its_own_time(redis_url: str, tmp_path: Path) -> None:
    turn = Turn([text("x")], faults=[refuse(529, retry_after_ms="30")] * 1000)
    result = await ran(redis_url, tmp_path / "home", turn, "300", timeout_seconds=1)
    assert result.termination_reason == "timeout" or "the run has only" in result.summary


async def test_a_run_that_ends_before_its_next_request_returns_its_slot_at_once(redis_url: str, tmp_path: Path) -> None:
    turn = Turn([text("x")], faults=[refuse(429, retry_after="7200")] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "7300", timeout_seconds=50)
    assert result.termination_reason == "model_unavailable"
    assert "the next request is possible in 60 s, but the run has only 50 s left: HTTP 429" in result.summary
    assert result.execution_time_ms < 10_000


def test_a_request_that_is_possible_only_after_the_time_is_not_waited_for() -> None:
    counter = Meter(Limits(timeout_seconds=100))
    counter.begun = counter.paused_at = time.monotonic()
    counter.check_wait(99.9, "It is busy.")
    with pytest.raises(ModelUnavailable, match=r"in 100 s, .* only 100 s left: It is busy\. .* timeoutSeconds"):
        counter.check_wait(100, "It is busy.")


async def test_a_run_fails_when_the_endpoint_failed_for_as_long_as_the_setting_allows(
    redis_url: str, tmp_path: Path
) -> None:
    turn = Turn([text("x")], faults=[refuse(529)] * 100)
    result = await ran(redis_url, tmp_path / "home", turn, "0.1")
    assert result.termination_reason == "model_unavailable"


def alone(task: str) -> DelegationRequest:
    """A request whose prompt is too short for the prompt cache, so that it waits for no other one."""
    return DelegationRequest(task=task, model="claude-haiku-4-5", tools=["glob"])


async def types_of(bench: Bench, id: str) -> list[str]:
    return [envelope.event.type for envelope in await bench.events(id)]


DOWN = [Turn([text("never")], faults=[refuse(529, retry_after_ms="300")] * 1000)]
UP = [Turn([text("done")])]


async def test_an_outage_is_waited_out_and_one_run_probes_for_all(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", DOWN)
        ids = [await bench.accept(alone(f"number {number}")) for number in range(5)]
        running = [asyncio.create_task(carry_out(bench.services, id)) for id in ids]

        async def all_wait() -> bool:
            return {(await bench.store.get(id)).status for id in ids} == {"waiting"}

        await until(all_wait)
        late = await bench.accept(alone("the late one"))
        running.append(asyncio.create_task(carry_out(bench.services, late)))
        await until(partial(_has, bench, late, "waiting"))
        failed = len(model.journal)
        await until(lambda: len(model.journal) > failed)
        assert (await bench.store.get(late)).status == "waiting"
        model.script("", UP)
        await asyncio.gather(*running)
        results = [await bench.result(id) for id in [*ids, late]]
        assert [result.termination_reason for result in results] == ["completed"] * 6
        for id in [*ids, late]:
            types = await types_of(bench, id)
            assert types.count("waiting") == types.count("resumed_waiting") == 1
        spent = [event.event for event in await bench.events(ids[0]) if isinstance(event.event, ResumedWaiting)]
        assert spent[0].seconds > 0


async def test_while_an_outage_lasts_requests_are_as_many_as_probes(redis_url: str, tmp_path: Path) -> None:
    """What one run is asked to wait concerns that run; of two it concerns all."""
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[refuse(529, retry_after="200")] * 1000)])
        ids = [await bench.accept(alone(f"number {number}")) for number in range(7)]
        running: list[asyncio.Task[Any]] = []
        begun = time.monotonic()
        for id in ids:
            running.append(asyncio.create_task(carry_out(bench.services, id)))
            await until(partial(_has, bench, id, "waiting"))
        assert 2 <= len(model.journal) <= 2 + (time.monotonic() - begun) / LONGEST_SECONDS
        begun = time.monotonic()
        for id in ids:
            await bench.store.cancel(id)
        await asyncio.gather(*running)
        assert time.monotonic() - begun < 30
        assert {(await bench.result(id)).termination_reason for id in ids} == {"cancelled"}


@pytest.mark.parametrize("fault", [refuse(500), refuse(429, retry_after="40")])
async def test_a_run_whose_own_requests_fail_does_not_stop_the_others(
    redis_url: str, tmp_path: Path, fault: Fault
) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("good", UP)
        model.script("bad", [Turn([text("never")], faults=[fault] * 1000)])
        bad = await bench.accept(alone("bad"))
        failing = asyncio.create_task(carry_out(bench.services, bad))
        await until(partial(_retried, bench, bad, 2 if fault.status == 500 else 1))
        good = [await bench.accept(alone(f"good {number}")) for number in range(10)]
        await asyncio.wait_for(asyncio.gather(*(carry_out(bench.services, id) for id in good)), 30)
        assert {(await bench.result(id)).termination_reason for id in good} == {"completed"}
        assert [id for id in good if await _has(bench, id, "waiting")] == []
        await bench.store.cancel(bad)
        await failing


async def _has(bench: Bench, id: str, type: str) -> bool:
    return type in await types_of(bench, id)


async def _retried(bench: Bench, id: str, times: int) -> bool:
    return (await types_of(bench, id)).count("model_retried") >= times


async def test_a_single_failure_is_no_outage(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("done")], faults=[refuse(500)])])
        result = await bench.run()
        assert result.success
        assert not {"waiting", "resumed_waiting"} & {*await types_of(bench, result.delegation_id)}


async def test_the_run_s_time_goes_on_while_it_waits_and_its_end_is_explained(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[refuse(429, retry_after_ms="9")] * 1000)])
        result = await bench.run(limits={"timeout_seconds": 1})
        assert result.termination_reason == "timeout"
        assert any("HTTP 429" in error and model.url in error for error in result.errors)
        types = await types_of(bench, result.delegation_id)
        assert types.index("waiting") < types.index("resumed_waiting") < types.index("run_finished")


@pytest.mark.parametrize("fault", [refuse(401), refuse(429, error={"details": {"error_code": SPEND_LIMIT_CODE}})])
async def test_wrong_credentials_and_a_spend_limit_end_the_run_at_once(
    redis_url: str, tmp_path: Path, fault: Fault
) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[fault] * 9)])
        result = await bench.run()
        assert result.termination_reason == "model_unavailable"
        assert len(model.journal) == 1
        assert "waiting" not in await types_of(bench, result.delegation_id)


async def test_waiting_counts_for_the_next_attempt_too(redis_url: str, tmp_path: Path) -> None:
    """The turn that waits is not counted twice, and the time that it waited is not given again."""
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[refuse(529, retry_after_ms="20")] * 100)])
        id = await bench.accept(DelegationRequest(task="do it"))
        running = asyncio.create_task(carry_out(bench.services, id))

        async def kept() -> bool:
            checkpoint = await bench.store.redis.hget(record_key(id), "checkpoint")
            return checkpoint is not None and json.loads(checkpoint)["elapsed"] > 0.05

        await until(kept)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        model.script("", UP)
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.success, result.turn_count, result.attempts) == (True, 1, 2)
        assert result.execution_time_ms > 50
