"""6. Tools and kits: which tools a run has, who decides that, and what happens when a call goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize import Orchestrator
from deputize.shared.errors import Invalid
from deputize.shared.events import RunStarted
from tests.fundamentals.visible import visible
from tests.runs.bench import call, say, script


async def kit(orchestrator: Orchestrator, tmp_path: Path, tools: list[str] | None = None) -> list[str]:
    """The tools of a run that has nothing to do."""
    result = await orchestrator.delegate("Do nothing.", model=script(tmp_path, [say("Done.")]), tools=tools)
    events = await orchestrator.service.events(result.delegation_id)
    (started,) = [envelope.event for envelope in events if isinstance(envelope.event, RunStarted)]
    return started.tools


async def test_a_run_has_a_small_kit_unless_it_asks_for_other_tools(orchestrator: Orchestrator, tmp_path: Path) -> None:
    assert await kit(orchestrator, tmp_path) == [
        "read_file",
        "write_file",
        "edit_file",
        "bash",
        "bash_output",
        "bash_kill",
        "glob",
        "grep",
        "web_fetch",
    ]


async def test_tools_are_asked_for_by_name_or_pattern(orchestrator: Orchestrator, tmp_path: Path) -> None:
    assert await kit(orchestrator, tmp_path, ["read_*", "write_todos"]) == [
        "read_file",
        "write_todos",
        "read_many_files",
        "read_artifact",
    ]
    assert await kit(orchestrator, tmp_path, []) == []


async def test_an_unknown_tool_is_refused_with_the_closest_name(orchestrator: Orchestrator) -> None:
    with pytest.raises(Invalid) as refused:
        await orchestrator.start("Read.", tools=["read_fil"])
    assert refused.value.errors == [
        {
            "pointer": "/tools/0",
            "detail": 'unknown tool "read_fil"; did you mean read_file or edit_file or read_many_files?',
        },
    ]


async def test_the_fleet_reports_its_tools(orchestrator: Orchestrator) -> None:
    cards = {card.name: card for card in await orchestrator.service.tools()}
    assert {"read_file", "bash", "call_subagent"} <= set(cards)
    assert (cards["glob"].kind, cards["glob"].effect, cards["glob"].source) == ("search", "pure", "builtin")


async def test_a_tool_that_the_run_does_not_have_is_not_called(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="id")], [say("I could not.")])
    assert visible(await orchestrator.delegate("Who am I?", model=model, tools=["read_*", "glob"])) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "I could not.",
        "errors": [
            (
                "bash: there is no tool 'bash' in this run. Available tools: read_file, glob, read_many_files, "
                "read_artifact."
            ),
        ],
        "toolCallCount": 1,
        "turnCount": 2,
    }


@pytest.mark.requirement("P-10")
async def test_a_mistake_is_an_answer_that_the_model_reads(orchestrator: Orchestrator, tmp_path: Path) -> None:
    model = script(
        tmp_path, [call("read_file", path="nowhere.txt")], [call("read_file", pth="x")], [say("{{result:all}}")]
    )
    assert visible(await orchestrator.delegate("Read it.", model=model)) == {
        "status": "succeeded",
        "success": True,
        "mark": "ok",
        "terminationReason": "completed",
        "summary": "Error: File not found: nowhere.txt\nError: invalid arguments for read_file: path: Field required; "
        "pth: unknown key 'pth'; did you mean 'path'?. Known parameters: path, offset, limit.",
        "errors": [
            "read nowhere.txt: File not found: nowhere.txt",
            (
                "read_file: invalid arguments for read_file: path: Field required; pth: unknown key 'pth'; did "
                "you mean 'path'?. Known parameters: path, offset, limit."
            ),
        ],
        "toolCallCount": 2,
        "turnCount": 3,
    }
