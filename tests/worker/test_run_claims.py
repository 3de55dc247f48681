"""The claims of real runs: of the last attempt and those before it, and of runs that others build on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

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
LOST = call("edit_file", path="c.txt", old_string="x", new_string="y")
LIE = "I wrote `a.txt` and updated `c.txt`."
LIES = ["`c.txt` changed"]


def folder(where: Path, files: Mapping[str, str]) -> str:
    made = where / "shop"
    made.mkdir()
    for name, text in files.items():
        (made / name).write_text(text)
    return str(made)


def judged(result: ToolAgentResult) -> list[tuple[str, str, str | None]]:
    return [(each.claim, each.verdict, each.evidence) for each in result.verification.claims]


async def test_a_result_lists_what_steps_and_changes_show_about_its_summary(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(TASK, model=script(tmp_path, [WRITE], [LOST], [CHECK], [say(LIE)]))
    changed, lost = ("`a.txt` changed", "proved", "call_1_1"), ("`c.txt` changed", "refuted", "call_2_1")
    assert judged(result) == [changed, lost]
    (finished,) = await bench.seen(result, RunFinished)
    assert finished.result.verification == result.verification


async def test_a_refuted_claim_decides_neither_the_verdict_nor_the_success(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(TASK, model=script(tmp_path, [WRITE], [LOST], [say(LIE)]))
    assert (result.verification.verdict, result.success) == ("unverified", True)
    assert result.refuted_claims == LIES
    assert "1 claim refuted" in result.notes


TAX = {
    "tax.py": "def tax(net):\n    return net * 19\n",
    "test_tax.py": "import tax, unittest\nclass T(unittest.TestCase):\n"
    "    def test_rate(self):\n        self.assertEqual(tax.tax(2), 38)\n",
}
BROKEN = call("bash", command="sed -i s/19/20/ tax.py")
TESTED = call("bash", command="python3 -B -m unittest -q test_tax")
LOADED = call("bash", command="python3 -c 'import tax'")


@pytest.mark.parametrize("check", ["", "python3 -m py_compile tax.py", "true", "grep -q def tax.py"])
async def test_a_check_that_runs_no_tests_leaves_the_run_s_red_tests_refute_its_summary(
    bench: Bench, tmp_path: Path, check: str
) -> None:
    shop = folder(tmp_path, TAX)
    model = script(tmp_path, [BROKEN], [TESTED], [LOADED], [say("All tests pass.")])
    result = await bench.run("Fix tax.", model=model, workspace=shop, verify=check or None)
    assert result.verification.verdict == ("passed" if check else "unverified")
    assert (judged(result), result.mark) == ([("tests pass", "refuted", "call_2_1")], "unproven")


async def test_tests_that_are_red_before_and_after_refute_a_summary(bench: Bench, tmp_path: Path) -> None:
    shop = folder(tmp_path, {name: text.replace("38", "40") for name, text in TAX.items()})
    broken = call("bash", command="sed -i s/19/21/ tax.py")
    model = script(tmp_path, [broken], [TESTED], *[[say("All tests pass.")]] * 4)
    check = "python3 -m unittest -q test_tax"
    result = await bench.run("Fix tax.", model=model, workspace=shop, verify=check)
    assert (result.verification.verdict, judged(result)) == ("inconclusive", [("tests pass", "refuted", None)])


async def test_a_run_that_changes_nothing_and_names_no_file_has_no_claims(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(TASK, model=script(tmp_path, [READ], [say("Done.")]))
    assert result.verification == Verification()


async def test_the_steps_of_earlier_attempts_count(bench: Bench, tmp_path: Path) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    model = script(tmp_path, [WRITE], [LOST], [hold], [say(LIE)])
    id = await bench.accept(DelegationRequest(task=TASK, model=model))
    await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert result.attempts == 2
    assert judged(result) == [("`a.txt` changed", "proved", "call_1_1"), ("`c.txt` changed", "refuted", "call_2_1")]


async def test_after_a_limit_only_a_summary_of_its_own_is_compared(bench: Bench, tmp_path: Path) -> None:
    turns = [[say(LIE), LOST], [say(LIE), LOST]]
    limits = {"max_turns": 1}
    result = await bench.run(TASK, model=script(tmp_path, *turns, summary="I updated `c.txt`."), limits=limits)
    assert (result.termination_reason, result.refuted_claims) == ("max_turns", LIES)
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
    asked = delegate("child", agent_name="scribe", tools=["write", "edit"])
    model = by_task(tmp_path, parent=[[asked], [say("The subagent wrote it.")]], child=[[WRITE], [LOST], [say(LIE)]])
    id = await run(busy, model=model)
    (answer,) = await busy.answers(id)
    assert json.loads(answer[answer.index("{") : answer.rindex("}") + 1])["refutedClaims"] == LIES
    assert (await busy.result(id)).refuted_claims == []
