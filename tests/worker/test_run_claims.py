"""The claims of real runs: of the last attempt and those before it, and of runs that others build on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import RunFinished
from deputize.shared.facts import Verification
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import by_task, delegate
from tests.waiting import until
from tests.worker.parents import run
from tests.worker.run_history import READ, WRITE

TASK = "Write a.txt and check it."
CHECK = call("bash", command="grep -q one a.txt")
LIE = "I wrote `b.txt`, ran `make check`, and all tests pass."
LIES = ["all tests pass", "wrote `b.txt`", "ran `make check`"]


def judged(result: ToolAgentResult) -> list[tuple[str, str, str | None]]:
    return [(each.claim, each.verdict, each.evidence) for each in result.verification.claims]


async def test_a_result_lists_what_its_summary_states_with_the_evidence(bench: Bench, tmp_path: Path) -> None:
    said = "I wrote `a.txt` and ran `grep -q one a.txt`. I also updated `c.txt`."
    edit = call("edit_file", path="c.txt", old_string="x", new_string="y")
    result = await bench.run(TASK, model=script(tmp_path, [WRITE], [edit], [CHECK], [say(said)]))
    assert judged(result) == [
        ("wrote `a.txt`", "proved", "call_1_1"),
        ("ran `grep -q one a.txt`", "proved", "call_3_1"),
        ("updated `c.txt`", "refuted", "call_2_1"),
    ]
    (finished,) = await bench.seen(result, RunFinished)
    assert finished.result.verification == result.verification


async def test_a_lie_decides_neither_the_verdict_nor_the_success(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(TASK, model=script(tmp_path, [WRITE], [READ], [say(LIE)]))
    assert (result.verification.verdict, result.success) == ("unverified", True)
    assert result.refuted_claims == LIES
    assert result.notes == ["3 claims refuted"]


async def test_a_summary_without_a_claim_leaves_the_result_as_it_was(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(TASK, model=script(tmp_path, [WRITE], [say("Done.")]))
    assert result.verification == Verification()


async def test_the_steps_of_earlier_attempts_count(bench: Bench, tmp_path: Path) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    said = "I wrote `a.txt` and ran `grep -q one a.txt`."
    model = script(tmp_path, [WRITE], [CHECK], [hold], [say(said)])
    id = await bench.accept(DelegationRequest(task=TASK, model=model))
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert result.attempts == 2
    assert judged(result) == [
        ("wrote `a.txt`", "proved", "call_1_1"),
        ("ran `grep -q one a.txt`", "proved", "call_2_1"),
    ]


async def test_what_an_earlier_delegation_may_have_done_is_not_refuted(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [WRITE], [say("Done.")], [say(LIE)])
    first = await bench.run(TASK, model=model)
    result = await bench.run("Go on.", model=model, continues=first.delegation_id)
    assert [(each.claim, each.verdict) for each in result.verification.claims] == [(lie, "unproved") for lie in LIES]


async def test_after_a_limit_only_a_summary_of_its_own_is_compared(bench: Bench, tmp_path: Path) -> None:
    turns = [[say(LIE), READ], [say(LIE), READ]]
    limits = {"max_turns": 1}
    result = await bench.run(TASK, model=script(tmp_path, *turns, summary="I updated `c.txt`."), limits=limits)
    assert (result.termination_reason, result.refuted_claims) == ("max_turns", ["updated `c.txt`"])
    result = await bench.run(TASK, model=script(tmp_path, *turns, summary=""), limits=limits)
    assert (LIE in result.summary, result.verification.claims) == (True, [])


async def test_the_words_before_a_cancelled_call_are_no_summary(bench: Bench, tmp_path: Path) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    id = await bench.accept(DelegationRequest(task=TASK, model=script(tmp_path, [say(LIE), hold])))
    running = asyncio.create_task(carry_out(bench.services, id))
    await until((bench.settings.workspaces / id / "files" / "begun").exists)
    await bench.store.cancel(id)
    await running
    result = await bench.result(id)
    assert (result.status, result.summary, result.verification.claims) == ("cancelled", LIE, [])


async def test_a_parent_reads_which_words_of_its_child_are_refuted(busy: Bench, tmp_path: Path) -> None:
    asked = delegate("child", agent_name="scribe", tools=["write"])
    lie = "I wrote `b.txt`."
    model = by_task(tmp_path, parent=[[asked], [say("The subagent wrote it.")]], child=[[WRITE], [say(lie)]])
    id = await run(busy, model=model)
    (answer,) = await busy.answers(id)
    assert json.loads(answer[answer.index("{") : answer.rindex("}") + 1])["refutedClaims"] == ["wrote `b.txt`"]
    assert (await busy.result(id)).verification.claims == []
