"""Typed output by real workers: through a kill -9 between the call that hands it in and the end of its run."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from deputize.shared.events import StepCompleted
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SCHEMA = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}
MANY = 12_000
"""Files of the workspace: at its end a run compares them, which takes longer than a kill."""


@pytest.mark.costly
async def test_a_worker_killed_after_the_call_leaves_the_output_to_the_next_one(fleet: Fleet, tmp_path: Path) -> None:
    source = tmp_path / "many"
    for number in range(MANY):
        folder = source / str(number // 500)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(str(number))
    model = script(tmp_path, [call("submit_result", files="many")], [call("submit_result", files=MANY)], [say("never")])
    await fleet.start("1")
    id = await fleet.hand_over(model=model, output_schema=SCHEMA, workspace=str(source))
    async with aclosing(fleet.service.follow(id)) as events:
        async for envelope in events:
            if isinstance(envelope.event, StepCompleted) and not envelope.event.step.error:
                break
    await fleet.kill("1")
    await fleet.start("2")
    result = await fleet.result(id)
    assert (result.attempts, result.termination_reason, result.turn_count) == (2, "completed", 2)
    assert (result.output, result.output_status) == ({"files": MANY}, "valid")
    steps = [each.event.step for each in await fleet.service.events(id) if isinstance(each.event, StepCompleted)]
    assert [bool(step.error) for step in steps] == [True, False]
