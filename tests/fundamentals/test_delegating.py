"""How delegating works, one idea a test. Read these first."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.events import Envelope
from tests.running import Bench, call, say, script


@pytest.mark.requirement("S002-006", "S002-046")
async def test_a_delegation_is_a_task_and_comes_back_as_a_result(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(task="Say hello.", model=script(tmp_path, [say("Hello.")]))
    assert result.success
    assert result.summary == "Hello."


async def test_a_run_works_on_its_own_copy_of_a_directory(bench: Bench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("old\n")
    model = script(tmp_path, [call("write_file", path="notes.txt", content="new\n")], [say("Done.")])
    result = await bench.run(model=model, workspace={"kind": "directory", "path": str(project)})
    assert (project / "notes.txt").read_text() == "old\n"
    assert "+new" in await bench.store.patch(result.delegation_id)


async def test_what_changed_is_a_fact_from_the_disk(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="echo hi > made.txt")], [say("I changed nothing.")])
    result = await bench.run(model=model)
    assert result.files_modified == ["made.txt"]


async def test_every_step_is_an_event_that_is_kept(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("write_file", path="a.txt", content="a")], [say("Done.")])
    result = await bench.run(model=model)
    events: list[Envelope] = await bench.events(result.delegation_id)
    assert events[0].event.type == "run_queued"
    assert events[-1].event.type == "run_finished"
    assert "step_completed" in {envelope.event.type for envelope in events}


async def test_a_limit_is_an_ending_with_a_summary_and_not_a_crash(bench: Bench, tmp_path: Path) -> None:
    looking = [call("glob", pattern="a*"), call("glob", pattern="b*")]
    model = script(tmp_path, looking, summary="I looked once.")
    result = await bench.run(model=model, limits={"max_tool_calls": 1})
    assert result.termination_reason == "max_tool_calls"
    assert result.summary == "I looked once."


async def test_a_mistake_is_an_answer_that_the_model_reads(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("read_file", path="nowhere.txt")], [say("It is not there.")])
    result = await bench.run(model=model)
    assert result.success
    assert "File not found: nowhere.txt" in result.errors[0]


async def test_a_run_may_be_given_fewer_tools(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("bash", command="id")], [say("I could not.")])
    result = await bench.run(model=model, tools=["read_*", "glob"])
    assert "there is no tool 'bash'" in result.errors[0]
