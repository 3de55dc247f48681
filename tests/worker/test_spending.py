"""The day's caps on spending: reserved before each call, counted for all runs of the fleet together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from redis.exceptions import ResponseError

from deputize.orchestrator.owner_caps import publish
from deputize.shared.connection import Lasts, ScriptCall
from deputize.shared.delegation import Usage
from deputize.shared.events import ResumedWaiting, Waiting
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.caps import Cap, caps_of_owner
from deputize.shared.runs.cost import cost_report
from deputize.shared.runs.keys import RESERVED_MONEY, record_key, spend_key
from deputize.shared.settings import SpendWindows
from deputize.shared.wire import now
from deputize.worker.attempts import Attempt
from deputize.worker.core.conversation import Conversation
from deputize.worker.core.emit import Emitter
from deputize.worker.core.limits import LimitReached, Meter
from deputize.worker.core.model_calls import ModelCalls
from deputize.worker.core.part import Part
from deputize.worker.core.prompt import first_message
from deputize.worker.fleet.admission.outage import Outages
from deputize.worker.fleet.admission.wait import EndpointWait
from deputize.worker.fleet.gate import PrefixWait, SharedPrefixes
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Price
from deputize.worker.models.caching import FIVE_MINUTES, Retention
from deputize.worker.models.credentials import Credentials
from deputize.worker.redis_record import RedisRecord
from deputize.worker.spending import ReservedMoney
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, PromptCache, Turn, text
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.held import wrap_up
from tests.waiting import until
from tests.worker.claimed import claimed, context_of

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


def dear(folder: Path) -> str:
    """Two calls that take most of a cap, and the rest of the work."""
    turns = [{"blocks": [call("glob", pattern="a")], "usage": {"input": 10_000, "output": 100}} for _ in range(2)]
    return script(folder, *turns, {"blocks": [say("done")], "usage": USAGE}, price=PRICE)


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


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_call_that_was_cut_off_counts_with_all_that_was_reserved(
    capped: Bench, tmp_path: Path, is_lost: bool
) -> None:
    """Nothing states what the endpoint has billed for it. A lost worker has left its reservation, here as the version
    before has written it: without the attempt."""
    slow = script(tmp_path, {"blocks": [say("done")], "usage": USAGE, "delay": 1000}, price=PRICE)
    id = await capped.accept(DelegationRequest(task="do it", model=slow))
    running = asyncio.create_task(carry_out(capped.services, id))
    await until(lambda: reserves(capped, id))
    left = json.loads(await capped.store.redis.hget(record_key(id), "reserved"))
    if is_lost:
        old = {"money": left["money"], "counters": left["counters"]}
        await capped.store.redis.hset(record_key(id), "reserved", json.dumps(old))
        await capped.lose(id)
    else:
        running.cancel()
        await asyncio.wait({running})
        assert await reserved(capped) == []
    await capped.store.cancel(id)
    await carry_out(capped.services, id)
    await asyncio.wait({running})
    assert (await capped.result(id)).termination_reason == "cancelled"
    assert await reserved(capped) == []
    assert await spent(capped) == pytest.approx(left["money"] / 1e9)


async def test_the_caps_of_an_owner_hold_whatever_labels_a_request_names(redis_url: str, tmp_path: Path) -> None:
    windows, labels = SpendWindows(weekly_usd=CAP), {"owner": "bob", "team": "other"}
    async with open_bench(redis_url, tmp_path / "home") as bench:
        await publish(bench.store.redis, {"ann": caps_of_owner(windows, "ann")})
        id = await bench.accept(DelegationRequest(task="t", model=dear(tmp_path), labels=labels), owner="ann")
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert result.termination_reason == "budget"
        assert "weekly_usd of the owner ann (US dollars in 7 days) 0.05 reached" in result.summary
        assert 0.03 < (result.usage.cost_usd or 0) <= CAP
        free = await bench.accept(DelegationRequest(task="t", model=dear(tmp_path)), owner="bob")
        await carry_out(bench.services, free)
        assert (await bench.result(free)).success
        unpriced = await bench.accept(DelegationRequest(task="t", model="house-model"), owner="ann")
        await carry_out(bench.services, unpriced)
        assert (await bench.result(unpriced)).termination_reason == "refused"


async def test_a_cap_that_is_lowered_holds_from_the_next_call_of_a_running_delegation(
    redis_url: str, tmp_path: Path
) -> None:
    class Lowers(Part):
        def __init__(self, attempt: Attempt) -> None:
            self._run, self._redis = attempt.context, attempt.services.store.redis

        async def before_turn(self, limit: LimitReached | None) -> None:
            if self._run.meter.turns == 2:
                await publish(self._redis, {"ann": caps_of_owner(SpendWindows(daily_usd=0), "ann")})

    async with open_bench(redis_url, tmp_path / "home", parts=[Lowers]) as bench:
        await publish(bench.store.redis, {"ann": caps_of_owner(SpendWindows(daily_usd=1), "ann")})
        id = await bench.accept(DelegationRequest(task="t", model=endless(tmp_path)), owner="ann")
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.termination_reason, result.usage.input_tokens) == ("budget", 2 * USAGE["input"])


class LooksOften(Part):
    """Looks soon again whether a cap has room."""

    def __init__(self, attempt: Attempt) -> None:
        attempt.spending.look_seconds = 0.02


@pytest.fixture
async def waiting(redis_url: str, tmp_path: Path) -> AsyncIterator[tuple[Bench, str]]:
    """A delegation that is to wait at the cap of its owner, and is not begun."""
    async with open_bench(redis_url, tmp_path / "home", parts=[LooksOften]) as bench:
        await publish(bench.store.redis, {"ann": caps_of_owner(SpendWindows(daily_usd=CAP), "ann")})
        request = DelegationRequest(task="t", model=dear(tmp_path), on_cap="wait")
        yield bench, await bench.accept(request, owner="ann")


async def waits(bench: Bench, id: str) -> bool:
    return await bench.store.redis.hmget(record_key(id), ["status", "why"]) == ["waiting", "budget"]


async def move_on(bench: Bench) -> None:
    """Makes today yesterday."""
    today, yesterday = (spend_key(f"{now() - timedelta(days=ago):%Y-%m-%d}") for ago in (0, 1))
    await bench.store.redis.rename(today, yesterday)


async def test_at_a_cap_a_run_waits_until_its_window_moves_on(waiting: tuple[Bench, str]) -> None:
    bench, id = waiting
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: waits(bench, id))
    assert 0.03 < await spent(bench, "@ann") <= CAP
    assert await reserved(bench) == []
    await move_on(bench)
    await until(lambda: running.done() or waits(bench, id))
    await running
    result = await bench.result(id)
    assert (result.success, result.turn_count) == (True, 3)
    assert [event.why for event in await bench.seen(id, Waiting)] == ["budget"]
    assert len(await bench.seen(id, ResumedWaiting)) == 1


@pytest.mark.parametrize("reason", ["cancelled", "wrapped_up"])
async def test_a_run_that_waits_at_a_cap_can_be_ended(waiting: tuple[Bench, str], reason: str) -> None:
    bench, id = waiting
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: waits(bench, id))
    await (bench.store.cancel(id) if reason == "cancelled" else wrap_up(bench, id))
    await running
    assert (await bench.result(id)).termination_reason == reason
    assert await reserved(bench) == []


async def test_a_worker_that_takes_over_waits_at_the_cap_as_well(waiting: tuple[Bench, str]) -> None:
    bench, id = waiting
    await bench.interrupt(id, lambda: waits(bench, id))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: waits(bench, id))
    await move_on(bench)
    await running
    result = await bench.result(id)
    assert (result.success, result.attempts) == (True, 2)


@pytest.mark.parametrize("windows", [{"daily_usd": 0}, {"total_usd": CAP}, {"daily_usd": 1e-6}])
async def test_at_a_cap_that_never_has_room_nothing_waits(
    redis_url: str, tmp_path: Path, windows: dict[str, float]
) -> None:
    async with open_bench(redis_url, tmp_path / "home", spend=windows) as bench:
        result = await bench.run(model=dear(tmp_path), on_cap="wait")
        assert result.termination_reason == "budget"


async def test_a_retried_request_reserves_again_for_its_next_try() -> None:
    """What the failed one has cost is spent by then."""
    meter, pipe = Meter(Limits(), Price(input=2, output=10, cache_read=0.2, cache_write=2.5)), GrantingPipe()
    run: Any = SimpleNamespace(claim=SimpleNamespace(id="dlg_1", fence="1:a", kept={}), meter=meter)
    spending = ReservedMoney(run, pipe, [Cap("spend.daily_usd", "*", 1)])  # pyright: ignore[reportArgumentType]
    async with spending.reserved(1000, 500):
        meter.spend(Usage(input_tokens=900), wasted=True)
    async with spending.reserved(1000, 500):
        pass
    assert pipe.totals == [0, 1_800_000, 1_800_000, 1_800_000]


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
    totals: list[int] = field(default_factory=list[int])

    def deferred(self, _: object, call: Callable[[], ScriptCall], *, lasts: Lasts) -> asyncio.Future[list[str]]:
        _, arguments, _ = call()
        assert lasts() == (arguments["wanted"] > 0)
        self.asked.append((arguments["wanted"], arguments["least"]))
        self.totals.append(arguments["total"])
        granted: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        granted.set_result(["granted", str(self.granted or arguments["wanted"])])
        return granted

    def flush(self) -> None: ...


@pytest.mark.parametrize(("hour", "prompt"), [(False, 2.5), (True, 4)])
async def test_the_dearest_rate_that_a_prompt_may_have_is_reserved(hour: bool, prompt: float) -> None:
    pipe: Any = GrantingPipe()
    claim: Any = SimpleNamespace(id="dlg_1", fence="1:a", kept={})
    meter = Meter(Limits(), Price(input=2, output=10, cache_read=0.2, cache_write=2.5), hour_writes=hour)
    run: Any = SimpleNamespace(claim=claim, meter=meter)
    spending = ReservedMoney(run, pipe, [Cap("spend.daily_usd", "*", 1)])
    async with spending.reserved(1000, 500) as most:
        assert most == 500
    assert pipe.asked == [(1000 * prompt * 1000 + 501 * 10_000, 1000 * prompt * 1000 + 64 * 10_000), (0, 0)]
    pipe.granted = round(1000 * prompt * 1000 + 200.5 * 10_000)
    async with spending.reserved(1000, 500) as most:
        assert most == 200


async def test_a_run_whose_last_spending_cannot_be_booked_has_no_result_before_the_next_attempt(
    redis_url: str, tmp_path: Path
) -> None:
    class Breaks(Part):
        """Makes Redis refuse to count what the run spends, from its second turn on."""

        def __init__(self, attempt: Attempt) -> None:
            self._run, self._redis = attempt.context, attempt.services.store.redis

        async def before_turn(self, limit: LimitReached | None) -> None:
            if self._run.meter.turns == 1 and self._run.claim.is_first:
                charged.append(await self._redis.hget(key := record_key(self._run.claim.id), "charged"))
                await self._redis.hset(key, "charged", "unreadable")

    charged: list[str] = []

    turns = [{"blocks": [call("glob", pattern="a")], "usage": USAGE}, {"blocks": [say("done")], "usage": USAGE}]
    async with open_bench(redis_url, tmp_path / "home", spend={"daily_usd": CAP}, parts=[Breaks]) as bench:
        id = await bench.accept(DelegationRequest(task="t", model=script(tmp_path, *turns, price=PRICE)))
        with pytest.raises(ResponseError, match="arithmetic"):
            await carry_out(bench.services, id)
        assert (await bench.store.get(id)).result is None
        await bench.store.redis.hset(record_key(id), "charged", charged[0])
        await bench.lose(id)
        await carry_out(bench.services, id)
        result = await bench.result(id)
        assert (result.success, result.attempts) == (True, 2)
        assert await spent(bench) == pytest.approx(result.usage.cost_usd)


# What delegations cost, as workers write it and a report adds it up.


async def test_a_report_adds_up_what_the_runs_spent(bench: Bench, tmp_path: Path) -> None:
    turn = {"blocks": [say("done")], "usage": {"input": 100_000, "output": 1000}}
    priced, unpriced = script(tmp_path, turn, price=PRICE), script(tmp_path, turn)
    first = await bench.run(model=priced, labels={"team": "docs", "kind": "x"})
    await bench.run(model=priced, labels={"team": "shop"}, session_id="s")
    await bench.run(model=unpriced)
    await bench.accept(DelegationRequest(task="waits", labels={"team": "docs"}))
    assert first.usage.cost_usd == pytest.approx(0.21)
    report = await cost_report(bench.store.redis, "label:team", None)
    rows = {item.key: (item.delegations, item.unpriced, item.usage.cost_usd) for item in report.items}
    assert rows == {"docs": (2, 0, 0.21), "shop": (1, 0, 0.21), None: (1, 1, None)}
    assert (report.total.delegations, report.total.usage.total) == (4, 303_000)
    assert report.total.usage.cost_usd == pytest.approx(0.42)
    by_model = await cost_report(bench.store.redis, "model", None)
    assert {item.key: item.delegations for item in by_model.items} == {priced: 2, unpriced: 1, None: 1}
    by_day = await cost_report(bench.store.redis, "day", None)
    assert [item.key for item in by_day.items] == [f"{now():%Y-%m-%d}"]


async def test_a_report_begins_where_it_is_asked_to(bench: Bench) -> None:
    await bench.accept(DelegationRequest(task="now"))
    for since, many in ((now() - timedelta(hours=1), 1), (now() + timedelta(hours=1), 0)):
        assert (await cost_report(bench.store.redis, "day", since)).total.delegations == many


def test_what_children_spent_is_in_the_usage_of_a_run_and_not_in_its_own() -> None:
    meter = Meter(Limits(), Price(2, 10, 0.2, 2.5))
    meter.spend(Usage(input_tokens=1_000_000))
    meter.book("child", Usage(input_tokens=500_000, cost_usd=1.0))
    assert (meter.usage.cost_usd, meter.own.cost_usd) == (3.0, 2.0)
    meter.begin_reply(Usage(input_tokens=1_000_000), counted=True)
    again = Meter.restored(Limits(), {**meter.checkpoint()})
    assert (again.usage.cost_usd, again.own.cost_usd) == (5.0, 4.0)


# What the model calls of one run have in common, over the calls and the gaps between them.


TASK = DelegationRequest(task="the task", context="words of the context " * 300)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def calls_of(fake: FakeModel, clock: Clock) -> AsyncGenerator[tuple[ModelCalls, list[Usage]]]:
    """The model calls of a claimed run, and the usages that they count."""
    counted: list[Usage] = []
    async with claimed(TASK) as (_, pipe, claim):
        emit = Emitter(RedisRecord(pipe), claim, [], lambda: None)
        endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr(fake.url)}
        run = context_of(claim, emit)
        calls = ModelCalls(
            run=run,
            model=AnthropicModel("claude-sonnet-5-5", Credentials(endpoint)),
            system="A rule of the system prompt. " * 200,
            tools=(),
            tool_names=(),
            conversation=Conversation(task=first_message(TASK)),
            wait=EndpointWait(Outages(pipe), emit.emit, emit.set, run.meter.check_wait),
            shared=PrefixWait(SharedPrefixes(pipe), emit.emit, nullcontext),
            count=counted.append,
            spending=ReservedMoney(run, pipe, ()),
            retention=Retention(clock),
        )
        run.meter.set_price(calls.model)
        yield calls, counted
        emit.close()
    await close_models()


async def test_after_a_gap_of_five_minutes_entries_are_kept_and_reserved_for_an_hour() -> None:
    clock = Clock()
    async with FakeModel([Turn([text("done")])], cache=PromptCache()) as fake, calls_of(fake, clock) as (calls, _):
        for turn, gap in enumerate((0, FIVE_MINUTES - 1, FIVE_MINUTES + 1, 0), 1):
            clock.seconds += gap
            reply = await calls.reply(turn)
            assert calls.run.meter.hour_writes is (turn > 2)
            calls.conversation.add(reply)
            calls.conversation.ask("go on")
        controls = [asked.body["cache_control"] for asked in fake.journal]
    assert [control.get("ttl") for control in controls] == [None, None, "1h", "1h"]


async def test_every_reply_is_counted_with_its_price() -> None:
    async with (
        FakeModel([Turn([text("done")])], cache=PromptCache()) as fake,
        calls_of(fake, Clock()) as (calls, counted),
    ):
        for turn in (1, 2):
            calls.conversation.add(await calls.reply(turn))
            calls.conversation.ask("go on")
        assert counted[0] + counted[1] == calls.run.meter.usage
    assert counted[0].cache_write_tokens > 1000
    assert counted[1].cache_read_tokens > 1000
    assert (counted[1].cache_saved_usd or 0) > 0
