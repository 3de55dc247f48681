"""A run whose record takes more than the record's disk has left ends, and its disk is not filled by its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.worker.services import record_room
from tests.runs.bench import Bench, call, say, script

TEXT = "x" * 100_000
PART = call("write_file", path="a.txt", content=TEXT)


async def with_room(
    bench: Bench, folder: Path, room: int | None, *turns: Sequence[Any], small: int = 0, **more: Any
) -> ToolAgentResult:
    bench.services.record_room = lambda: room
    bench.services.small_record = small
    return await bench.run(model=script(folder, *turns, [say("done")], **more), approval_mode="auto", tools=["*"])


@pytest.mark.parametrize("room", [None, 1_000_000])
async def test_a_run_whose_record_has_room_goes_on(bench: Bench, tmp_path: Path, room: int | None) -> None:
    result = await with_room(bench, tmp_path, room, [PART])
    assert (result.termination_reason, result.errors) == ("completed", [])


async def test_a_small_record_ends_no_run_on_a_disk_that_others_have_filled(bench: Bench, tmp_path: Path) -> None:
    result = await with_room(bench, tmp_path, 0, [PART], [PART], small=1_000_000)
    assert (result.termination_reason, result.errors) == ("completed", [])


async def test_a_reply_that_has_no_room_is_not_stored_and_the_run_reports(bench: Bench, tmp_path: Path) -> None:
    result = await with_room(bench, tmp_path, 90_000, [PART], summary="What was done.")
    assert (result.termination_reason, result.summary, result.tool_call_count) == ("budget", "What was done.", 0)
    stored = await bench.store.conversation(result.delegation_id)
    assert TEXT not in "".join(stored[0])
    assert "the disk of all records takes only 90,000 more" in "".join(stored[0])
    assert "the disk of all records takes only 90,000 more" in result.errors[0]


async def test_calls_of_one_reply_end_where_their_results_have_no_more_room(bench: Bench, tmp_path: Path) -> None:
    """A reply is short, and what its calls print is long."""
    prints = [call("bash", command="head -c 20000 /dev/urandom | base64 -w 0")] * 8
    result = await with_room(bench, tmp_path, 60_000, prints)
    steps = await bench.steps(result.delegation_id)
    done = [step for step in steps if not step.error]
    refused = [step for step in steps if "not executed: the record of this run takes" in (step.error or "")]
    assert result.termination_reason == "budget"
    assert (len(steps), bool(done), bool(refused)) == (8, True, True)


async def test_patch_and_artifacts_leave_most_of_the_room_to_others(bench: Bench, tmp_path: Path) -> None:
    made = [call("create_artifact", name="long", content="z" * 30_000), call("create_artifact", name="a", content="z")]
    result = await with_room(
        bench, tmp_path, 160_000, [call("bash", command="seq 9000 > long.txt; echo 1 > short.txt")], made
    )
    assert (result.termination_reason, sorted(result.files_modified)) == ("completed", ["long.txt", "short.txt"])
    assert len(await bench.store.patch(result.delegation_id)) < 20_000
    assert result.truncated
    assert await bench.store.artifact(result.delegation_id, "a") == "z"


def test_only_a_stack_knows_the_disk_of_its_record(bench: Bench, tmp_path: Path) -> None:
    (bench.settings.home / "redis").mkdir(parents=True, exist_ok=True)
    known = [
        record_room(bench.settings.model_copy(update=each))
        for each in ({}, {"local": False}, {"home": tmp_path / "missing"})
    ]
    assert [each is not None and each > 0 for each in known] == [True, False, False]
