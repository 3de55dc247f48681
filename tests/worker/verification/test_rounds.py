"""Runs with checks: what goes back to the model, what it never sees, and what ends a verification."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.events import CheckCompleted, ProgressMade
from deputize.worker.sandbox.environment import BindMount
from deputize.worker.sandbox.project_tools import ProjectTools
from deputize.worker.task import carry_out
from deputize.worker.toolkit.offer import Offers, RunOffer
from deputize.worker.workspace.workspace import Workspace
from tests.network.internet import response
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.totals import check_totals
from tests.waiting import until
from tests.worker.run_history import history_of
from tests.worker.verification.held import (
    BAD,
    CANARY,
    GOOD,
    GROUNDS,
    HELD,
    begun,
    grounds,
    let_go,
    until_ended,
    until_on,
)
from tests.worker.web.servers import saying, serving

SECRET_LINE = "expected value of the hidden check"
HIDDEN = {
    "kind": "command",
    "run": "sh checks/hidden-name.sh",
    "files": {"checks/hidden-name.sh": f"# {SECRET_LINE}\ncat checks/hidden-name.sh a.txt\ngrep good a.txt\n"},
    "canary": CANARY,
}
CHECK = {"kind": "command", "run": "grep -h good a.txt", "canary": CANARY}


def words_of(history: list[dict[str, Any]]) -> str:
    return json.dumps([entry["content"] for entry in history])


async def test_a_result_that_falls_short_goes_back_with_the_output_and_the_work_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    model = script(tmp_path, [BAD], [say("done")], [GOOD], [say("done now")])
    result = await bench.run(model=model, verify=[{**HIDDEN, "hidden": False}])
    asked = (await history_of(bench, result))[4]
    assert asked["role"] == "user"
    text = asked["content"][0]["text"]
    assert text.startswith('<system_hint type="not_proven">')
    assert "The check sh checks/hidden-name.sh falls short: it fails as it did before the run" in text
    assert SECRET_LINE in text
    assert "bad" in text
    assert (result.verification.verdict, result.verification.rounds, result.summary) == ("verified", 1, "done now")
    assert (result.success, result.errors, result.turn_count) == (True, [], 4)


async def test_with_a_refuted_result_the_output_is_handed_in_again(bench: Bench, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    first, second = (call("submit_result", n=number) for number in (1, 2))
    model = script(tmp_path, [BAD], [first], [GOOD], [second])
    result = await bench.run(model=model, verify=[HIDDEN], output_schema=schema)
    assert (result.verification.verdict, result.verification.rounds) == ("verified", 1)
    assert (result.output, result.output_status, result.turn_count) == ({"n": 2}, "valid", 4)


async def test_of_a_hidden_check_without_tests_the_model_sees_nothing(bench: Bench, tmp_path: Path) -> None:
    search = call("bash", command=f"grep -r '{SECRET_LINE}' /workspace /tmp /opt /run; env; ls -R")
    model = script(tmp_path, [BAD], [search], [say("done")], [search], [GOOD], [say("done now")])
    result = await bench.run(model=model, verify=[HIDDEN])
    history = await history_of(bench, result)
    asked = next(entry for entry in history[1:] if "system_hint" in json.dumps(entry))
    assert asked["content"][0]["text"].endswith("</system_hint>\n\nA hidden check falls short.")
    words = words_of(history)
    assert words.count(SECRET_LINE) == words.count(f"grep -r '{SECRET_LINE}'")  # in its own calls
    assert "hidden-name" not in words
    assert result.verification.verdict == "verified"


@pytest.mark.parametrize("rounds", [0, 1])
async def test_after_its_rounds_a_result_that_falls_short_is_a_failure_with_the_reason(
    bench: Bench, tmp_path: Path, rounds: int
) -> None:
    model = script(tmp_path, [BAD], [say("done")], [say("done, really")], [say("never")])
    result = await bench.run(model=model, verify=[HIDDEN], max_verify_rounds=rounds)
    assert (result.status, result.success, result.termination_reason) == ("failed", False, "completed")
    assert (result.verification.verdict, result.verification.rounds) == ("inconclusive", rounds)
    assert result.errors == ["the verdict is inconclusive, and passed is required: it fails as it did before the run"]
    assert result.turn_count == 2 + rounds


async def test_a_limit_leaves_no_round_and_its_result_is_checked_too(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [BAD], [say("done")], [GOOD])
    result = await bench.run(model=model, verify=[HIDDEN], limits={"max_turns": 2})
    assert (result.termination_reason, result.verification.rounds, result.success) == ("completed", 0, False)
    result = await bench.run(model=script(tmp_path, [GOOD], [BAD]), verify=[HIDDEN], limits={"max_turns": 1})
    assert (result.termination_reason, result.verification.verdict, result.success) == ("max_turns", "verified", False)


async def test_events_tell_of_each_ground(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(
        model=script(tmp_path, [GOOD], [say("done")]),
        verify=[
            {"kind": "command", "run": "grep -h good a.txt", "canary": CANARY},
            {"kind": "changed", "paths": ["*"]},
        ],
    )
    seen = await bench.seen(result, CheckCompleted)
    assert [(event.check, event.on, event.ok, event.exit_code) for event in seen] == [
        *((0, "base", False, 2), (0, "candidate", True, 0), (0, "canary", False, 1)),
        *((1, "base", False, None), (1, "candidate", True, None)),
    ]
    assert seen[1].output_tail == "good"
    (command, changed) = result.verification.checks
    assert (command.base, command.candidate, command.canary, command.output_tail) == ("red", "green", "red", "good")
    assert (changed.outcome, changed.canary) == ("evidence", None)


async def test_each_execution_of_a_check_is_announced_without_its_command(bench: Bench, tmp_path: Path) -> None:
    id, running = await begun(bench, script(tmp_path, [GOOD], [say("done")]))

    async def announced(words: str) -> list[str]:
        return [each.message for each in await bench.seen(id, ProgressMade) if words in each.message]

    await until(lambda: announced("check 1 still runs on the files from before the run"), 60)
    await until_on(bench, id, "candidate")
    assert await announced("check 1 of 1 runs") == ["check 1 of 1 runs on the result"]
    result = await until_ended(bench, id)
    await running
    again = "check 1 of 1 runs on the result again, and where something is broken that it must notice"
    assert await announced("check 1 of 1 runs") == ["check 1 of 1 runs on the result", again]
    assert result.verification.verdict == "verified"


async def test_a_canary_that_does_not_fit_is_stated(bench: Bench, tmp_path: Path) -> None:
    check = {**CHECK, "canary": CANARY.replace("-good", "-other")}
    result = await bench.run(model=script(tmp_path, [GOOD], [say("done")]), verify=[check])
    (check,) = result.verification.checks
    assert (result.verification.verdict, check.outcome, check.canary) == ("passed", "no_regression", None)
    assert check.why.endswith("it ran without a canary, as its own does not fit the files")


async def test_a_check_that_does_not_notice_its_canary_is_tampered_with(bench: Bench, tmp_path: Path) -> None:
    check = {"kind": "command", "run": "test -e a.txt", "canary": CANARY}
    result = await bench.run(model=script(tmp_path, [GOOD], [say("done")]), verify=[check], max_verify_rounds=0)
    assert (result.verification.verdict, result.verification.tampered) == ("refuted", True)
    assert result.verification.checks[0].canary == "green"


@pytest.mark.parametrize("on", GROUNDS)
async def test_a_cancelled_verification_ends_at_once_and_decides_nothing(bench: Bench, tmp_path: Path, on: str) -> None:
    id, running = await begun(bench, script(tmp_path, [GOOD], [say("done")]))
    await until_on(bench, id, on)
    await bench.store.cancel(id)
    await running
    result = await bench.result(id)
    assert (result.termination_reason, result.verification.verdict) == ("cancelled", "inconclusive")
    assert result.summary == "done" or on == "base"  # that one begins beside the agent
    assert "cancelled" in result.verification.why
    assert [*bench.settings.workspaces.glob(f"{id}.*")] == []


async def test_checks_end_by_a_time_of_their_own(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [GOOD], [say("done")])
    asked = [{**HELD, "timeoutSeconds": 60}]
    result = await bench.run(model=model, verify=asked, verify_timeout_seconds=0.2, verify_early=False)
    assert (result.termination_reason, result.verification.verdict, result.success) == (
        "completed",
        "inconclusive",
        False,
    )
    assert "within 2 s (verifyTimeoutSeconds)" in result.verification.why
    assert [*bench.settings.workspaces.glob(f"{result.delegation_id}.*")] == []


async def test_a_check_that_ends_neither_before_nor_after_decides_nothing(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [GOOD], [say("done")])
    result = await bench.run(model=model, verify=[{**HELD, "timeoutSeconds": 0.5}])
    (check,) = result.verification.checks
    assert (check.base, check.candidate, check.outcome) == ("trouble", "trouble", "inconclusive")
    assert "did not end within 0.5 s" in check.why


async def test_without_a_sandbox_commands_decide_nothing(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        offer = bench.services.offers.of([None])
        bench.services.offers = Offers(replace(offer, sandbox_problem="none here"))
        result = await bench.run(model=script(tmp_path, [GOOD], [say("done")]), verify=[HIDDEN])
    assert (result.verification.verdict, result.success) == ("inconclusive", False)
    assert "none here" in result.verification.why


class LosesMount(RunOffer):
    """An offer in which the checks' sandbox cannot be set up: a directory that it is to show is gone."""

    async def tools_of_base(self, workspace: Workspace) -> ProjectTools:
        return ProjectTools(mounts=(BindMount("gone", workspace.path / "gone", "/gone"),))


async def test_a_check_whose_sandbox_fails_decides_nothing_and_is_counted(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        offer = bench.services.offers.of([None])
        bench.services.offers = Offers(LosesMount(**{each.name: getattr(offer, each.name) for each in fields(offer)}))
        model = script(tmp_path, [GOOD], [say("done")], price={"input": 1, "output": 1})
        result = await bench.run(model=model, verify=[HIDDEN])
        found = await check_totals(bench.store.redis)
    assert (result.verification.verdict, result.success) == ("inconclusive", False)
    (check,) = result.verification.checks
    assert (check.base, check.candidate) == ("unknown", "unknown")
    assert found["deputize_sandbox_failures_total",] == 2, "on the base and on the candidate"


async def test_what_changes_after_it_was_checked_is_not_verified(bench: Bench, tmp_path: Path) -> None:
    id, running = await begun(bench, script(tmp_path, [GOOD], [say("done")]))
    await until_on(bench, id, "candidate")
    (bench.settings.workspaces / id / "files/late.txt").write_text("late\n")
    result = await until_ended(bench, id)
    await running
    assert (result.verification.verdict, result.files_modified) == ("inconclusive", ["a.txt", "late.txt"])
    assert "changed after" in result.verification.why


async def test_background_commands_end_before_the_checks(bench: Bench, tmp_path: Path) -> None:
    late = call("bash", command="while :; do echo late >>b.txt; sleep 0.01; done", run_in_background=True)
    wait = call("bash", command="until [ -e b.txt ]; do sleep 0.01; done")
    model = script(tmp_path, [GOOD, late], [wait], [say("done")])
    result = await bench.run(model=model, verify=[HIDDEN, {"kind": "file", "path": "b.txt"}])
    assert result.verification.verdict == "verified"


@pytest.mark.parametrize("on", GROUNDS)
async def test_a_verification_that_was_handed_over_is_made_again_without_the_model(
    bench: Bench, tmp_path: Path, on: str
) -> None:
    model = script(tmp_path, [GOOD], [say("done")])
    id, running = await begun(bench, model)
    await until_on(bench, id, on)
    running.cancel()
    await asyncio.wait({running})
    again = asyncio.create_task(carry_out(bench.services, id))
    result = await until_ended(bench, id)
    await again
    assert (result.verification.verdict, result.summary, result.turn_count) == ("verified", "done", 2)
    assert (result.attempts, len(await bench.seen(id, CheckCompleted)) >= 3) == (2, True)
    assert [*bench.settings.workspaces.glob(f"{id}.*")] == []


async def test_a_later_attempt_knows_how_many_rounds_there_were(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [BAD], [say("done")], [say("again")], [say("never")])
    id, running = await begun(bench, model, max_verify_rounds=1)

    async def in_second_round() -> bool:
        let_go(bench, id)
        return (await bench.store.get(id)).progress.turn == 3 and grounds(bench, id) != []

    await until(in_second_round, 60)
    running.cancel()
    await asyncio.wait({running})
    again = asyncio.create_task(carry_out(bench.services, id))
    result = await until_ended(bench, id)
    await again
    assert (result.verification.verdict, result.verification.rounds, result.turn_count) == ("inconclusive", 1, 3)


async def test_a_run_that_fails_before_its_checks_reports_that_they_were_not_made(bench: Bench, tmp_path: Path) -> None:
    fault = {"kind": "unavailable", "message": "away"}
    result = await bench.run(model=script(tmp_path, {"blocks": [], "faults": [fault]}), verify=[HIDDEN])
    assert (result.termination_reason, result.verification.verdict) == ("model_unavailable", "inconclusive")
    assert "the run ended before" in result.verification.why


async def test_known_secrets_are_masked_in_what_a_check_prints(redis_url: str, tmp_path: Path) -> None:
    secret = "token-of-the-service-xyz"
    check = {"kind": "command", "run": f"printf 'x%.0s' $(seq 1990); echo {secret[:9]}{secret[9:]}; grep -q good a.txt"}
    async with open_bench(redis_url, tmp_path / "home", token=secret) as bench:
        result = await bench.run(model=script(tmp_path, [GOOD], [say("done")]), verify=[check])
        seen = await bench.seen(result, CheckCompleted)
    assert result.verification.verdict == "verified"
    assert "service-xyz" not in result.verification.checks[0].output_tail + "".join(each.output_tail for each in seen)


async def test_a_check_has_no_network_even_where_commands_of_the_run_have_one(redis_url: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with serving(saying(response("the page", "text/plain"))) as at:
        fetch = f"curl -sS --noproxy '' http://{at}/"
        model = script(tmp_path, [call("bash", command=f"{fetch} >got; echo got >a.txt")], [say("done")])
        settings: dict[str, Any] = {"sandbox": {"allowed_hosts": ["localhost"]}, "tools": {"private_hosts": [at]}}
        async with open_bench(redis_url, tmp_path / "home", **settings) as bench:
            checks = [
                {"kind": "file", "path": "got", "matches": "the page"},
                {"kind": "command", "run": f"! {fetch} && test -e a.txt"},
            ]
            result = await bench.run(model=model, workspace=str(project), verify=checks)
    assert [check.outcome for check in result.verification.checks] == ["evidence", "no_regression"]


def test_a_run_without_checks_imports_nothing_of_them() -> None:
    program = "import deputize.worker.parts.table, sys; print([n for n in sys.modules if '.verification' in n])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
