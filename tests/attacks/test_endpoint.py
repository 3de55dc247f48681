"""Many runs whose own requests the model's endpoint refuses: the runs of others get through nevertheless."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Fault, Turn, refuse, text
from tests.runs.bench import Bench, bench_at
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


async def begun(bench: Bench, task: str, session: str | None) -> tuple[str, asyncio.Task[Any]]:
    # Each begins as no other one does: none waits for another to write a shared prefix.
    request = DelegationRequest(task=task, system_prompt=f"{task}: {'x' * 100}", session_id=session)
    id = await bench.accept(request)
    return id, asyncio.create_task(carry_out(bench.services, id))


async def types(bench: Bench, id: str) -> list[str]:
    return [each.event.type for each in await bench.events(id)]


async def waits_of(bench: Bench, id: str) -> list[float]:
    return [each.event.seconds for each in await bench.events(id) if each.event.type == "resumed_waiting"]


REFUSALS = [(refuse(500), 20), (refuse(529), 20), (refuse(429, retry_after="40"), 10)]
CASES = [
    *((fault, number, "of-the-attacker") for fault, number in REFUSALS),
    pytest.param(*REFUSALS[0], None, marks=pytest.mark.thorough),
    pytest.param(*REFUSALS[2], None, marks=pytest.mark.thorough),
]


@pytest.mark.costly
@pytest.mark.parametrize(("fault", "number", "session"), CASES)
async def test_many_refused_runs_of_one_caller_do_not_stop_the_others(
    redis_url: str, tmp_path: Path, fault: Fault, number: int, session: str | None
) -> None:
    async with FakeModel() as model, bench_at(model, redis_url, tmp_path / "home") as bench:
        model.script("good", [Turn([text("done")])])
        model.script("bad", [Turn([text("never")], faults=[fault] * 1000)])
        bad = [await begun(bench, f"bad {each}", session) for each in range(number)]

        async def waits(id: str) -> bool:
            return bool({"waiting", "model_retried"} & {*await types(bench, id)})

        for id, _ in bad:
            await until(partial(waits, id))
        good = [await begun(bench, f"good {each}", None) for each in range(10)]
        await asyncio.wait_for(asyncio.gather(*(run for _, run in good)), 35 if session else 70)
        assert {(await bench.result(id)).termination_reason for id, _ in good} == {"completed"}
        if session:
            # Not for as long as those of the attacker; on a busy machine a turn of a request takes a moment.
            assert [seconds for id, _ in good for seconds in await waits_of(bench, id) if seconds > 10] == []
        for id, _ in bad:
            await bench.store.cancel(id)
        await asyncio.gather(*(run for _, run in bad))
