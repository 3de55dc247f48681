"""Typed output by real workers: through a kill -9 between the call that hands it in and the end of its run."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from deputize.shared.events import StepCompleted
from tests.runs.bench import call, say, script
from tests.runs.fleet import open_fleet

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SCHEMA = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}


@pytest.mark.costly
async def test_a_worker_killed_after_the_call_leaves_the_output_to_the_next_one(redis_url: str, tmp_path: Path) -> None:
    """A check keeps the run from its end until the worker is killed."""
    shown = tmp_path / "shown"
    shown.mkdir(mode=0o755)
    model = script(tmp_path, [call("submit_result", files="many")], [call("submit_result", files=7)], [say("never")])
    asked = {"output_schema": SCHEMA, "verify": [f"until [ -e {shown}/end ]; do sleep 0.1; done"]}
    options = {"lease_seconds": 2, "shutdown_seconds": 1, "sandbox": {"show": [shown]}}
    async with open_fleet(redis_url, tmp_path / "home", **options) as fleet:
        await fleet.start("1")
        id = await fleet.hand_over(model=model, **asked)
        async with aclosing(fleet.service.follow(id)) as events:
            async for envelope in events:
                if isinstance(envelope.event, StepCompleted) and not envelope.event.step.error:
                    break
        await fleet.kill("1")
        (shown / "end").touch()
        await fleet.start("2")
        result = await fleet.result(id)
        steps = [each.event.step for each in await fleet.service.events(id) if isinstance(each.event, StepCompleted)]
    assert (result.attempts, result.termination_reason, result.turn_count) == (2, "completed", 2)
    assert (result.output, result.output_status) == ({"files": 7}, "valid")
    assert [bool(step.error) for step in steps] == [True, False]
