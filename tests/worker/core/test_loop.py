"""What the loop promises of each turn: which calls run, in which order they are answered, and what is sent again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import TerminationReason
from deputize.shared.errors import ErrorType, Fenced
from deputize.shared.events import Replied
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, events_key, history_key, ledger_key, record_key
from deputize.shared.settings import Settings
from deputize.worker.core.limits import LimitReached
from deputize.worker.core.run_context import MAX_DETAILS_CHARS
from deputize.worker.models import open_model
from deputize.worker.task import carry_out
from deputize.worker.text.output import MAX_ERROR_CHARS
from deputize.worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.tools.context import ToolContext
from tests.fake_model import Turn, cut, text, thinking
from tests.fake_model import call as asked
from tests.fundamentals.alone import loop_of
from tests.runs.bench import Bench, call, open_bench, say, script, talking
from tests.runs.memory_record import MemoryRecord

LIST = {"type": "tool_use", "id": "toolu_broken", "name": "list_directory", "input": {}, "raw": '{"path": "/"'}
"""Without its arguments it would list the workspace."""

HOLD = asked("bash", command="echo begun > a.txt; exec sleep 1000")


async def answers(bench: Bench, id: str, message: int = 2) -> list[dict[str, Any]]:
    entries = (await bench.store.conversation(id))[0]
    return [block for block in json.loads(entries[message])["content"] if block["type"] == "tool_result"]


async def steps(bench: Bench, id: str) -> dict[str, Any]:
    return {step.id: step for step in await bench.steps(id)}


@pytest.mark.requirement("P-10", "P-16")
async def test_a_call_whose_arguments_are_broken_never_runs_and_not_in_the_next_attempt_either(
    redis_url: str, tmp_path: Path
) -> None:
    turns = Turn([HOLD, LIST]), Turn([text("done")])
    async with talking(redis_url, tmp_path / "home", *turns) as (bench, fake):
        id = await bench.accept(DelegationRequest(task="do it"))
        await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "a.txt").exists)
        await carry_out(bench.services, id)
        assert (await bench.result(id)).termination_reason == "completed"
        assert [each.status for each in fake.journal] == [200, 200]
        doubted, broken = await answers(bench, id)
        assert "outcome unknown" in doubted["content"]
        assert broken["content"].startswith("Error: the arguments are not valid JSON")
        assert (await steps(bench, id))["call_1_2"].error.startswith("the arguments are not valid JSON")


@pytest.mark.requirement("P-10")
async def test_a_call_that_an_earlier_attempt_finished_keeps_its_result_and_its_one_step(
    redis_url: str, tmp_path: Path
) -> None:
    write = asked("write_file", path="b.txt", content="once")
    async with talking(redis_url, tmp_path / "home", Turn([write, HOLD]), Turn([text("done")])) as (bench, _):
        id = await bench.accept(DelegationRequest(task="do it"))
        files = bench.settings.workspaces / id / "files"
        await bench.interrupt(id, (files / "a.txt").exists)
        (files / "b.txt").write_text("changed since")
        await carry_out(bench.services, id)
        written, doubted = await answers(bench, id)
        assert "+changed since" in await bench.store.patch(id)
        assert written["content"].startswith("Successfully wrote to b.txt: created")
        assert "outcome unknown" in doubted["content"]
        assert sorted(step.id for step in await bench.steps(id)) == ["call_1_1", "call_1_2"]


@pytest.mark.requirement("P-08", "P-09")
async def test_calls_of_the_turn_without_tools_are_neither_made_nor_left_open(redis_url: str, tmp_path: Path) -> None:
    write = asked("write_file", path="a.txt", content="x")
    last = Turn([text("So far."), asked("write_file", path="b.txt", content="x")], calls_anyway=True)
    async with talking(redis_url, tmp_path / "home", Turn([write]), last) as (bench, fake):
        result = await bench.run(limits={"max_turns": 1})
        assert fake.journal[1].body["tools"] == fake.journal[0].body["tools"]  # or nothing is read from the cache
        assert (result.termination_reason, result.summary, result.tool_call_count) == ("max_turns", "So far.", 1)
        assert result.files_modified == ["a.txt"]
        kept = json.loads(await bench.store.redis.hget(record_key(result.delegation_id), "checkpoint"))
        assert (kept["turns"], kept["begunTurn"]) == (1, False)  # were it lost, no turn would be given back for it
        entries = (await bench.store.conversation(result.delegation_id))[0]
        assert json.loads(entries[-1])["content"] == [text("So far.")]
        said = [e.event for e in await bench.events(result.delegation_id) if isinstance(e.event, Replied)]
        assert [len(reply.tool_calls) for reply in said] == [1, 0]


@pytest.mark.requirement("P-07", "P-08")
async def test_the_turn_without_tools_has_only_what_is_left_of_the_time(redis_url: str, tmp_path: Path) -> None:
    silent = Turn([text("never")], delay=1000)
    async with talking(redis_url, tmp_path / "home", silent) as (bench, fake):
        result = await bench.run(limits={"timeout_seconds": 4})
        assert (result.termination_reason, len(fake.journal)) == ("timeout", 2)
        assert 4000 <= result.execution_time_ms < 6500
        ended = "Stopped: timeoutSeconds 4 reached while it waited for the model's endpoint. 0 steps were made."
        assert result.summary == ended


@pytest.mark.requirement("P-07")
async def test_a_reply_that_was_cut_and_made_again_is_paid_for_twice(redis_url: str, tmp_path: Path) -> None:
    again = Turn([text("done")], usage={"input_tokens": 1000, "output_tokens": 50}, faults=[cut()])
    async with talking(redis_url, tmp_path / "home", again) as (bench, _):
        result = await bench.run()
        assert (result.usage.input_tokens, result.usage.output_tokens) == (2000, 51)


@pytest.mark.requirement("P-07")
async def test_the_words_of_a_reply_that_was_billed_are_not_reserved_for_again(redis_url: str, tmp_path: Path) -> None:
    billed = {"input_tokens": 1000, "output_tokens": 4000}
    long = Turn([text("word " * 4000), asked("glob", pattern="*")], usage=billed)
    async with talking(redis_url, tmp_path / "home", long, Turn([text("done")])) as (bench, fake):
        result = await bench.run(limits={"max_tokens": 20_000})
    assert result.termination_reason == "completed"
    reserved = 5000 + 1000  # for the final turn
    assert 9_000 - reserved < fake.journal[1].body["max_tokens"] <= 20_000 - 5000 - 5000 - reserved


@pytest.mark.requirement("P-09", "P-21")
async def test_what_was_sent_is_sent_again_as_it_was_in_every_turn(redis_url: str, tmp_path: Path) -> None:
    work = [
        Turn([thinking("hm"), asked("write_file", path="a.txt", content="x" * 3000)]),
        *(Turn([asked("read_file", path="a.txt", offset=offset)]) for offset in range(1, 12)),
        Turn([text("half")], stop="max_tokens"),
    ]
    async with talking(redis_url, tmp_path / "home", *work, Turn([text("done")])) as (bench, fake):
        result = await bench.run()
        kept = (await bench.store.conversation(result.delegation_id))[0]
        bodies = [each.body for each in fake.journal]
    assert result.termination_reason == "completed"
    assert {body["max_tokens"] for body in bodies} == {16_000}
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert (after["system"], after["tools"]) == (before["system"], before["tools"])
    stored = [{key: value for key, value in json.loads(entry).items() if key != "problems"} for entry in kept]
    assert stored[: len(bodies[-1]["messages"])] == bodies[-1]["messages"]


@pytest.mark.requirement("P-12")
async def test_a_step_has_the_thought_before_it_or_else_the_text(redis_url: str, tmp_path: Path) -> None:
    listed = [asked("list_directory", path="."), asked("glob", pattern="*")]
    turns = Turn([thinking("I must look."), text("Looking."), *listed]), Turn([text("Again."), listed[0]])
    async with talking(redis_url, tmp_path / "home", *turns, Turn([text("done")])) as (bench, _):
        result = await bench.run()
        found = await steps(bench, result.delegation_id)
    thought = {key: step.thinking for key, step in found.items()}
    assert thought == {"call_1_1": "I must look.", "call_1_2": "I must look.", "call_2_1": "Again."}


class Turnstile(Tool[Params]):
    """Of two calls the first one ends after the second one did. It takes any arguments, but only from a run."""

    name = "turnstile"
    kind = Kind.READ
    effect = Effect.PURE
    params = Params

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.second_ended = asyncio.Event()

    def parse(self, arguments: Mapping[str, Any]) -> Params:
        return Params()

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        self.begun.append(ctx.call_id)
        if len(self.begun) == 1:
            await asyncio.wait_for(self.second_ended.wait(), 30)
        else:
            self.second_ended.set()
        return ToolResult(f"answer to {ctx.call_id}")


@pytest.mark.requirement("P-09", "S000-107")
async def test_calls_side_by_side_are_answered_in_the_order_of_asking(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", offered=[Turnstile()]) as bench:
        model = script(tmp_path, [call("turnstile", any="argument"), call("turnstile", any="argument")], [say("done")])
        result = await bench.run(model=model, tools=["turnstile"])
        ended = [*await steps(bench, result.delegation_id)]
        told = [block["content"] for block in await answers(bench, result.delegation_id)]
    assert ended == ["call_1_2", "call_1_1"]
    assert told == ["answer to call_1_1", "answer to call_1_2"]


class PanicError(BaseException):
    """What a library in another language raises: no ``Exception``."""


class Defective(Tool[Params]):
    """Has an effect and then a bug."""

    name = "defective"
    kind = Kind.EDIT
    effect = Effect.IDEMPOTENT
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        ctx.files.write("half.txt", b"half\n")
        raise PanicError("its own bug" + " again" * MAX_ERROR_CHARS)


@pytest.mark.requirement("P-10", "S000-110")
async def test_a_tools_own_bug_is_an_answer_and_the_run_goes_on_and_reports_its_effect(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bench(redis_url, tmp_path / "home", offered=[Defective(), *BUILTIN]) as bench:
        write = call("bash", command="echo x > a.txt; echo x >> half.txt")
        model = script(tmp_path, [call("defective"), write], [say("done")])
        result = await bench.run(model=model, tools=["*"])
        told = await answers(bench, result.delegation_id)
    assert (result.termination_reason, result.turn_count) == ("completed", 2)
    assert told[0]["content"].startswith("Error: defective failed inside: its own bug again")
    assert len(told[0]["content"]) < MAX_ERROR_CHARS + 100
    assert "tool defective failed" in caplog.messages
    assert [block.get("is_error", False) for block in told] == [True, False]
    assert result.files_modified == ["half.txt", "a.txt"]  # in the order of their first change


class Overtaken(Tool[Params]):
    """Finds out that the run is another worker's."""

    name = "overtaken"
    kind = Kind.EDIT
    effect = Effect.EFFECTFUL
    params = Params

    async def run(self, ctx: ToolContext, params: Params) -> ToolResult:
        raise Fenced


@pytest.mark.requirement("P-16")
async def test_a_lease_that_is_lost_in_a_call_is_no_answer_and_the_calls_before_it_keep_theirs(
    redis_url: str, tmp_path: Path
) -> None:
    turns = Turn([asked("defective"), asked("overtaken")]), Turn([text("never")])
    async with talking(redis_url, tmp_path / "home", *turns, offered=[Defective(), Overtaken()]) as (bench, fake):
        id = await bench.accept(DelegationRequest(task="do it", tools=["*"]))
        assert await carry_out(bench.services, id) is None
        assert len(fake.journal) == 1
        redis = bench.store.redis
        kept = {key: json.loads(state) for key, state in (await redis.hgetall(ledger_key(id))).items()}
        assert (kept["call_1_1"]["state"], kept["call_1_1"]["type"]) == ("finished", ErrorType.EXECUTION_FAILED)
        assert [*kept] == ["call_1_1", "call_1_2"]
        await redis.delete(record_key(id), events_key(id), history_key(id), ledger_key(id), LEASES)


@pytest.mark.requirement("P-21", "P-07")
async def test_a_summary_that_the_budget_cannot_pay_is_made_from_the_log_and_the_run_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    dear = {"blocks": [call("glob", pattern="*")], "usage": {"input": 60_000, "output": 10}}
    name = script(tmp_path, dear, [say("never reached")], summary="never paid")
    path = Path(name.partition(":")[2])
    fresh = {"match": {"contains": "Work so far"}, "turns": [[say("done from the log")]]}
    path.write_text(json.dumps({"rules": [fresh, *json.loads(path.read_text())["rules"]], "label": "", "window": 5000}))
    result = await bench.run(model=name, tools=["glob"], limits={"max_tokens": 90_000})
    assert (result.termination_reason, result.summary) == ("completed", "done from the log")
    entries = (await bench.store.conversation(result.delegation_id))[0]
    begun = json.loads(entries[-2])["content"][0]["text"]
    assert "The model wrote no summary: maxTokens 90000 reached" in begun
    assert "1. [turn 1] ✓ " in begun


@pytest.mark.requirement("S002-060")
async def test_the_details_of_any_number_of_steps_have_an_end(bench: Bench, tmp_path: Path) -> None:
    calls = [call(f"{number:04}" * 1000) for number in range(20)]
    result = await bench.run(model=script(tmp_path, calls, [say("done")]))
    assert MAX_DETAILS_CHARS * 0.9 < len(result.details) <= MAX_DETAILS_CHARS == 32_000


async def test_an_attempt_after_the_last_turn_ends_by_its_limit_and_asks_for_nothing(tmp_path: Path) -> None:
    model = open_model(script(tmp_path, [say("done")]), Settings())
    record = MemoryRecord()
    lost = loop_of("do it", model, [], record)
    await lost.work()
    await lost.run.emit.settled()
    before = len(record.events)
    loop = loop_of("do it", model, [], record)
    loop.run.meter.reached = limit = LimitReached(TerminationReason.MAX_TURNS, "maxTurns", 1)
    loop.run.output = "{}"  # handed in before the worker was lost
    with pytest.raises(LimitReached) as raised:
        await loop.work()
    assert raised.value is limit
    assert await loop.summarize(limit) == ""
    assert len(record.events) == before
