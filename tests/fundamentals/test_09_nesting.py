"""9. Nesting: a run may hand pieces of its work to runs of their own, and answers for what they cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize import Orchestrator
from deputize.shared.delegation import Delegation
from deputize.shared.settings import Settings
from deputize.shared.wire import now
from tests.fundamentals.stack import until_file
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say
from tests.runs.nesting import by_task, delegate
from tests.waiting import until

WITH_SUBAGENTS = ["read_file", "bash", "call_subagent"]
WRITE = call("bash", command="echo one > a.txt")


async def child_named(orchestrator: Orchestrator, name: str) -> Delegation:
    async def there() -> list[Delegation]:
        return (await orchestrator.service.list(labels={"subagent": name})).items

    return (await until(there))[0]


@pytest.mark.requirement("S003-037", "S002-083")
async def test_a_subagent_does_a_piece_of_the_work_and_its_parent_reads_its_report(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    parent = [[delegate("child", name="scribe")], [say("{{result}}")]]
    model = by_task(tmp_path, parent=parent, child=[[WRITE], [say("I wrote a.txt.")]])
    result = await orchestrator.delegate("parent", model=model, tools=WITH_SUBAGENTS)
    child = await child_named(orchestrator, "scribe")
    assert child.request.parent_id == result.delegation_id
    assert child.result is not None
    assert (child.status, child.result.summary, child.result.files_modified) == (
        "succeeded",
        "I wrote a.txt.",
        ["a.txt"],
    )
    assert result.files_modified == []
    answer = json.loads(result.summary)
    assert (answer["delegationId"], answer["terminationReason"]) == (child.id, "completed")
    assert (answer["turnCount"], answer["toolCallCount"]) == (2, 1)
    assert (answer["summary"], answer["filesModified"]) == ("I wrote a.txt.", ["a.txt"])


async def test_the_patch_of_a_subagent_can_be_made_the_parents_own(orchestrator: Orchestrator, tmp_path: Path) -> None:
    apply = call("bash", command="git apply .deputize/subagents/*.patch && cat a.txt")
    parent = [[delegate("child")], [apply], [say("{{result}}")]]
    model = by_task(tmp_path, parent=parent, child=[[WRITE], [say("I wrote a.txt.")]])
    result = await orchestrator.delegate("parent", model=model, tools=WITH_SUBAGENTS)
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "one",
        "filesModified": ["a.txt"],
        "fileChanges": [{"path": "a.txt", "change": "created", "addedLines": 1}],
        "toolCallCount": 2,
        "turnCount": 3,
    }


async def test_subagents_of_one_turn_work_side_by_side(orchestrator: Orchestrator, tmp_path: Path) -> None:
    slow = {"blocks": [say("Done: {{task /(first|second)/}}.")], "delay": 0.5}
    both = [delegate(f"{name} child", name=name) for name in ("first", "second")]
    model = by_task(
        tmp_path, parent=[both, [say("{{result:all /Done: \\w+/}}{{result:2 /Done: \\w+/}}")]], child=[slow]
    )
    result = await orchestrator.delegate("parent", model=model, tools=WITH_SUBAGENTS)
    assert result.summary == "Done: firstDone: second"
    first, second = [await child_named(orchestrator, name) for name in ("first", "second")]
    assert max(first.created_at, second.created_at) < min(first.finished_at or now(), second.finished_at or now())


async def test_what_subagents_cost_is_their_parents_cost(orchestrator: Orchestrator, tmp_path: Path) -> None:
    spent = {"input": 1000, "output": 100}
    turns: dict[str, Any] = {
        "parent": [{"blocks": [delegate("child")], "usage": spent}, {"blocks": [say("Done.")], "usage": spent}],
        "child": [{"blocks": [say("Done.")], "usage": spent}],
    }
    model = by_task(tmp_path, {"input": 2, "output": 10}, **turns)
    result = await orchestrator.delegate("parent", model=model, tools=WITH_SUBAGENTS)
    assert result.usage.to_dict() == {
        "inputTokens": 3000,
        "outputTokens": 300,
        "cacheReadTokens": 0,
        "cacheWriteTokens": 0,
        "cacheWrite1hTokens": 0,
        "costUsd": pytest.approx(0.009),
        "cacheSavedUsd": 0.0,
        "cachedShare": 0.0,
    }


async def test_cancelling_a_run_cancels_its_subagents(
    orchestrator: Orchestrator, settings: Settings, tmp_path: Path
) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    parent = [[delegate("child", name="sleeper")], [say("never")]]
    model = by_task(tmp_path, parent=parent, child=[[hold], [say("never")]])
    started = await orchestrator.start("parent", model=model, tools=WITH_SUBAGENTS)
    child = await child_named(orchestrator, "sleeper")
    await until_file(settings, child.id, "begun")
    assert (await orchestrator.service.get(started.id)).status == "waiting"
    await orchestrator.cancel(started.id)
    results = [await orchestrator.result(id) for id in (started.id, child.id)]
    assert [result.status for result in results] == ["cancelled", "cancelled"]


async def test_a_subagent_has_no_tool_that_its_parent_has_not(orchestrator: Orchestrator, tmp_path: Path) -> None:
    parent = [[delegate("child", tools=["web_fetch"])], [say("I could not.")]]
    model = by_task(tmp_path, parent=parent)
    result = await orchestrator.delegate("parent", model=model, tools=WITH_SUBAGENTS)
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "I could not.",
        "errors": [
            (
                "delegate to a subagent: child: tools: 'web_fetch' is not a tool of this run, so a subagent "
                "cannot have it. There are read_file, bash, call_subagent."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }
