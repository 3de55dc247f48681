"""Thirty means thirty: each limit on its own, at its edge."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic_core import to_json

from deputize.shared.delegation import TerminationReason, Usage
from deputize.shared.events import Replied
from deputize.shared.limits import Limits
from deputize.shared.runs.keys import ledger_key
from deputize.worker.core.limits import LimitReached, Meter, affordable
from deputize.worker.models.base import Call, Price
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.worker.run_history import WRITE, answered_once, history_of

PRICE = Price(input=2, output=10, cache_read=0.1, cache_write=2.5)


def meter(price: Price | None = None, **limits: float) -> Meter:
    return Meter(Limits.model_validate(limits), price)


def calls(*names: str) -> list[Call]:
    return [Call(f"id-{name}", name, {"path": name}) for name in names]


@pytest.mark.requirement("P-05", "S002-052")
def test_as_many_turns_as_allowed_and_not_one_more() -> None:
    counter = meter(max_turns=3)
    assert [counter.begin_turn() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(LimitReached, match=r"^maxTurns 3 reached$") as reached:
        counter.begin_turn()
    assert reached.value.reason is TerminationReason.MAX_TURNS


@pytest.mark.requirement("P-06")
def test_as_many_calls_as_allowed_and_not_one_more() -> None:
    counter = meter(max_tool_calls=2)
    assert [counter.take_call() for _ in range(4)] == [True, True, False, False]
    assert counter.tool_calls == 2
    with pytest.raises(LimitReached, match=r"^maxToolCalls 2 reached$"):
        counter.begin_turn()


def test_no_turn_begins_while_the_files_are_larger_than_allowed() -> None:
    counter = meter()
    counter.note_disk(100, most=100)
    counter.begin_turn()
    counter.note_disk(101, most=100)
    with pytest.raises(LimitReached, match=r"^sandbox\.disk_bytes 100 reached$"):
        counter.begin_turn()
    counter.note_disk(99, most=100)
    assert counter.begin_turn() == 2


def test_a_nested_delegation_gets_what_it_asks_for_as_far_as_the_run_has_it_itself() -> None:
    counter = meter(max_turns=10, max_tool_calls=20, timeout_seconds=100, max_tokens=50_000)
    lent = counter.lend("a", Limits(max_turns=30, max_tool_calls=5, timeout_seconds=600, max_tokens=40_000), 1)
    assert (lent.max_turns, lent.max_tool_calls, lent.max_tokens, lent.max_cost_usd) == (10, 5, 40_000, None)
    assert lent.timeout_seconds == pytest.approx(81, abs=1)
    assert counter.lend("b", Limits(max_tokens=40_000), 1).max_tokens == 10_000
    with pytest.raises(LimitReached, match="maxTokens 50000"):
        counter.lend("c", Limits(), 1)


def test_what_is_not_requested_is_divided_among_the_children_and_the_run() -> None:
    counter = meter(PRICE, max_tokens=40_000, max_cost_usd=4)
    lent = [counter.lend(id, Limits(), sharers) for id, sharers in (("a", 3), ("b", 2), ("c", 1))]
    assert [each.max_tokens for each in lent] == [10_000] * 3
    assert [each.max_cost_usd for each in lent] == [1, 1, 1]
    assert (counter.tokens_left, counter.money_left) == (10_000, 1)
    assert counter.output_allowance(0, 16_000) == 10_000


def test_a_nested_delegation_has_a_limit_of_its_own_where_the_run_has_none() -> None:
    counter = meter()
    assert counter.lend("a", Limits(max_tokens=500), 1).max_tokens == 500
    assert counter.tokens_left is None


def test_what_a_nested_delegation_used_is_counted_once_and_what_it_left_is_free_again() -> None:
    counter = meter(PRICE, max_tokens=1000, max_cost_usd=1)
    counter.lend("a", Limits(), 1)
    used = Usage(input_tokens=100, output_tokens=20, cost_usd=0.25)
    for _ in range(2):
        counter.book("a", used)
    assert (counter.usage, counter.tokens_left, counter.money_left) == (used, 880, 0.75)
    again = Meter.restored(counter.limits, counter.checkpoint())
    again.book("a", used)
    again.book("b", used)
    assert again.usage.total == 240


def test_nothing_is_lent_when_the_time_is_over() -> None:
    counter = meter(timeout_seconds=10)
    counter.begun = time.monotonic() - 9.5
    with pytest.raises(LimitReached, match="timeoutSeconds 10"):
        counter.lend("a", Limits(), 1)


def test_nothing_is_lent_when_the_money_is_spent() -> None:
    counter = meter(PRICE, max_cost_usd=1)
    counter.book("a", Usage(cost_usd=1))
    with pytest.raises(LimitReached, match="maxCostUsd 1"):
        counter.lend("b", Limits(max_cost_usd=1), 1)


@pytest.mark.requirement("P-07")
def test_the_summary_has_its_share_of_the_time_so_that_the_whole_holds() -> None:
    counter = meter(timeout_seconds=100)
    assert counter.time_left == pytest.approx(90, abs=0.5)
    assert counter.time_for_summary == pytest.approx(100, abs=0.5)
    assert meter(timeout_seconds=1000).time_left == pytest.approx(985, abs=0.5)


def test_no_turn_begins_when_the_time_is_over() -> None:
    counter = meter(timeout_seconds=10)
    counter.begun = time.monotonic() - 20
    with pytest.raises(LimitReached, match="timeoutSeconds 10"):
        counter.begin_turn()


def test_pauses_may_overlap_and_the_time_goes_on_after_the_last_one() -> None:
    counter, first = meter(), ExitStack()
    first.enter_context(counter.paused())
    with counter.paused():
        stopped = counter.elapsed
        first.close()
        assert counter.elapsed == stopped
    assert stopped < counter.elapsed < stopped + 0.5


def test_time_of_earlier_attempts_counts() -> None:
    counter = meter(timeout_seconds=100)
    counter.spend(Usage(input_tokens=5, cost_usd=None))
    counter.turns = 4
    restored = Meter.restored(counter.limits, counter.checkpoint() | {"elapsed": 60.0})
    assert (restored.turns, restored.usage.input_tokens) == (4, 5)
    assert restored.time_left == pytest.approx(30, abs=0.5)


def test_time_that_the_last_renewal_of_a_lease_knew_of_counts_beyond_the_checkpoint() -> None:
    counter = meter(timeout_seconds=100)
    for checkpoint in ({}, counter.checkpoint()):
        assert Meter.restored(counter.limits, checkpoint, 60.0).time_left == pytest.approx(30, abs=0.5)
    later = counter.checkpoint() | {"elapsed": 80.0}
    assert Meter.restored(counter.limits, later, 60.0).time_left == pytest.approx(10, abs=0.5)


def test_a_limit_that_was_reached_stays_reached() -> None:
    counter = meter(timeout_seconds=100)
    counter.reached = LimitReached(TerminationReason.LOOP_DETECTED, "identical calls repeated", 5)
    again = Meter.restored(counter.limits, json.loads(to_json(counter.checkpoint())))
    with pytest.raises(LimitReached, match=r"^identical calls repeated 5 reached$") as reached:
        again.begin_turn()
    assert reached.value.reason is TerminationReason.LOOP_DETECTED


def test_a_reply_that_was_lost_under_way_is_paid_for_and_its_turn_is_free() -> None:
    counter = meter(PRICE)
    counter.begin_turn()
    counter.begin_reply(Usage(input_tokens=1000), counted=True)
    restored = Meter.restored(counter.limits, counter.checkpoint())
    assert (restored.turns, restored.usage.input_tokens, restored.wasted.input_tokens) == (0, 1000, 1000)
    assert restored.usage.cost_usd == pytest.approx(0.002)


def test_a_summary_that_was_lost_under_way_restores_no_turn() -> None:
    counter = meter(PRICE, max_turns=1)
    counter.begin_turn()
    counter.begin_reply(Usage(input_tokens=1000), counted=False)
    restored = Meter.restored(counter.limits, counter.checkpoint())
    assert (restored.turns, restored.wasted.input_tokens) == (1, 1000)
    with pytest.raises(LimitReached, match="maxTurns 1"):
        restored.begin_turn()


def test_an_unknown_price_makes_the_cost_unknown_and_never_zero() -> None:
    counter = meter()
    counter.spend(Usage(input_tokens=5))
    assert (counter.usage.cost_usd, counter.usage.cache_saved_usd) == (None, None)


def test_a_reply_that_used_nothing_costs_nothing_and_one_that_brings_its_cost_keeps_it() -> None:
    counter = meter()
    assert counter.spend(Usage(cost_usd=None, cache_saved_usd=None)) == Usage()
    own = Usage(cache_read_tokens=5, cost_usd=0.5, cache_saved_usd=0.25)
    assert counter.spend(own) == own
    assert (counter.usage.cost_usd, counter.usage.cache_saved_usd) == (0.5, 0.25)


def test_what_caching_saved_is_counted_with_the_cost_and_survives_the_attempt() -> None:
    counter = meter(PRICE)
    counter.spend(Usage(cache_read_tokens=1_000_000, cache_write_tokens=1_000_000, cache_write_1h_tokens=1_000_000))
    again = Meter.restored(counter.limits, json.loads(to_json(counter.checkpoint())))
    for usage in (counter.usage, counter.own, again.usage):
        assert (usage.cost_usd, usage.cache_saved_usd) == (pytest.approx(4.1), pytest.approx(1.9 - 2))


def test_a_known_price_makes_the_cost_exact() -> None:
    counter = meter(PRICE)
    counter.spend(Usage(input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=1_000_000))
    assert counter.usage.cost_usd == pytest.approx(2 + 1 + 0.1)


def test_a_long_prompt_is_priced_by_its_band() -> None:
    price = Price(0.1, 0.5, 0.01, 0.1, band=100_000, above=Price(0.5, 2.5, 0.05, 0.5))
    assert price.cost(Usage(input_tokens=100_000)) == pytest.approx(0.01)
    assert price.cost(Usage(input_tokens=100_001)) == pytest.approx(0.0500005)


def test_the_output_allowance_leaves_room_for_the_prompt() -> None:
    assert meter(max_tokens=1000).output_allowance(prompt_tokens=400, wanted=16_000) == 600
    assert meter().output_allowance(prompt_tokens=400, wanted=16_000) == 16_000


def test_a_reply_that_cannot_fit_the_budget_is_not_asked_for() -> None:
    with pytest.raises(LimitReached, match="maxTokens 1000") as reached:
        meter(max_tokens=1000).output_allowance(prompt_tokens=990, wanted=16_000)
    assert reached.value.reason is TerminationReason.BUDGET


def test_the_smallest_reply_worth_asking_for_is_64_tokens() -> None:
    rate = Price(input=0, output=1, cache_read=0, cache_write=0)
    for counter in (meter(max_tokens=1000), meter(rate, max_cost_usd=1e-3)):
        prompt = 936 if counter.price is None else 0
        counter.spend(Usage() if counter.price is None else Usage(output_tokens=936))
        assert counter.output_allowance(prompt, wanted=16_000) == 64
        counter.spend(Usage(output_tokens=1))
        with pytest.raises(LimitReached):
            counter.output_allowance(prompt, wanted=16_000)


def test_what_cannot_pay_for_the_smallest_reply_is_not_lent() -> None:
    assert meter(max_tokens=64).lend("a", Limits(max_tokens=1000), 1).max_tokens == 64
    with pytest.raises(LimitReached, match=r"^maxTokens 63 reached$"):
        meter(max_tokens=63).lend("a", Limits(max_tokens=1000), 1)


def test_a_lot_of_money_is_counted_to_the_last_token() -> None:
    assert meter(PRICE, max_cost_usd=100).output_allowance(prompt_tokens=1000, wanted=1 << 30) == 9_999_750


def test_money_is_reserved_before_it_is_spent() -> None:
    counter = meter(PRICE, max_cost_usd=0.01)
    # 1,000 prompt tokens at the cache-write rate cost 0.0025; the rest pays for 750 output tokens.
    assert counter.output_allowance(prompt_tokens=1000, wanted=16_000) == 750
    with pytest.raises(LimitReached, match=r"maxCostUsd 0\.01"):
        counter.output_allowance(prompt_tokens=4000, wanted=16_000)


def test_an_hour_in_the_cache_is_reserved_only_where_it_may_be_asked_for() -> None:
    counter = meter(PRICE, max_cost_usd=0.01)
    counter.hour_writes = True
    # 1,000 prompt tokens, kept for an hour, cost 0.004; the rest pays for 600 output tokens.
    assert counter.output_allowance(prompt_tokens=1000, wanted=16_000) == 600
    dear = Price(1, 10, 1, 3, write_1h=2)
    assert affordable(1000, 0.01, dear) == affordable(1000, 0.01, dear, hour_writes=True) == 700


def test_what_is_reserved_for_an_hour_is_enough_for_a_prompt_that_is_all_written() -> None:
    for price in (PRICE, Price(0.1, 0.5, 0.01, 0.1, band=100, above=Price(0.5, 2.5, 0.05, 0.5))):
        output = affordable(1000, 0.01, price, hour_writes=True)
        usage = Usage(output_tokens=output, cache_write_tokens=1000, cache_write_1h_tokens=1000)
        assert 0.0099 < price.cost(usage) <= 0.01


def test_a_tiny_limit_is_written_without_an_exponent() -> None:
    assert str(LimitReached(TerminationReason.BUDGET, "maxCostUsd", 1e-7)) == "maxCostUsd 0.0000001 reached"


# Every limit of a run: how it ends, and that the work so far is reported.


@pytest.mark.requirement("P-05", "P-08")
async def test_thirty_turns_mean_thirty_and_one_without_tools_for_the_summary(bench: Bench, tmp_path: Path) -> None:
    turns = [[call("list_directory", path=".")], [call("glob", pattern="*")]] * 3
    model = script(tmp_path, *turns, summary="This far I came.")
    result = await bench.run(model=model, limits={"max_turns": 4}, tools=["*"])
    assert (result.status, result.success, result.termination_reason) == ("failed", False, "max_turns")
    assert (result.turn_count, result.tool_call_count, result.summary) == (4, 4, "This far I came.")
    replies = [e.event for e in await bench.events(result.delegation_id) if isinstance(e.event, Replied)]
    assert ([reply.turn for reply in replies], replies[-1].tool_calls) == ([1, 2, 3, 4, 5], [])


@pytest.mark.requirement("P-06", "P-09")
async def test_calls_past_the_limit_are_answered_and_not_executed(bench: Bench, tmp_path: Path) -> None:
    calls = [call("write_file", path=f"{n}.txt", content="x") for n in range(5)]
    model = script(tmp_path, calls, [say("never")], summary="Three of five.")
    result = await bench.run(model=model, limits={"max_tool_calls": 3})
    assert (result.termination_reason, result.tool_call_count) == ("max_tool_calls", 3)
    assert result.files_modified == ["0.txt", "1.txt", "2.txt"]
    history = await history_of(bench, result)
    assert answered_once(history)
    late = history[2]["content"][3:5]
    assert all("not executed: limit reached (maxToolCalls 3)" in block["content"] for block in late)


async def test_a_run_that_needs_just_its_last_call_is_completed(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]), limits={"max_tool_calls": 1})
    assert result.termination_reason == "completed"


@pytest.mark.long
@pytest.mark.requirement("P-07", "P-08", "P-09")
async def test_time_runs_out_during_a_command_and_nothing_of_it_lives_on(bench: Bench, tmp_path: Path) -> None:
    slow = call("bash", command="echo begun > a.txt; exec sleep 1000")
    calls = [call("glob", pattern="*"), slow, WRITE]
    model = script(tmp_path, calls, [say("never")], summary="It took too long.")
    result = await bench.run(model=model, limits={"timeout_seconds": 8})
    assert (result.termination_reason, result.summary) == ("timeout", "It took too long.")
    assert result.execution_time_ms <= 10_000
    assert "sleep 1000" in result.reaped
    assert result.files_modified == ["a.txt"]
    history = await history_of(bench, result)
    assert answered_once(history)
    assert [message["role"] for message in history] == ["user", "assistant"] * 2
    looked, cut, late, note = history[2]["content"]
    assert not looked.get("is_error")
    assert "outcome unknown: the run was stopped while this call was under way" in cut["content"]
    assert late["content"] == "Error: not executed: timeoutSeconds 8 reached"
    assert 'limit="timeoutSeconds 8 reached"' in note["text"]
    kept = json.loads(await bench.store.redis.hget(ledger_key(result.delegation_id), "call_1_2"))
    assert kept["state"] == "finished"


@pytest.mark.requirement("P-18", "S000-084")
async def test_a_process_that_a_command_leaves_behind_is_ended_and_named(bench: Bench, tmp_path: Path) -> None:
    left = call("bash", command="(setsid sleep 1000 &); sleep 0.1; echo done")
    result = await bench.run(model=script(tmp_path, [left], [say("done")]))
    assert (result.termination_reason, result.reaped) == ("completed", ["sleep"])


@pytest.mark.requirement("P-07")
async def test_time_runs_out_during_a_model_call(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, {"blocks": [say("never")], "delay": 1000}, summary="The model was slow.")
    result = await bench.run(model=model, limits={"timeout_seconds": 4})
    assert (result.termination_reason, result.summary) == ("timeout", "The model was slow.")
    assert result.errors == ["its time ended while it waited for the model's endpoint"]
    assert result.execution_time_ms <= 5000


@pytest.mark.requirement("P-07")
async def test_the_end_of_the_time_names_the_calls_that_were_waited_for(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="exec sleep 1000")], {"blocks": [], "delay": 1000})
    result = await bench.run(model=model, limits={"timeout_seconds": 3})
    assert result.termination_reason == "timeout"
    assert result.errors[0].startswith("its time ended while it waited for the call of bash (")


@pytest.mark.parametrize("limits", [{"max_tokens": 12_000}, {"max_cost_usd": 0.03}])
async def test_a_budget_ends_the_run_before_it_is_exceeded(
    bench: Bench, tmp_path: Path, limits: dict[str, float]
) -> None:
    usage = {"input": 1000, "output": 100}
    turns = [{"blocks": [call("glob", pattern=str(n))], "usage": usage} for n in range(29)]
    result = await bench.run(model=script(tmp_path, *turns, price={"input": 2, "output": 10}), limits=limits)
    assert result.termination_reason == "budget"
    assert 0 < result.usage.total <= limits.get("max_tokens", 1 << 30)
    assert 0 < (result.usage.cost_usd or 0) <= limits.get("max_cost_usd", 1)


async def test_a_money_limit_for_a_model_without_a_price_is_refused(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [say("done")]), limits={"max_cost_usd": 1})
    assert result.termination_reason == "refused"
    assert "maxCostUsd cannot be enforced" in result.summary


@pytest.mark.requirement("P-20")
async def test_a_run_in_circles_is_stopped(bench: Bench, tmp_path: Path) -> None:
    same = call("list_directory", path=".")
    model = script(tmp_path, *[[same, same]] * 15, summary="I went in circles.")
    result = await bench.run(model=model, tools=["*"])
    assert (result.termination_reason, result.turn_count, result.tool_call_count) == ("loop_detected", 10, 20)
    assert result.summary == "I went in circles."
    hints = [block for each in await history_of(bench, result) for block in each["content"] if block["type"] == "text"]
    (hint,) = [block["text"] for block in hints if 'type="repetition"' in block["text"]]
    assert '- list_directory {"path": "."}\n  Result: ' in hint


@pytest.mark.requirement("P-20")
async def test_a_run_that_heeds_the_hint_is_completed(bench: Bench, tmp_path: Path) -> None:
    flaky = [call("bash", command="cat /dev/null; exit 0")]
    model = script(tmp_path, *[flaky] * 8, [say("It passed eight times.")])
    assert (await bench.run(model=model)).termination_reason == "completed"


@pytest.mark.requirement("P-20")
async def test_the_watch_for_circles_can_be_switched_off(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", loop_detection=False) as bench:
        model = script(tmp_path, *[[call("list_directory", path=".")]] * 9, [say("done")])
        assert (await bench.run(model=model, tools=["*"])).termination_reason == "completed"


async def test_a_workspace_that_grew_too_large_ends_its_run_with_what_was_done(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", sandbox={"disk_bytes": 1 << 20}) as bench:
        large = call("write_file", path="large.txt", content="x" * (2 << 20))
        result = await bench.run(model=script(tmp_path, [large], [WRITE], [say("never")], summary="It was too much."))
        assert (result.termination_reason, result.summary) == ("budget", "It was too much.")
        assert (result.files_modified, result.tool_call_count) == (["large.txt"], 1)
        assert "sandbox.disk_bytes 1048576 reached" in json.dumps(await history_of(bench, result))
        assert ((await bench.store.get(result.delegation_id)).disk_bytes or 0) > 2 << 20
        (tmp_path / "large").mkdir()
        (tmp_path / "large/file").write_bytes(bytes(2 << 20))
        workspace = {"kind": "directory", "path": str(tmp_path / "large")}
        result = await bench.run(model=script(tmp_path, [say("never")]), workspace=workspace)
        assert result.termination_reason == "refused"
        assert "more than 0.000977 GiB (raise sandbox.disk_bytes" in result.summary
