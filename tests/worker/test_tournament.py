"""Tasks that are done several times: real sandboxes and checks, and a script for each attempt."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict
from deputize.shared.events import CheckCompleted, ProgressMade, RunStarted
from deputize.shared.facts import TournamentFacts
from deputize.shared.proof.keys import make_key
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import record_key
from deputize.worker.task import carry_out
from tests.network.git_server import git
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import begin, carrying_out, children_of
from tests.verdict.cases import proof_of
from tests.waiting import until
from tests.worker.parents import COST, HOLD, PRICE, SPENT

FILES = {"sum.py": "def add(a, b):\n    return a - b\n", "test_sum.py": "import sum\nassert sum.add(2, 3) == 5\n"}
CHECK = {"kind": "command", "run": "python3 test_sum.py"}
RIGHT, WRONG = "a + b", "a * b"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    for name, text in FILES.items():
        (tmp_path / "project" / name).write_text(text)
    return tmp_path / "project"


def attempt(project: Path, body: str, words: str = "done", price: dict[str, float] | None = None) -> str:
    """A model that makes this the body of the function."""
    work = call("write_file", path="sum.py", content=f"def add(a, b):\n    return {body}\n")
    turns = [{"blocks": [work], "usage": SPENT}, [say(words)]] if price else [[work], [say(words)]]
    return script(project.parent, *turns, price=price)


async def held(bench: Bench, project: Path, *models: str, **fields: Any) -> ToolAgentResult:
    asked = {"count": len(models), "models": [*models]} | fields.pop("attempts", {})
    fields = {"workspace": str(project), "verify": [CHECK], "max_verify_rounds": 0} | fields
    return await bench.run("add two numbers", attempts=asked, **fields)


def facts(result: ToolAgentResult) -> TournamentFacts:
    assert result.tournament
    return result.tournament


async def test_the_first_verified_attempt_wins_and_no_other_is_begun(busy: Bench, project: Path) -> None:
    models = [attempt(project, WRONG), attempt(project, RIGHT, "I add."), attempt(project, RIGHT)]
    result = await held(busy, project, *models)
    found, children = facts(result), await children_of(busy.store, result.delegation_id)
    assert (result.success, result.summary, result.verification.verdict) == (True, "I add.", "verified")
    assert (result.files_modified, result.ending) == (["sum.py"], "verified (completed, 1 of 2 attempts passed)")
    assert "+    return a + b" in await busy.store.patch(result.delegation_id)
    assert [each.verdict for each in found.attempts] == ["refuted", "verified"] or found.attempts[
        0
    ].verdict != "verified"
    assert (found.winner, found.taken, found.passed, found.of) == (children[1].id, children[1].id, 1, 2)
    assert [each.request.model for each in children] == models[:2]
    assert [each.model for each in await busy.seen(result, RunStarted)] == ["no model"]
    assert (project / "sum.py").read_text() == FILES["sum.py"]


async def test_without_a_verified_attempt_the_best_one_is_the_result_and_no_success(busy: Bench, project: Path) -> None:
    fails = script(project.parent, [call("bash", command="rm sum.py")], [say("gone")])
    checks = [CHECK, {"kind": "command", "run": "test -e sum.py"}]
    result = await held(busy, project, fails, attempt(project, WRONG, "I multiply."), verify=checks)
    found = facts(result)
    assert (result.success, result.status, result.summary) == (False, "failed", "I multiply.")
    assert (found.winner, found.taken, found.passed, found.of) == (None, found.attempts[1].id, 0, 2)
    assert "a * b" in await busy.store.patch(result.delegation_id)
    assert result.errors


async def test_all_attempts_are_ordered_by_their_changes(busy: Bench, project: Path) -> None:
    large = attempt(project, f"{RIGHT}\n\n\ndef more():\n    return 1")
    result = await held(
        busy, project, large, attempt(project, WRONG), attempt(project, RIGHT), attempts={"stop": "all"}
    )
    found = facts(result)
    assert (result.success, found.passed, found.of) == (True, 2, 3)
    assert found.winner == found.attempts[2].id
    assert [each.verdict == "verified" for each in found.attempts] == [True, False, True]


async def test_a_verified_attempt_ends_those_that_are_under_way(bench: Bench, project: Path) -> None:
    holds = script(project.parent, [HOLD], [say("never")])
    asked = {"count": 3, "concurrency": 2, "models": [holds, attempt(project, RIGHT)]}
    fields = {"workspace": str(project), "verify": [CHECK], "tools": None, "attempts": asked}
    id, running = await begin(bench, **fields)
    await until(lambda: len(bench.sent) == 2, 20)
    async with carrying_out(bench):
        await running
    result, (first, second) = await bench.result(id), await children_of(bench.store, id)
    assert (result.success, facts(result).winner, facts(result).of) == (True, second.id, 1)
    assert (first.status, facts(result).attempts[0].ending) == ("cancelled", "cancelled (cancelled, inconclusive)")


async def test_an_end_of_the_run_is_the_end_of_its_attempts(bench: Bench, project: Path) -> None:
    asked = {"count": 4, "concurrency": 2}
    id, running = await begin(bench, workspace=str(project), verify=[CHECK], tools=None, attempts=asked)
    await until(lambda: len(bench.sent) == 2, 20)
    assert (await bench.store.get(id)).status == "waiting"
    await bench.store.cancel(id)
    await running
    result = await bench.result(id)
    assert (result.status, [each.status for each in await children_of(bench.store, id)]) == (
        "cancelled",
        ["cancelled"] * 2,
    )
    assert (facts(result).taken, len(facts(result).attempts), facts(result).of) == (None, 2, 0)


async def test_a_later_worker_finds_the_attempts_again(bench: Bench, project: Path) -> None:
    models = [attempt(project, WRONG), attempt(project, WRONG, "again"), attempt(project, RIGHT)]
    asked = {"count": 3, "models": models}
    fields = {"workspace": str(project), "verify": [CHECK], "max_verify_rounds": 0, "tools": None, "attempts": asked}
    id, running = await begin(bench, **fields)
    await until(lambda: bench.sent, 20)
    await carry_out(bench.services, bench.sent.pop().id)
    await until(lambda: bench.sent, 20)
    running.cancel()
    await asyncio.wait({running})
    second = bench.sent[0].id
    await carry_out(bench.services, second)
    bench.sent.clear()
    async with carrying_out(bench):
        await carry_out(bench.services, id)
    result, children = await bench.result(id), await children_of(bench.store, id)
    assert (result.success, result.attempts, len(children), children[1].id) == (True, 2, 3, second)
    assert (facts(result).winner, facts(result).of) == (children[2].id, 3)


async def test_tokens_and_money_are_those_of_all_attempts(busy: Bench, project: Path) -> None:
    models = [attempt(project, WRONG, price=PRICE) for _ in range(3)]
    limits = {"max_cost_usd": 0.9, "max_tokens": 300_000, "timeout_seconds": 77}
    result = await held(busy, project, *models, limits=limits)
    children = await children_of(busy.store, result.delegation_id)
    shares = [each.effective_limits for each in children]
    spent = [each.result.usage for each in children if each.result]
    assert result.usage.cost_usd == pytest.approx(sum(each.cost_usd or 0 for each in spent))
    assert (result.usage.cost_usd or 0) >= 3 * COST
    assert shares[0].max_cost_usd == pytest.approx(0.3)
    assert shares[0].max_tokens == 100_000
    assert shares[1].max_cost_usd == pytest.approx((0.9 - (spent[0].cost_usd or 0)) / 2)
    assert {each.timeout_seconds for each in shares} == {77}


async def test_the_output_and_what_was_read_are_those_of_the_taken_attempt(busy: Bench, project: Path) -> None:
    work = call("write_file", path="sum.py", content=f"def add(a, b):\n    return {RIGHT}\n")
    model = script(project.parent, [work], [call("submit_result", n=3)], [say("done")])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result = await held(busy, project, model, output_schema=schema)
    assert (result.output_status, result.output) == ("valid", {"n": 3}), result
    assert result.trust.sources[:2] == [f"subagent:{facts(result).taken}", "parent"]
    assert "workspace" in result.trust.sources


@pytest.mark.long
async def test_a_continuation_goes_on_with_the_conversation_that_was_taken(
    busy: Bench, project: Path, redis_url: str
) -> None:
    result = await held(busy, project, attempt(project, WRONG), attempt(project, RIGHT, "I add."))
    async with open_service(busy.settings, redis_url) as service:
        made = (await service.continue_(result.delegation_id, "And now?")).delegation
        with pytest.raises(Conflict, match="no turns of its own"):
            await service.retry(result.delegation_id, from_turn=1)
    assert (made.request.attempts, made.request.model) == (None, facts(result).attempts[1].model)
    await carry_out(busy.services, made.id)
    continued = await busy.result(made.id)
    assert continued.files_modified == ["sum.py"]
    entries = [json.loads(entry) for entry in (await busy.store.conversation(made.id))[0]]
    assert "I add." in json.dumps(entries)
    assert "And now?" in json.dumps(entries[-2:])


async def test_the_best_attempt_is_delivered_by_the_run(busy: Bench, tmp_path: Path, project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    models = [attempt(project, WRONG), attempt(project, RIGHT)]
    workspace = {"kind": "git", "url": str(project), "ref": "main"}
    result = await held(busy, project, *models, workspace=workspace, deliver={"branch": "best"})
    assert result.git
    assert (result.success, result.git.branch, result.errors) == (True, "best", [])
    assert "return a + b" in git(project, "show", "best:sum.py")
    children = await children_of(busy.store, result.delegation_id)
    assert {each.result.git.base for each in children if each.result and each.result.git} == {result.git.base}
    assert [each.result.git.branch for each in children if each.result and each.result.git] == [None, None]


async def test_equal_changes_are_checked_once(busy: Bench, project: Path) -> None:
    models = [attempt(project, WRONG), attempt(project, WRONG, "again"), attempt(project, "a + a")]
    result = await held(busy, project, *models, max_verify_rounds=1)
    children = await children_of(busy.store, result.delegation_id)
    seen = [await busy.seen(each.id, CheckCompleted) for each in children]
    checked = [any(event.on == "candidate" for event in events) for events in seen]
    found = facts(result)
    assert found.attempts[0].patch == found.attempts[1].patch != found.attempts[2].patch
    assert {each.verdict for each in found.attempts} == {"inconclusive"}
    assert checked == [True, False, True]


async def test_the_proof_of_the_result_names_the_attempt(busy: Bench, project: Path) -> None:
    make_key(busy.settings.proof_key_folder)
    result = await held(busy, project, attempt(project, WRONG), attempt(project, RIGHT), economy=True)
    envelope = await proof_of(busy, result)
    assert envelope
    statement = b64decode(json.loads(envelope)["payload"]).decode()
    assert (facts(result).winner or "none") in statement


async def test_without_room_in_the_budget_no_attempt_is_made(bench: Bench, project: Path) -> None:
    result = await held(bench, project, attempt(project, RIGHT), attempt(project, RIGHT), limits={"max_tokens": 100})
    assert (result.termination_reason, result.success, bench.sent) == ("budget", False, [])
    assert result.errors == ["maxTokens 100 reached"]
    assert (facts(result).attempts, facts(result).taken) == ([], None)


async def test_the_deadline_ends_attempts_that_their_own_time_does_not(bench: Bench, project: Path) -> None:
    """No worker takes them, so that their own time does not begin."""
    deadline = datetime.now(UTC) + timedelta(seconds=1.5)
    asked = {"count": 4, "concurrency": 2}
    result = await bench.run(workspace=str(project), verify=[CHECK], attempts=asked, deadline=deadline)
    ended = (await bench.store.get(result.delegation_id)).finished_at
    assert ended
    assert timedelta() <= ended - deadline < timedelta(seconds=10)
    assert (result.termination_reason, result.success) == ("timeout", False)
    assert result.errors == [f"deadline {deadline:%FT%TZ} reached"]
    children = await children_of(bench.store, result.delegation_id)
    assert {each.status.value for each in children} <= {"cancelled"}
    assert len(children) <= 2


async def test_at_the_deadline_the_best_of_the_ended_attempts_is_taken(bench: Bench, project: Path) -> None:
    """It passes while no worker has the run."""
    asked = {"count": 3, "models": [attempt(project, WRONG, "I multiply.")]}
    fields = {"workspace": str(project), "verify": [CHECK], "max_verify_rounds": 0, "tools": None, "attempts": asked}
    id, running = await begin(bench, **fields)
    await until(lambda: bench.sent, 20)
    running.cancel()
    await asyncio.wait({running})
    await carry_out(bench.services, bench.sent.pop().id)
    request = (await bench.store.get(id)).request.model_copy(update={"deadline": datetime.now(UTC)})
    await bench.store.redis.hset(record_key(id), "request", request.to_json())
    await carry_out(bench.services, id)
    result, children = await bench.result(id), await children_of(bench.store, id)
    assert (result.summary, result.success, facts(result).taken) == ("I multiply.", False, children[0].id)
    assert (len(children), facts(result).of) == (1, 1)
    said = [each.message for each in await bench.seen(id, ProgressMade)]
    assert any("not all attempts were made: deadline" in each for each in said)


async def test_a_far_deadline_is_one_of_each_attempt_and_ends_none(busy: Bench, project: Path) -> None:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    result = await held(busy, project, attempt(project, WRONG), attempt(project, RIGHT), deadline=deadline)
    assert (result.success, facts(result).of) == (True, 2)
    assert {each.request.deadline for each in await children_of(busy.store, result.delegation_id)} == {deadline}


@pytest.mark.costly
async def test_changes_that_no_patch_holds_are_not_taken(busy: Bench, project: Path) -> None:
    work = call("bash", command="sed -i s/-/+/ sum.py; head -c 30000000 /dev/zero > large")
    result = await held(busy, project, script(project.parent, [work], [say("done")]))
    assert (result.termination_reason, result.success, facts(result).winner) == ("refused", False, None)
    assert "its patch is not complete: large" in result.errors[-1]
    assert [each.verdict for each in facts(result).attempts] == ["verified"]


async def test_an_attempt_whose_record_was_removed_is_not_made_again(bench: Bench, project: Path) -> None:
    asked = {"count": 1}
    id, running = await begin(bench, workspace=str(project), verify=[CHECK], tools=None, attempts=asked)
    await until(lambda: bench.sent, 20)
    running.cancel()
    await asyncio.wait({running})
    await bench.store.cancel(bench.sent.pop().id)
    assert (await prune(bench.store.redis, 0)).removed == 1
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.termination_reason, result.errors, bench.sent) == ("error", ["no attempt was made"], [])
