"""Requests to wrap up: no further calls, one last turn for the report, and no model call where nothing was done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deputize.shared.delegation import TerminationReason
from deputize.shared.events import PermissionRequested, StepCompleted, StepStarted, WrapUpRequested
from deputize.shared.limits import Limits
from deputize.shared.message import MessageMode
from deputize.shared.request import AutomaticRetry, DelegationRequest
from deputize.worker.core.limits import LimitReached, Meter
from deputize.worker.models.base import Price
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, say, script
from tests.runs.held import HeldModel, accepted, post, provide, receipts, steer, under_way, wrap_up
from tests.waiting import until
from tests.worker.run_history import answered_once, history_of

LOOK, DONE = [call("glob", pattern="*")], [say("done")]
WRITE = [say("I write."), call("write_file", path="a.txt", content="x"), call("write_file", path="b.txt", content="y")]
HOLD = call("bash", command="touch begun; until [ -e go ]; do sleep 0.05; done")


async def test_it_ends_with_one_last_turn_that_reads_the_text_and_keeps_the_files(bench: Bench) -> None:
    model = provide(bench, HeldModel(WRITE, LOOK, DONE))
    id = await accepted(bench)
    async with under_way(bench, id):
        model.release()
        await model.asked(2)
        steered = (await steer(bench, id, "and name the files"))[0]
        sent = await wrap_up(bench, id, "we have enough")
        model.release(2)
    result = await bench.result(id)
    assert (result.status, result.termination_reason, result.success) == ("cancelled", "wrapped_up", False)
    assert (result.summary, result.files_modified) == ("The report.", ["a.txt", "b.txt"])
    assert (result.turn_count, result.tool_call_count, result.undelivered) == (2, 2, [])
    assert model.tools_allowed == [True, True, False]
    assert await receipts(bench, id) == [(steered, 3), (sent, 3)]
    hint, *texts = model.texts(2)[1:]
    assert hint.startswith('<system_hint type="wrap_up">The work ends here: its caller asked it to wrap up.')
    assert ["name the files" in texts[0], "we have enough" in texts[1]] == [True, True]
    (asked,) = await bench.seen(id, WrapUpRequested)
    assert (asked.message_id, asked.by, asked.reason) == (sent, "tester", "we have enough")
    answers = await bench.answers(id)
    assert answers[-1] == "Error: not executed: its caller asked it to wrap up"
    assert answered_once(await history_of(bench, result))


async def test_a_second_request_is_the_first_one(bench: Bench) -> None:
    model = provide(bench, HeldModel(LOOK))
    id = await accepted(bench)
    async with under_way(bench, id):
        await model.asked(1)
        first = await wrap_up(bench, id)
        assert await post(bench.store, id, "again", MessageMode.WRAP_UP) == first
        model.release(2)
    assert await receipts(bench, id) == [(first, 2)]
    assert await post(bench.store, id, "", MessageMode.WRAP_UP) == first, "also after its end"


async def test_a_call_that_takes_longer_is_ended_as_at_the_end_of_the_time(bench: Bench, tmp_path: Path) -> None:
    hurried = replace(bench.services, wrap_up_seconds=0.1)
    model = script(tmp_path, [call("bash", command="echo x > a.txt; sleep 1234"), LOOK[0]], DONE, summary="I slept.")
    id = await bench.accept(DelegationRequest(task="do it", model=model, limits=Limits(timeout_seconds=100)))
    async with under_way(Bench(hurried, bench.settings, []), id):
        await until(lambda: bench.seen(id, StepStarted))
        await until((bench.settings.workspaces / id / "files" / "a.txt").exists)
        await wrap_up(bench, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.summary, result.files_modified) == ("wrapped_up", "I slept.", ["a.txt"])
    sleeping, never = await bench.answers(id)
    assert "the run was stopped while this call was under way" in sleeping
    assert never == "Error: not executed: its caller asked it to wrap up"


async def test_a_run_that_waits_for_a_person_ends_without_delay(asking: Bench) -> None:
    model = provide(asking, HeldModel([call("bash", command="touch a")]))
    model.release(2)
    id = await accepted(asking, approval_mode="ask")
    async with under_way(asking, id):
        await until(lambda: asking.seen(id, PermissionRequested))
        await until(lambda: _is(asking, id, "waiting"))
        await wrap_up(asking, id)
    assert (await asking.result(id)).termination_reason == "wrapped_up"
    (step,) = [event.step for event in await asking.seen(id, StepCompleted)]
    assert "stopped while it waited for permission" in (step.error or "")


async def _is(bench: Bench, id: str, status: str) -> bool:
    return (await bench.store.get(id)).status == status


async def test_work_that_ends_by_itself_meanwhile_is_completed(bench: Bench) -> None:
    model = provide(bench, HeldModel(DONE))
    id = await accepted(bench)
    async with under_way(bench, id):
        await model.asked(1)
        await wrap_up(bench, id, "enough")
        model.release()
    result = await bench.result(id)
    assert (result.termination_reason, result.summary) == ("completed", "done")
    assert [each.text for each in result.undelivered] == ["enough"]


async def test_a_delegation_that_never_ran_ends_at_once_without_a_worker(bench: Bench) -> None:
    id = await accepted(bench)
    await steer(bench, id, "never read")
    sent = await post(bench.store, id, "", MessageMode.WRAP_UP)
    result = await bench.result(id)
    assert (result.status, result.termination_reason) == ("cancelled", "wrapped_up")
    assert (result.summary, result.undelivered[0].text) == ("Wrapped up before it was started.", "never read")
    types = [envelope.event.type for envelope in await bench.events(id)]
    assert types == ["run_queued", "message_received", "wrap_up_requested", "run_finished"]
    assert await carry_out(bench.services, id) is None
    assert await post(bench.store, id, "", MessageMode.WRAP_UP) == sent


@pytest.mark.parametrize("turns", [0, 1])
async def test_one_that_waits_for_its_next_attempt_reports_what_it_did(bench: Bench, turns: int) -> None:
    model = provide(bench, HeldModel(WRITE, LOOK, DONE))
    id = await accepted(bench, retry=AutomaticRetry(attempts=1))
    model.release(turns)
    await bench.interrupt(id, lambda: len(model.prompts) > turns)
    sent = await wrap_up(bench, id)
    model.release(2 * turns)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.status, result.termination_reason, result.attempts) == ("cancelled", "wrapped_up", 2)
    assert result.files_modified == ["a.txt", "b.txt"][: 2 * turns]
    if turns:
        assert (result.summary, await receipts(bench, id)) == ("The report.", [(sent, 2)])
    else:
        assert (result.summary, len(model.prompts)) == ("Wrapped up before its first turn.", 1)


async def test_a_paused_one_goes_on_to_its_end(bench: Bench) -> None:
    model = provide(bench, HeldModel(WRITE, LOOK))
    id = await accepted(bench)
    model.release()
    await bench.interrupt(id, lambda: len(model.prompts) > 1)
    await bench.store.redis.hset(f"deputize:run:{{{id}}}", "paused", "1")
    assert await carry_out(bench.services, id) is None
    await wrap_up(bench, id)
    model.release(2)
    await carry_out(bench.services, id)
    assert (await bench.result(id)).termination_reason == "wrapped_up"


async def test_its_checks_are_not_run(bench: Bench) -> None:
    model = provide(bench, HeldModel(WRITE, LOOK))
    id = await accepted(bench, verify=[{"kind": "file", "path": "a.txt", "exists": True}])
    async with under_way(bench, id):
        await model.asked(1)
        await wrap_up(bench, id)
        model.release(2)
    verification = (await bench.result(id)).verification
    facts = verification.verdict, verification.why
    assert facts == ("inconclusive", "the checks were not completed: the delegation was wrapped up")


async def test_a_call_after_the_one_in_which_the_request_came_is_not_executed(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [HOLD, call("write_file", path="late.txt", content="x")], DONE, summary="I held.")
    id = await bench.accept(DelegationRequest(task="do it", model=model))
    files = bench.settings.workspaces / id / "files"
    async with under_way(bench, id):
        await until((files / "begun").exists)
        await wrap_up(bench, id)
        (files / "go").touch()
    _, never = await bench.answers(id)
    assert never == "Error: not executed: its caller asked it to wrap up"
    assert not (files / "late.txt").exists()


@pytest.mark.parametrize("limits", [{"max_tokens": 14_000}, {"max_cost_usd": 0.014}], ids=["tokens", "dollars"])
@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_its_last_turn_is_reserved_in_the_budget(bench: Bench, limits: dict[str, float], turn: int) -> None:
    looks = {"blocks": [call("glob", pattern="{{calls}}")], "usage": {"input": 4000, "output": 100}, "repeat": 9}
    rates = {"input": 1, "output": 1, "cache_write": 1}
    model = provide(bench, HeldModel(looks, price=rates))
    id = await accepted(bench, limits=Limits.model_validate(limits))
    async with under_way(bench, id):
        model.release(turn - 1)
        await model.asked(turn)
        await wrap_up(bench, id)
        model.release(2)
    result = await bench.result(id)
    reason = "wrapped_up" if turn < 3 else "budget"  # its third call is that of the last turn already
    assert (result.termination_reason, result.summary) == (reason, "The report.")
    assert result.usage.total <= limits.get("max_tokens", 14_000)
    assert (result.usage.cost_usd or 0) <= limits.get("max_cost_usd", 0.014)


@pytest.mark.parametrize(
    ("limits", "prompt", "in_work", "in_final_turn"),
    [
        ({"max_tokens": 100_000}, 9_000, 100_000 - 2 * 9_000 - 1_000, 91_000),
        ({"max_tokens": 100_000}, 50_000, 50_000 - 20_000 - 1_000, 50_000),
        ({"max_tokens": 5_000}, 1_000, 5_000 - 2 * 1_000 - 500, 4_000),
        # 1,000 prompt tokens at the cache-write rate cost 0.0025, 1,000 output tokens 0.01.
        ({"max_cost_usd": 1}, 1_000, 98_500, 99_750),
        ({"max_cost_usd": 0.01}, 1_000, 400, 750),
    ],
    ids=["tokens", "a long conversation", "few tokens", "dollars", "few dollars"],
)
def test_from_the_second_turn_on_the_final_turn_is_reserved_too(
    limits: dict[str, float], prompt: int, in_work: int, in_final_turn: int
) -> None:
    counter = Meter(Limits.model_validate(limits), Price(input=2, output=10, cache_read=0.1, cache_write=2.5))
    allowances = list[int]()
    for _ in range(2):
        counter.begin_turn()
        allowances.append(counter.output_allowance(prompt, wanted=1 << 30))
    counter.reached = LimitReached(TerminationReason.TIMEOUT, "timeoutSeconds", 1)
    allowances.append(counter.output_allowance(prompt, wanted=1 << 30))
    assert allowances == [in_final_turn, in_work, in_final_turn]


async def test_the_report_is_made_from_the_log_if_the_conversation_exceeds_the_budget(
    bench: Bench,
) -> None:
    long = [call("bash", command="seq 2000 > a.txt"), call("read_file", path="a.txt"), HOLD]
    model = provide(bench, HeldModel({"blocks": long, "usage": {"input": 1000, "output": 100}}))
    id = await accepted(bench, limits=Limits(max_tokens=9_000), tools=["bash", "read_file"])
    files = bench.settings.workspaces / id / "files"
    async with under_way(bench, id):
        model.release(2)
        await until((files / "begun").exists)
        sent = await wrap_up(bench, id, "what have you seen?")
        (files / "go").touch()
    result = await bench.result(id)
    assert (result.termination_reason, result.summary) == ("wrapped_up", "The report.")
    assert result.usage.total <= 9_000
    assert await receipts(bench, id) == [(sent, 2)]
    (prompt,) = model.texts(1)
    assert prompt.startswith("# Task")
    for part in ("2. [turn 1] ✓ read a.txt", "what have you seen?", '<system_hint type="wrap_up">'):
        assert part in prompt
    history = await history_of(bench, result)
    assert "1999" in str(history[-4]), "what continues it has the conversation itself"
    assert history[-1] == {"role": "assistant", "content": [{"type": "text", "text": "The report."}]}
