"""1. Delegating: a task is handed over, a worker does it, and a result comes back.

The model in these chapters follows a script (``say`` and ``call``), so that every run goes the same way; the stack, the
tools, the files and the sandbox are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deputize import Orchestrator
from deputize.shared.errors import Invalid
from deputize.shared.settings import Settings
from tests.fundamentals.stack import make_file, until_file
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script


@pytest.mark.requirement("S002-006", "S002-046")
async def test_a_delegation_is_a_task_and_comes_back_as_a_result(orchestrator: Orchestrator, tmp_path: Path) -> None:
    result = await orchestrator.delegate("Say hello.", model=script(tmp_path, [say("Hello.")]))
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Hello.",
        "turnCount": 1,
    }


async def test_the_result_states_what_was_done_and_which_files_changed(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    write = call("write_file", path="greeting.txt", content="Hello.\n")
    model = script(tmp_path, [say("I write it."), write], [say("It is written.")])
    result = await orchestrator.delegate("Write a greeting.", model=model)
    assert result.details == "1. [turn 1] ✓ write greeting.txt"
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "It is written.",
        "filesModified": ["greeting.txt"],
        "fileChanges": [{"path": "greeting.txt", "change": "created", "addedLines": 1}],
        "toolCallCount": 1,
        "turnCount": 2,
    }


async def test_the_model_reads_the_task_its_context_and_the_expected_outcome(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    model = script(tmp_path, [say("{{task}}")])
    result = await orchestrator.delegate(
        "Greet them.", context="They speak Polish.", expected_outcome="One sentence.", model=model
    )
    assert result.summary == (
        "# Context\n\nThey speak Polish.\n\n# Task\n\nGreet them.\n\n# Expected outcome\n\nOne sentence."
    )


async def test_a_started_delegation_is_waited_for_later_or_not_at_all(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    wait = call("bash", command="touch begun; until [ -e go ]; do sleep 0.1; done")
    started = await orchestrator.start("Say hello.", model=script(tmp_path, [wait], [say("Hello.")]))
    assert (started.request.task, started.result) == ("Say hello.", None)
    await until_file(settings, started.id, "begun")
    assert (await orchestrator.service.get(started.id)).status == "running"
    make_file(settings, started.id, "go")
    result = await orchestrator.result(started.id)
    found = await orchestrator.service.get(started.id)
    assert (found.status, found.result) == ("succeeded", result)


async def test_many_run_at_once_and_their_results_come_in_the_order_of_asking(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    model = script(tmp_path, {"blocks": [say("Done: {{task /(one|two|three)/}}.")], "delay": 0.2})
    results = await orchestrator.gather(["one", "two", "three"], model=model)
    assert [result.summary for result in results] == ["Done: one.", "Done: two.", "Done: three."]


async def test_giving_up_the_wait_does_not_give_up_the_work(orchestrator: Orchestrator, tmp_path: Path) -> None:
    started = await orchestrator.start(
        "Take your time.", model=script(tmp_path, {"blocks": [say("Done.")], "delay": 0.2})
    )
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(orchestrator.result(started.id), 0.05)
    assert (await orchestrator.result(started.id)).summary == "Done."


async def test_a_wrong_request_is_refused_with_every_mistake_before_anything_runs(orchestrator: Orchestrator) -> None:
    with pytest.raises(Invalid) as refused:
        await orchestrator.start(" ", limits={"max_turns": 0}, approval_mod="auto")  # pyright: ignore[reportCallIssue]
    assert refused.value.errors == [
        {"pointer": "/task", "detail": "the task is blank; describe the work in words"},
        {"pointer": "/limits/max_turns", "detail": "Input should be greater than or equal to 1"},
        {"pointer": "/approval_mod", "detail": "unknown key 'approval_mod'; did you mean 'approval_mode'?"},
    ]


async def test_delegations_are_found_again_by_session_and_label(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(tmp_path, [say("Done.")])
    for team in ("red", "blue", "red"):
        await orchestrator.delegate("Paint it.", model=model, session_id="s1", labels={"team": team})
    page = await orchestrator.service.list(session="s1", labels={"team": "red"})
    assert [(item.request.labels, item.status) for item in page.items] == [({"team": "red"}, "succeeded")] * 2
