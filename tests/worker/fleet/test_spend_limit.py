"""The limit on spending of an account is final until its day ends: the fleet remembers it, and sends nothing before."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import Waiting
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.capacity import capacities
from deputize.shared.runs.keys import outage_key
from deputize.shared.wire import now
from deputize.worker.fleet.admission.wait import EndpointWait
from deputize.worker.models.retry import SPEND_LIMIT_CODE, SpendLimitReached, classify_response
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.runs.bench import Bench, bench_at
from tests.waiting import until

SPENT = refuse(429, error={"details": {"error_code": SPEND_LIMIT_CODE}})


async def _end_the_day(bench: Bench) -> None:
    model = await bench.services.model(None)
    await bench.store.redis.hset(outage_key(model.endpoint_id or ""), "due", 1)


async def test_later_runs_of_all_workers_end_without_a_request_until_one_asks_after_the_day(
    redis_url: str, tmp_path: Path
) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "one") as bench:
        model.script("", [Turn([text("never")], faults=[SPENT] * 2)])
        first, second = await bench.run(), await bench.run()
        async with bench_at(model, redis_url, tmp_path / "two", name="worker-2") as other:
            third = await other.run()
        assert [each.termination_reason for each in (first, second, third)] == ["model_unavailable"] * 3
        assert len(model.journal) == 1
        assert all("Nothing is sent until " in each.summary for each in (second, third))
        (shown,) = await capacities(bench.store.redis)
        assert (shown.spent, shown.model) == (True, model.journal[0].body["model"])
        assert shown.until is not None
        assert (shown.until.hour, shown.until.minute, shown.until > now()) == (0, 0, True)

        await _end_the_day(bench)
        fourth = await bench.run()  # the limit holds for another day
        fifth = await bench.run()
        assert [each.termination_reason for each in (fourth, fifth)] == ["model_unavailable"] * 2
        assert len(model.journal) == 2
        await _end_the_day(bench)
        model.script("", [Turn([text("works")])])
        assert [each.summary for each in (await bench.run(), await bench.run())] == ["works"] * 2
        assert await capacities(bench.store.redis) == []


async def test_after_the_day_one_run_asks_and_the_others_follow_its_success(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[SPENT])])
        await bench.run()
        await _end_the_day(bench)
        model.script("", [Turn([text("works")], delay=0.2)])
        results = await asyncio.gather(*(bench.run() for _ in range(4)))
        assert [each.summary for each in results] == ["works"] * 4


async def test_a_run_that_waits_at_caps_waits_for_the_end_of_the_day(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("", [Turn([text("never")], faults=[SPENT] * 9)])
        id = await bench.accept(DelegationRequest(task="do it", on_cap="wait"))
        running = asyncio.create_task(carry_out(bench.services, id))

        async def waits() -> bool:
            return any(isinstance(each.event, Waiting) for each in await bench.store.events(id))

        await until(waits)
        (waiting,) = [each.event for each in await bench.store.events(id) if isinstance(each.event, Waiting)]
        assert waiting.why == "budget"
        assert "spend limit" in (waiting.detail or "").lower()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(model.journal) == 1


def _wait(**more: Any) -> EndpointWait:
    nothing: Any = None
    return EndpointWait(nothing, nothing, nothing, nothing, **more)


async def test_only_a_run_with_another_key_or_with_a_wait_at_caps_tries_again() -> None:
    reached = SpendLimitReached("spent")
    with pytest.raises(SpendLimitReached):
        await _wait(idle=lambda _: nullcontext()).may_pass(reached)  # it is not known until when
    reached.seconds = 0.0
    with pytest.raises(SpendLimitReached):
        await _wait().may_pass(reached)
    await _wait(has_other_key=lambda: True).may_pass(reached)
    await _wait(idle=lambda _: nullcontext()).may_pass(reached)


@pytest.mark.parametrize(
    ("status", "words", "headers", "spent"),
    [
        (429, "You have reached your spend limit for this month.", {}, True),
        (400, "The workspace's spending cap is reached", {}, True),
        (402, "credit limit exceeded", {}, True),
        (429, "spend limit of this minute", {"retry-after": "20"}, False),
        (429, "This request would exceed your rate limit", {}, False),
        (503, "spend limit", {}, False),
    ],
)
def test_the_words_for_a_limit_on_spending_are_known(
    status: int, words: str, headers: dict[str, str], spent: bool
) -> None:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"%b"}}' % words.encode()
    failure = classify_response(status, headers, body, "m", "http://x")
    assert failure.is_spent == spent
    assert failure.retryable == (not spent)
