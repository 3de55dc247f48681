"""2. Limits: turns, tool calls, time, tokens and money are exact, and hitting one is an ending, not a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize import Orchestrator
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script

LOOK = [call("glob", pattern="*")]


@pytest.mark.requirement("P-05", "P-08")
async def test_a_run_that_reaches_its_turn_limit_writes_a_summary_first(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    model = script(tmp_path, LOOK, LOOK, LOOK, summary="I looked twice.")
    result = await orchestrator.delegate("Look around.", model=model, limits={"max_turns": 2})
    assert visible(result) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "max_turns",
        "summary": "I looked twice.",
        "toolCallCount": 2,
        "turnCount": 2,
    }


@pytest.mark.requirement("P-06", "P-09")
async def test_calls_past_the_limit_are_answered_but_not_executed(orchestrator: Orchestrator, tmp_path: Path) -> None:
    calls = [call("write_file", path=f"{number}.txt", content="x") for number in range(3)]
    model = script(tmp_path, calls, summary="Two of three.")
    result = await orchestrator.delegate("Write three files.", model=model, limits={"max_tool_calls": 2})
    assert visible(result) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "max_tool_calls",
        "summary": "Two of three.",
        "filesModified": ["0.txt", "1.txt"],
        "fileChanges": [
            {"path": "0.txt", "change": "created", "addedLines": 1},
            {"path": "1.txt", "change": "created", "addedLines": 1},
        ],
        "errors": ["write_file: not executed: limit reached (maxToolCalls 2)"],
        "toolCallCount": 2,
        "turnCount": 1,
    }


async def test_a_run_that_needs_just_its_last_call_is_completed(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(tmp_path, LOOK, [say("Done.")])
    result = await orchestrator.delegate("Look around.", model=model, limits={"max_tool_calls": 1})
    assert visible(result) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Done.",
        "toolCallCount": 1,
        "turnCount": 2,
    }


@pytest.mark.requirement("P-07")
async def test_when_the_time_is_over_the_command_is_ended_and_what_it_did_is_reported(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    slow = call("bash", command="echo begun > a.txt; exec sleep 1000")
    result = await orchestrator.delegate("Wait.", model=script(tmp_path, [slow]), limits={"timeout_seconds": 3})
    assert (result.execution_time_ms < 4000, len(result.reaped)) == (True, 1)
    assert visible(result) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "timeout",
        "summary": result.summary,  # the model's, if there is time left to ask for it
        "filesModified": ["a.txt"],
        "fileChanges": [{"path": "a.txt", "change": "created", "addedLines": 1}],
        "errors": [
            "its time ended while it waited for the call of bash ($ echo begun > a.txt; exec sleep 1000)",
            (
                "$ echo begun > a.txt; exec sleep 1000: outcome unknown: the run was stopped while this call "
                "was under way. It may have happened, wholly or in part: look at the workspace before you "
                "repeat it."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 1,
        "reaped": result.reaped,
    }


async def test_money_is_counted_to_the_token_and_never_overspent(orchestrator: Orchestrator, tmp_path: Path) -> None:
    spent = {"input": 1000, "output": 100}
    turns = [{"blocks": [call("glob", pattern=f"{number}*")], "usage": spent} for number in range(20)]
    model = script(tmp_path, *turns, price={"input": 2, "output": 10}, summary="That is what I could pay for.")
    result = await orchestrator.delegate("Look around.", model=model, limits={"max_cost_usd": 0.03})
    assert visible(result) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "budget",
        "summary": "That is what I could pay for.",
        "toolCallCount": 8,
        "turnCount": 9,
    }
    assert result.usage.cost_usd is not None
    assert 0.03 - 0.01 < result.usage.cost_usd <= 0.03


async def test_a_run_in_circles_is_stopped(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(tmp_path, *[LOOK] * 15, summary="I went in circles.")
    result = await orchestrator.delegate("Look around.", model=model)
    assert visible(result) == {
        "status": "failed",
        "success": False,
        "mark": "failed",
        "terminationReason": "loop_detected",
        "summary": "I went in circles.",
        "toolCallCount": 10,
        "turnCount": 10,
    }


async def test_the_servers_caps_lower_what_is_asked_for_and_the_answer_states_it(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    model = script(tmp_path, [say("Done.")])
    started = await orchestrator.start("Be quick.", model=model, limits={"max_turns": 5000, "max_tokens": 9000})
    assert started.effective_limits.to_dict() == {
        "maxTurns": 200,
        "maxToolCalls": 50,
        "timeoutSeconds": 600.0,
        "maxTokens": 9000,
        "maxCostUsd": None,
    }
    await orchestrator.result(started.id)
