"""Progress: every step at once, and never a long silence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from deputize.orchestrator.mcp.call import PROGRESS_SECONDS, Call, Report, Wait
from deputize.shared.delegation import Step, StepStatus, TerminationReason
from deputize.shared.events import Heartbeat, ModelRetried, RunRetried, RunStarted, StepCompleted, StepStarted
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import WAYS, Heard, connected
from tests.waiting import until

CLIENTS_GIVE_UP_SECONDS = 10


def step(title: str, status: StepStatus) -> Step:
    return Step(id="s", type="bash", title=title, status=status, tool_name="bash", turn_index=2, timestamp=now())


@pytest.mark.parametrize("way", WAYS)
async def test_every_step_is_reported(way: str, url: str, service: FakeService) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with connected(way, url) as client:
        calling = asyncio.create_task(client.call_tool("delegate", {"task": "x"}, progress_callback=hear))
        await until(lambda: service.following)
        (id,) = service.runs
        service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=Limits()))
        again = RunRetried(reason=TerminationReason.ERROR, error="e", retry=1, of=2, delay_seconds=1)
        service.happen(id, StepStarted(step=step("$ make", StepStatus.RUNNING)))
        service.happen(id, StepCompleted(step=step("$ make", StepStatus.COMPLETED)))
        service.happen(id, again)
        service.happen(id, ModelRetried(turn=3, error="overloaded", delay_seconds=4))
        service.happen(id, StepCompleted(step=step("$ cat \x1b]0;x\x07", StepStatus.FAILED)))
        await until(lambda: len(heard) == 5)
        service.finish(id)
        await calling
    assert [(number, re.sub(r"  \d\.\d s", "", line or "")) for number, line in heard] == [
        (1, "running on w with m"),
        (2, "turn 2  ✓ $ make"),
        (3, "done again from the start in 1.0 s (retry 1 of 2), after error: e"),
        (4, "turn 3  the model is asked again in 4.0 s: overloaded"),
        (5, r"turn 2  ✗ $ cat \x1b]0;x\x07"),
    ]


async def ended(service: FakeService, ids: Sequence[str], report: Report) -> None:
    """Waits for the end of these delegations with a client that cannot ask."""

    async def record(*_: Any, **__: Any) -> None:
        pass

    using: Any = service
    call = Call(using, report, record, waiting=nullcontext, silence=0.01)
    await Wait(using, ids, call, returns=False).end()


async def test_where_nothing_happens_its_state_is_repeated(service: FakeService) -> None:
    heard = Heard()
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    waiting = asyncio.create_task(ended(service, [id], heard))
    await until(lambda: heard.count("queued") > 1)
    service.happen(id, Heartbeat(turn=2, tool_calls=3, elapsed_ms=61_000))
    await until(lambda: any((line or "").endswith("turn 2, 1 min 01 s, –") for line in heard))
    service.finish(id)
    await waiting
    assert PROGRESS_SECONDS < CLIENTS_GIVE_UP_SECONDS


async def test_of_several_each_report_names_its_delegation(service: FakeService) -> None:
    heard = Heard()
    ids = [(await service.create(DelegationRequest(task=task))).delegation.id for task in "ab"]
    waiting = asyncio.create_task(ended(service, ids, heard))
    await until(lambda: service.following == 2)
    service.happen(ids[1], StepCompleted(step=step("$ make", StepStatus.COMPLETED)))
    await until(lambda: any((line or "").startswith(f"{ids[1]}: turn 2  ✓ $ make") for line in heard))
    service.finish(ids[0])
    await until(lambda: "1/2 finished, 1 running, $0.0000" in heard)
    service.finish(ids[1])
    await waiting
