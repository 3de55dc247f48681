"""The worker that writes a prefix for the fleet is killed: the others wait for one lease and go on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deputize.shared.settings import Settings
from deputize.worker.fleet.gate import POLL_SECONDS, WRITE_LEASE_SECONDS
from tests.fake_model import FakeModel, PromptCache, Turn, stall, text
from tests.runs.fleet import open_fleet
from tests.system.crashing import hand_to
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

CONTEXT = "A sentence of the context that all of them get. " * 1500


async def test_a_writer_that_is_killed_delays_the_others_by_one_lease(redis_url: str, tmp_path: Path) -> None:
    async with FakeModel([Turn([text("done")])], cache=PromptCache()) as model:
        model.script("the writer", [Turn([text("done")], faults=[stall(after=0)])])
        endpoint = Settings.load(environ=model.variables).model_endpoint
        async with open_fleet(redis_url, tmp_path / "home", model_endpoint=endpoint, lease_seconds=2) as fleet:
            await fleet.start("1", "--queues", "first")
            await fleet.start("2")
            writer = await hand_to(fleet, "first", task="the writer", context=CONTEXT)
            await until(lambda: len(model.journal) == 1)
            others = [await fleet.hand_over(f"task {number}", context=CONTEXT) for number in range(3)]
            for id in others:
                await fleet.until_event(id, "waiting")
            killed = time.monotonic()
            await fleet.kill("1")
            await until(lambda: len(model.journal) > 1)
            assert time.monotonic() - killed < WRITE_LEASE_SECONDS + POLL_SECONDS + 1  # the second is the machine's
            results = [await fleet.result(id) for id in (writer, *others)]
    assert {result.termination_reason for result in results} == {"completed"}
    assert results[0].attempts == 2
    written = sorted(asked.usage["cache_creation_input_tokens"] for asked in model.journal if asked.usage)
    assert len([tokens for tokens in written if tokens > 10_000]) == 1, "only one of the others took the writer's place"
