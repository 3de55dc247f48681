"""A call that needs permission waits for a person: what each answer does, and what the model reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import Status, StepStatus
from deputize.shared.errors import Conflict, Invalid
from deputize.shared.events import (
    PermissionAnswered,
    PermissionRequested,
    ResumedWaiting,
    StepCompleted,
    StepStarted,
    Waiting,
)
from deputize.shared.permission import ALIASES, PermissionOutcome, parse_outcome
from deputize.shared.request import ApprovalMode
from tests.runs.asking import WRITE, answered, asking_bench, begun, questions, until_status
from tests.runs.bench import Bench, call, say, script
from tests.runs.nesting import by_task, carrying_out, delegate
from tests.waiting import until


@pytest.mark.requirement("S003-003", "S004-035")
async def test_a_call_waits_for_its_answer_and_then_runs(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    await until_status(asking, id, Status.WAITING)
    await answered(asking, request, "proceed_once")
    await run
    kinds = StepStarted | PermissionRequested | Waiting | PermissionAnswered | ResumedWaiting | StepCompleted
    found = [envelope.event for envelope in await asking.events(id) if isinstance(envelope.event, kinds)]
    assert [event.type for event in found] == [
        "step_started",
        "permission_requested",
        "waiting",
        "permission_answered",
        "resumed_waiting",
        "step_completed",
    ]
    started, question, waits, report, _, done = found
    assert isinstance(started, StepStarted)
    assert isinstance(question, PermissionRequested)
    assert isinstance(waits, Waiting)
    assert isinstance(report, PermissionAnswered)
    assert isinstance(done, StepCompleted)
    assert (question.permission_id, question.path) == (request.permission_id, [id])
    assert (waits.why, report.outcome, report.by) == ("permission", "proceed_once", "ada")
    assert (started.step.status, done.step.status) == (StepStatus.AWAITING_CONFIRMATION, StepStatus.COMPLETED)
    assert started.step.id == done.step.id == question.step.id
    assert (await asking.result(id)).files_modified == ["a.txt"]


COMMAND = call("bash", command="touch made")


async def read_by_model(bench: Bench, id: str) -> str:
    """The result of the one call."""
    (answer,) = await bench.answers(id)
    return answer


@pytest.mark.requirement("S001-035", "S001-036", "S002-076")
async def test_a_refused_command_does_not_run_and_the_model_reads_why(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [COMMAND], [say("done")]))
    (request,) = await questions(asking)
    await answered(asking, request, "cancel", reason="use make")
    await run
    result, (step,) = await asking.result(id), await asking.steps(id)
    assert (result.success, result.files_modified) == (True, [])
    assert (result.denied_call_count, result.failed_call_count, len(result.errors)) == (1, 1, 1)
    assert (step.type, step.status, step.title) == ("bash-confirm", "failed", "$ touch made")
    assert step.denied
    assert step.error.startswith("denied: use make. Nothing was executed.")
    assert step.error in await read_by_model(asking, id)


@pytest.mark.requirement("S002-075", "S004-033")
@pytest.mark.parametrize(
    ("asked", "details", "title"),
    [
        (
            call("bash", command="git push origin main && ls 2>&1"),
            {
                "type": "execute",
                "command": "git push origin main && ls 2>&1",
                "commands": [
                    {"command": "git push origin main", "decision": "ask", "reason": "git push may change something"},
                    {"command": "ls", "decision": "allow", "reason": "ls only reads"},
                ],
                "effects": [],
            },
            "$ git push origin main && ls 2>&1",
        ),
        (
            WRITE,
            {
                "type": "edit",
                "paths": ["a.txt"],
                "diff": "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n",
            },
            "write a.txt",
        ),
        (
            call("web_fetch", url="http://example.org/a"),
            {"type": "info", "urls": ["http://example.org/a"], "arguments": {"url": "http://example.org/a"}},
            "fetch http://example.org/a",
        ),
    ],
)
async def test_a_person_sees_what_would_be_done(
    asking: Bench, tmp_path: Path, asked: Any, details: dict[str, Any], title: str
) -> None:
    id, run = await begun(asking, script(tmp_path, [asked], [say("done")]))
    (request,) = await questions(asking)
    assert request.details.to_dict() == details
    assert (request.step.title, request.step.arguments) == (title, asked["arguments"])
    assert (request.delegation_id, request.path, request.rule) == (id, [id], "ask_before_changes")
    await answered(asking, request, "cancel")
    await run


@pytest.mark.requirement("S004-034")
async def test_changed_arguments_are_used_and_the_model_reads_that(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    await answered(asking, request, "modify", arguments={"path": "b.txt", "content": "y\n"})
    await run
    assert (await asking.result(id)).files_modified == ["b.txt"]
    note, _, rest = (await read_by_model(asking, id)).partition("\n")
    assert note == (
        'A person changed the arguments of this call before it was executed: {"path": "b.txt", "content": "y\\n"}'
    )
    assert rest.startswith("Successfully wrote to b.txt")


async def test_changed_arguments_are_validated_and_judged_again(asking: Bench, tmp_path: Path) -> None:
    forbidden = {"command": "rm -rf /"}
    for arguments, error in (({"cmd": 1}, "a person changed the arguments of this call"), (forbidden, "forbidden")):
        id, run = await begun(asking, script(tmp_path, [COMMAND], [say("done")]))
        (request,) = await questions(asking)
        await answered(asking, request, "modify", arguments=arguments)
        await run
        (step,) = await asking.steps(id)
        assert (step.status, error in step.error) == ("failed", True), step.error


async def test_without_an_answer_the_call_is_denied_when_its_time_is_over(redis_url: str, tmp_path: Path) -> None:
    async with asking_bench(redis_url, tmp_path / "home", permission_timeout_seconds=0.3) as bench:
        id, run = await begun(bench, script(tmp_path, [WRITE], [say("done")]))
        (request,) = await questions(bench)
        await run
        (step,) = await bench.steps(id)
        assert step.error.startswith("denied: no one answered within 0.3 s. Nothing was executed.")
        (report,) = await bench.seen(id, PermissionAnswered)
        assert (report.outcome, report.by) == ("cancel", None)
        assert report.reason == "no one answered within 0.3 s"
        with pytest.raises(Conflict, match="was answered before: denied"):
            await answered(bench, request, "proceed_once")
        assert await bench.store.redis.exists("deputize:permissions") == 0


async def test_a_cancelled_run_stops_waiting(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    await until_status(asking, id, Status.WAITING)
    await asking.store.cancel(id)
    await run
    (step,) = await asking.steps(id)
    assert ((await asking.result(id)).termination_reason, step.status) == ("cancelled", "failed")
    assert step.error.startswith("not executed: ")
    with pytest.raises(Conflict, match="does not wait for an answer any more"):
        await answered(asking, request, "proceed_once")
    assert await asking.store.redis.exists("deputize:permissions") == 0


async def test_the_time_of_the_wait_is_not_that_of_the_run(redis_url: str, tmp_path: Path) -> None:
    async with asking_bench(redis_url, tmp_path / "home", permission_timeout_seconds=1.5) as bench:
        id, run = await begun(bench, script(tmp_path, [WRITE], [say("done")]), limits={"timeout_seconds": 1})
        await run
        result = await bench.result(id)
    assert (result.termination_reason, result.summary) == ("completed", "done")
    assert result.execution_time_ms < 1000


async def test_an_outcome_that_does_not_apply_is_refused(asking: Bench, tmp_path: Path) -> None:
    _, run = await begun(asking, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(asking)
    for outcome, more in (("proceed_always_server", {}), ("modify", {}), ("proceed_once", {"arguments": {}})):
        with pytest.raises(Invalid):
            await answered(asking, request, outcome, **more)
    await answered(asking, request, "cancel")
    await run


@pytest.mark.requirement("S004-034")
def test_every_outcome_has_its_names() -> None:
    assert {outcome.value for outcome in PermissionOutcome} == {
        "proceed_once",
        "proceed_always",
        "proceed_always_tool",
        "proceed_always_server",
        "modify",
        "cancel",
    }
    assert {alias: parse_outcome(alias).value for alias in ALIASES} == {
        **dict.fromkeys(("approve", "allow", "y"), "proceed_once"),
        **dict.fromkeys(("deny", "reject", "n"), "cancel"),
        "modify_with_editor": "modify",
    }
    with pytest.raises(ValueError, match="did you mean 'proceed_once'"):
        parse_outcome("proced_once")


async def test_a_denial_without_a_person_names_none(asking: Bench, tmp_path: Path) -> None:
    id, run = await begun(asking, script(tmp_path, [COMMAND], [say("done")]))
    (request,) = await questions(asking)
    await answered(asking, request, "cancel", reason="no one can answer without a terminal")
    await run
    read = await read_by_model(asking, id)
    assert "denied: no one can answer without a terminal. Nothing was executed. " in read
    assert "by a person" not in read


async def test_only_what_the_policy_or_a_person_denies_counts_as_denied(asking: Bench, tmp_path: Path) -> None:
    tried = [call("write_file", path="a.txt", content="x"), call("bash", command="false"), call("read_file", path="no")]
    id, run = await begun(asking, script(tmp_path, tried, [say("done")]), approval_mode=ApprovalMode.READ_ONLY)
    await run
    result = await asking.result(id)
    assert all(step.denied is (step.tool_name == "write_file") for step in await asking.steps(id))
    assert (result.denied_call_count, result.failed_call_count) == (1, len(result.errors))


async def test_a_line_that_only_reads_asks_nothing_and_runs_programs_of_the_system(
    asking: Bench, tmp_path: Path
) -> None:
    """Also with the line ends of Windows: what runs is the text that was judged."""
    line = "command -v git\r\ncommand -v ls\r\n"
    id, run = await begun(asking, script(tmp_path, [call("bash", command=line)], [say("done")]))
    await run
    assert (await read_by_model(asking, id)).split() == ["/.guard/bin/git", "/usr/bin/ls"]


# Requests of children reach those who follow their parents.


def two_levels(folder: Path) -> str:
    further = {"tools": ["call_subagent", "write_file"]}
    return by_task(
        folder,
        parent=[[delegate("middle", **further)], [say("ok")]],
        middle=[[delegate("lowest")], [say("ok")]],
        lowest=[[WRITE], [say("ok")]],
    )


async def of_permissions(bench: Bench, id: str) -> list[Any]:
    return await bench.seen(id, PermissionRequested, PermissionAnswered)


async def test_a_request_and_its_answer_are_events_of_all_runs_above(asking: Bench, tmp_path: Path) -> None:
    async with carrying_out(asking), open_service(asking.settings, asking.settings.redis_url or "") as service:
        id, run = await begun(asking, two_levels(tmp_path), task="parent", tools=["*", "call_subagent"])
        (request,) = await questions(asking)
        assert (len(request.path), request.path[0]) == (3, id)
        for above in request.path:
            await until(lambda above=above: of_permissions(asking, above))
            await until_status(asking, above, Status.WAITING)
            assert (await service.get(above)).pending_permissions == [request.permission_id]
            assert await service.permissions(above) == [request]
        listed = {each.id: each.pending_permissions for each in (await service.list()).items}
        assert listed == {each: [request.permission_id] for each in request.path}
        await answered(asking, request, "proceed_once")
        await run
        for above in request.path:
            asked, report = await of_permissions(asking, above)
            assert (asked.path, asked.step.title, asked.permission_id) == (
                request.path,
                "write a.txt",
                request.permission_id,
            )
            assert (report.path, report.outcome, report.by) == (request.path, "proceed_once", "ada")
            assert (await service.get(above)).pending_permissions == []


async def test_the_time_of_a_parent_stands_still_while_a_child_waits(redis_url: str, tmp_path: Path) -> None:
    async with asking_bench(redis_url, tmp_path / "home", permission_timeout_seconds=2.5) as bench:
        model = by_task(tmp_path, parent=[[delegate("child")], [say("ok")]], child=[[WRITE], [say("ok")]])
        async with carrying_out(bench):
            fields = {"task": "parent", "tools": ["*", "call_subagent"], "limits": {"timeout_seconds": 2}}
            id, run = await begun(bench, model, **fields)
            await run
        result = await bench.result(id)
    assert (result.termination_reason, result.execution_time_ms < 2000) == ("completed", True)


async def test_a_parent_that_is_cancelled_ends_the_wait_of_its_child(asking: Bench, tmp_path: Path) -> None:
    async with carrying_out(asking):
        id, run = await begun(asking, two_levels(tmp_path), task="parent", tools=["*", "call_subagent"])
        (request,) = await questions(asking)
        await asking.store.cancel(id)
        await run
        await until_status(asking, request.delegation_id, Status.CANCELLED)
    assert (await asking.result(id)).termination_reason == "cancelled"
    assert await asking.store.redis.exists("deputize:permissions") == 0
