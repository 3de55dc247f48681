"""Economy: turns that go through message batches, at half the price. Issue 40, point 5."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deputize.shared.events import (
    MessageRead,
    ModelRetried,
    ProgressMade,
    Replied,
    ResumedWaiting,
    TurnStarted,
    Waiting,
)
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import economy_queue_key, economy_turn_key
from deputize.worker.economy.turns import Collecting
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, call, refuse, text
from tests.fake_model.batches import FakeBatch
from tests.runs.bench import Bench
from tests.runs.held import steer, wrap_up
from tests.waiting import until
from tests.worker.economy.killing import QUICK

LOOK, DONE = Turn([call("glob", pattern="*")]), Turn([text("done")])


def paid(fake: FakeModel) -> Counter[tuple[str, int]]:
    """How often each turn was billed, of each task: in a batch or directly."""
    found = [each.body["messages"] for each in fake.journal if each.path == "batch" or each.usage["input_tokens"]]
    return Counter((str(messages[0]["content"])[-40:], len(messages)) for messages in found)


async def progress(bench: Bench, id: str) -> list[str]:
    return [each.message for each in await bench.seen(id, ProgressMade)]


async def accepted(bench: Bench, **fields: object) -> str:
    return await bench.accept(DelegationRequest.model_validate({"task": "look", "economy": True, **fields}))


async def waits(bench: Bench, id: str, times: int) -> bool:
    """Whether so many attempts wait, or have waited."""
    return len(await bench.seen(id, Waiting)) == times and (await bench.store.get(id)).status == "waiting"


@asynccontextmanager
async def waiting(bench: Bench, id: str) -> AsyncGenerator[asyncio.Task[object]]:
    """The run is under way and waits for a batch."""
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: bench.seen(id, Waiting))
    yield running
    await running


async def test_a_runs_turns_go_through_batches_at_half_the_price(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, DONE])
    result = await bench.run("look", economy=True)
    assert (result.status, result.summary, result.turn_count) == ("succeeded", "done", 2)
    assert [len(batch.requests) for batch in fake.batches.all] == [1, 1]
    direct = await bench.run("look too")
    assert result.usage.batch_tokens == result.usage.total
    assert direct.usage.batch_tokens == 0
    assert (result.usage.cost_usd or 0) / (direct.usage.cost_usd or 0) < 0.55
    kinds = [type(each.event) for each in await bench.events(result)]
    begun = kinds.index(TurnStarted)
    assert kinds[begun : begun + 4] == [TurnStarted, Waiting, ResumedWaiting, Replied]
    assert {each.why for each in await bench.seen(result, Waiting)} == {"batch"}
    assert not await bench.store.redis.exists(economy_turn_key(result.delegation_id))


async def test_runs_that_wait_at_once_share_a_batch(bench: Bench, fake: FakeModel) -> None:
    bench.services.batches.pace = replace(QUICK, collecting=Collecting(most=3, wait_seconds=60))
    results = await asyncio.gather(*(bench.run(f"task {number}", economy=True) for number in range(3)))
    assert [each.status for each in results] == ["succeeded"] * 3
    assert [len(batch.requests) for batch in fake.batches.all] == [3]


async def test_an_interrupted_run_gets_the_reply_that_was_paid(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, DONE])
    fake.batches.seconds = None
    id = await accepted(bench)
    await bench.interrupt(id, lambda: fake.batches.all)
    (sent,) = await steer(bench, id, "also this")  # while no worker has it
    fake.batches.seconds = 0.0
    await bench.requeue(id)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.attempts, result.turn_count) == ("succeeded", 2, 2)
    assert set(paid(fake).values()) == {1}
    assert len(fake.batches.requests) == 2
    assert [(each.message_id, each.turn) for each in await bench.seen(id, MessageRead)] == [(sent, 2)]


@pytest.mark.long
async def test_a_run_is_not_given_up_because_workers_are_lost_while_it_waits(bench: Bench, fake: FakeModel) -> None:
    fake.batches.seconds = None
    id, attempts = await accepted(bench), list[asyncio.Task[object]]()
    for number in range(1, 6):
        attempts.append(asyncio.create_task(carry_out(bench.services, id)))
        await until(lambda number=number: waits(bench, id, number))
        await bench.lose(id)
    fake.batches.end()
    await bench.requeue(id)
    await carry_out(bench.services, id)
    await asyncio.gather(*attempts)
    assert (await bench.result(id)).status == "succeeded"
    assert len(fake.batches.requests) == 1


def batches_of(fake: FakeModel, id: str) -> list[FakeBatch]:
    return [batch for batch in fake.batches.all if any(each["custom_id"].startswith(id) for each in batch.requests)]


async def answered_without_a_worker(bench: Bench, fake: FakeModel, **fields: object) -> str:
    """A run whose reply came after its attempt was interrupted: another run keeps the sender at work."""
    fake.batches.seconds = None
    id, other = await accepted(bench, **fields), await accepted(bench, task="another one")
    async with waiting(bench, other):
        await until(lambda: batches_of(fake, other))
        await bench.interrupt(id, lambda: batches_of(fake, id))
        fake.batches.end(*batches_of(fake, id))
        await until(lambda: bench.store.redis.hexists(economy_turn_key(id), "result"))
        fake.batches.end()
    await bench.requeue(id)
    return id


async def test_a_reply_that_came_while_no_worker_had_the_run_is_used(bench: Bench, fake: FakeModel) -> None:
    id = await answered_without_a_worker(bench, fake)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).status == "succeeded"
    assert len(fake.batches.requests) == 2


async def test_a_reply_that_has_come_is_used_although_the_time_got_short(bench: Bench, fake: FakeModel) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=303)
    id = await answered_without_a_worker(bench, fake, deadline=deadline)
    await until(lambda: (deadline - datetime.now(UTC)).total_seconds() < 300)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.usage.batch_tokens) == ("succeeded", result.usage.total)
    assert set(paid(fake).values()) == {1}


async def test_a_reply_that_came_for_a_cancelled_run_is_counted(bench: Bench, fake: FakeModel) -> None:
    id = await answered_without_a_worker(bench, fake)
    await bench.store.cancel(id)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert result.status == "cancelled"
    assert result.usage.output_tokens > 0
    assert result.usage.batch_tokens == result.usage.total


async def test_a_batch_that_the_endpoint_has_lost_is_sent_again(bench: Bench, fake: FakeModel) -> None:
    fake.batches.seconds = None
    id = await accepted(bench)
    async with waiting(bench, id):
        await until(lambda: fake.batches.all)
        fake.batches.all.clear()
        fake.batches.seconds = 0.0
    assert (await bench.result(id)).status == "succeeded"
    (again,) = await bench.seen(id, ModelRetried)
    assert "was lost in its message batch" in again.error


async def test_a_reply_is_asked_for_with_as_few_tokens_as_the_model_may_write(bench: Bench, fake: FakeModel) -> None:
    reason = "max_tokens: 16000 > 4096, which is the maximum allowed number of output tokens for this model"
    fake.script("", [Turn([text("done")], faults=[refuse(400, error={"message": reason})])])
    result = await bench.run("look", economy=True)
    assert result.status == "succeeded"
    assert [each["params"]["max_tokens"] for each in fake.batches.requests] == [16000, 4096]


async def test_what_a_cancelled_run_has_queued_is_not_sent(bench: Bench, fake: FakeModel) -> None:
    bench.services.batches.pace = replace(QUICK, collecting=Collecting(wait_seconds=60))
    id = await accepted(bench)
    async with waiting(bench, id):
        await bench.store.cancel(id)
    result = await bench.result(id)
    assert (result.status, result.usage.total, fake.batches.all) == ("cancelled", 0, [])
    model: Any = await bench.services.model(None)
    assert not await bench.store.redis.exists(economy_queue_key(model.account))


async def test_what_a_run_has_queued_that_is_cancelled_without_a_worker_is_not_sent(
    bench: Bench, fake: FakeModel
) -> None:
    bench.services.batches.pace = replace(QUICK, collecting=Collecting(most=2, wait_seconds=60))
    id = await accepted(bench)
    await bench.interrupt(id, lambda: waits(bench, id, 1))
    await bench.store.cancel(id)
    other = await bench.run("another", economy=True)
    await carry_out(bench.services, id)
    assert ((await bench.result(id)).status, other.status) == ("cancelled", "succeeded")
    assert len(fake.batches.requests) == 1


async def test_what_a_cancelled_run_has_sent_is_counted(bench: Bench, fake: FakeModel) -> None:
    fake.batches.seconds = None
    id = await accepted(bench)
    async with waiting(bench, id):
        await until(lambda: fake.batches.all)
        await bench.store.cancel(id)
    result = await bench.result(id)
    assert result.status == "cancelled"
    assert result.usage.input_tokens == result.usage.batch_tokens > 0
    assert any("is left in its message batch" in each for each in await progress(bench, id))


async def test_a_wrap_up_ends_the_wait_and_reports_directly(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, DONE])
    fake.batches.seconds = None
    id = await accepted(bench)
    async with waiting(bench, id):
        await until(lambda: len(fake.batches.requests) == 1)
        fake.batches.end()
        await until(lambda: len(fake.batches.requests) == 2)
        await wrap_up(bench, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.summary) == ("wrapped_up", "done")
    assert any("its caller waits for the report" in each for each in await progress(bench, id))


@pytest.mark.parametrize("seconds", [-5, 60, 300.4])
async def test_a_deadline_that_is_near_is_met_by_direct_calls(bench: Bench, fake: FakeModel, seconds: float) -> None:
    """At once, or while the turn is queued."""
    bench.services.batches.pace = replace(QUICK, collecting=Collecting(wait_seconds=60))
    result = await bench.run("look", economy=True, deadline=datetime.now(UTC) + timedelta(seconds=seconds))
    assert (result.status, fake.batches.all, result.usage.batch_tokens) == ("succeeded", [], 0)
    (said,) = [each for each in await progress(bench, result.delegation_id) if "economy" in each]
    assert "are left until its deadline" in said
    direct = await bench.run("look")
    assert result.usage.cost_usd == pytest.approx(direct.usage.cost_usd, rel=0.1)


async def test_a_far_deadline_changes_nothing(bench: Bench, fake: FakeModel) -> None:
    result = await bench.run("look", economy=True, deadline=datetime.now(UTC) + timedelta(hours=2))
    assert result.usage.batch_tokens == result.usage.total


async def test_an_expired_request_is_sent_again_and_an_overloaded_one_too(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [Turn([text("done")], faults=[refuse(529)])])
    fake.batches.expire = 1
    result = await bench.run("look", economy=True)
    assert (result.status, len(fake.batches.all)) == ("succeeded", 3)
    first, second = await bench.seen(result, ModelRetried)
    assert "expired" in first.error
    assert "overloaded" in second.error


async def test_a_request_that_always_expires_ends_its_run(bench: Bench, fake: FakeModel) -> None:
    fake.batches.expire = 100
    result = await bench.run("look", economy=True)
    assert (result.termination_reason, len(fake.batches.all)) == ("model_unavailable", 3)
    assert "in 3 message batches" in result.errors[0]


async def test_a_refused_request_ends_its_run_and_no_other(bench: Bench, fake: FakeModel) -> None:
    fake.script("bad", [Turn([text("x")], faults=[refuse(400)])])
    bad, good = await asyncio.gather(bench.run("bad", economy=True), bench.run("good", economy=True))
    assert (bad.termination_reason, good.status) == ("model_unavailable", "succeeded")
    assert "fault 400" in bad.errors[0]


@pytest.mark.parametrize("trouble", [429, 500, 529, "cut_before", "cut_after"])
async def test_a_creation_that_fails_is_made_up_for(bench: Bench, fake: FakeModel, trouble: Any) -> None:
    fake.batches.troubles = [trouble]
    result = await bench.run("look", economy=True)
    assert (result.status, len(fake.batches.all)) == ("succeeded", 1)
    assert set(paid(fake).values()) == {1}


async def test_a_refused_batch_is_divided(bench: Bench, fake: FakeModel) -> None:
    bench.services.batches.pace = replace(QUICK, collecting=Collecting(most=4, wait_seconds=60))
    fake.batches.troubles = [400]
    results = await asyncio.gather(*(bench.run(f"task {number}", economy=True) for number in range(4)))
    assert [each.status for each in results] == ["succeeded"] * 4
    assert sum(len(batch.requests) for batch in fake.batches.all) == 4


async def test_wrong_credentials_end_the_run(bench: Bench, fake: FakeModel) -> None:
    fake.key = "another"
    result = await bench.run("look", economy=True)
    assert result.termination_reason == "model_unavailable"
    assert "401" in result.errors[0]


async def test_an_endpoint_without_batches_is_asked_directly(bench: Bench, fake: FakeModel) -> None:
    fake.lacks = ("batches",)
    for _ in range(2):
        result = await bench.run("look", economy=True)
        assert (result.status, result.usage.batch_tokens) == ("succeeded", 0)
        (said,) = [each for each in await progress(bench, result.delegation_id) if "economy" in each]
        assert "has no message batches (HTTP 404)" in said
    assert sum("batches" in each.path for each in fake.journal) == 1


async def test_a_script_is_asked_directly(bench: Bench) -> None:
    result = await bench.run("look", economy=True, model="scripted")
    assert any("has no endpoint" in each for each in await progress(bench, result.delegation_id))


async def test_calls_as_text_and_a_limit_of_turns_work(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, LOOK, Turn([text("the report")])])
    result = await bench.run("look", economy=True, limits={"max_turns": 1})
    assert (result.termination_reason, len(fake.batches.all)) == ("max_turns", 2)
    assert result.usage.batch_tokens == result.usage.total
    in_xml = await bench.run("look", economy=True, tool_call_style="xml")
    assert in_xml.status == "succeeded"


async def test_an_interrupted_final_turn_is_not_paid_twice(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, Turn([text("the report")])])
    fake.batches.seconds = None
    id = await accepted(bench, limits={"maxTurns": 1})
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: len(fake.batches.requests) == 1)
    fake.batches.end()
    await until(lambda: len(fake.batches.requests) == 2)
    running.cancel()
    await asyncio.wait({running})
    fake.batches.end()
    await bench.requeue(id)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.summary) == ("max_turns", "the report")
    assert len(fake.batches.requests) == 2


async def test_another_try_of_a_run_asks_anew(bench: Bench, fake: FakeModel) -> None:
    bench.services.retry_seconds = 0.01
    fake.script("", [Turn([text("")])])
    id = await accepted(bench, retry={"attempts": 1, "on": ["model_unavailable"]})
    await carry_out(bench.services, id)
    await bench.requeue(id)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).termination_reason == "model_unavailable"
    bodies = Counter(str(each["params"]["messages"]) for each in fake.batches.requests)
    assert {*bodies.values()} == {2}, "each request of the first try, and once more in the second"


async def test_a_child_is_economical_too_and_its_parents_time_stands_still(bench: Bench, fake: FakeModel) -> None:
    delegating = Turn([call("call_subagent", task="part", description="a part")])
    fake.script("whole", [delegating, DONE])
    fake.script("part", [DONE])
    fake.batches.seconds = 0.3
    id = await accepted(bench, task="whole", tools=["call_subagent", "glob"], limits={"timeoutSeconds": 30})
    begun = time.monotonic()
    running = asyncio.create_task(carry_out(bench.services, id))
    child = await until(lambda: next((each.id for each in bench.sent if each.id != id), None) or running.done())
    await carry_out(bench.services, str(child))
    await running
    result = await bench.result(id)
    assert (result.status, result.usage.batch_tokens) == ("succeeded", result.usage.total)
    assert len(fake.batches.requests) == 3
    assert time.monotonic() - begun - result.execution_time_ms / 1000 > 0.85, "three waits, one of them the child's"


async def test_money_is_reserved_at_the_price_of_batches(bench: Bench, fake: FakeModel) -> None:
    fake.script("", [LOOK, DONE])
    whole = await bench.run("look", economy=True)
    limit = Limits(max_cost_usd=(whole.usage.cost_usd or 0) * 1.5)
    result = await bench.run("look", economy=True, limits=limit)
    assert (result.usage.cost_usd or 0) <= (limit.max_cost_usd or 0)
