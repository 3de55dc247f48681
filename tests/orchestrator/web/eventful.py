"""Delegations in which much happens: turns, steps, waits, a child, checks, a result; and a family of several."""

from __future__ import annotations

from typing import Any

from deputize.shared.delegation import Artifact, Step, StepStatus, TerminationReason, Usage
from deputize.shared.events import (
    AskedCall,
    CheckCompleted,
    ModelRetried,
    Replied,
    ResumedWaiting,
    RunStarted,
    StepCompleted,
    StepStarted,
    TurnStarted,
    Waiting,
)
from deputize.shared.facts import Check, FileChange, StepChange, SummaryClaim, Verification
from deputize.shared.instructions import InstructionFile
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.web.browsing import delegated

HOSTILE = "</script><script>alert(1)</script></style></textarea><img src=x onerror=alert(2)>"
PATCH = "diff --git a/pricing.py b/pricing.py\n--- a/pricing.py\n+++ b/pricing.py\n@@ -1 +1 @@\n-a > b\n+a >= b\n"
USAGE = Usage(input_tokens=1200, output_tokens=40, cache_read_tokens=8000, cost_usd=0.0125, cache_saved_usd=0.02)


def step(id: str, turn: int, status: StepStatus = StepStatus.RUNNING, **fields: Any) -> Step:
    given = {"type": "bash", "title": f"$ {id}", "tool_name": "bash", "timestamp": now()} | fields
    return Step(id=id, status=status, turn_index=turn, **given)


def turn(service: FakeService, id: str, number: int, text: str, *calls: str) -> None:
    service.happen(id, TurnStarted(turn=number))
    asked = [AskedCall(id=each, name="bash") for each in calls]
    reply = Replied(turn=number, text=text, stop_reason="tool_use", usage=USAGE, tool_calls=asked)
    service.happen(id, reply)


async def at_work(service: FakeService, task: str = "mend the price") -> tuple[str, str]:
    """A delegation with a finished turn, one that runs, and a child of that; the ids of both."""
    id = await delegated(service, task, labels={"team": "shop"})
    service.happen(id, RunStarted(worker="w-1", model="m", tools=["bash"], limits=Limits(max_turns=3)))
    turn(service, id, 1, f"I **look** first. {HOSTILE}", "edit")
    service.happen(id, ModelRetried(turn=1, error="overloaded", delay_seconds=0.5))
    service.happen(id, StepStarted(step=step("edit", 1)))
    changes = [StepChange(path="pricing.py", change="modified", added=1, removed=1)]
    edited = step(
        "edit",
        1,
        StepStatus.COMPLETED,
        title="edit pricing.py",
        tool_name="edit_file",
        arguments={"path": HOSTILE},
        result=f"Changed 1 place. {HOSTILE}",
        changes=changes,
        diff=PATCH,
    )
    service.happen(id, StepCompleted(step=edited))
    turn(service, id, 2, "Now the rest.", "helper", "test")
    service.happen(id, Waiting(why="rate", detail="HTTP 529"))
    service.happen(id, ResumedWaiting(seconds=0.1))
    service.happen(
        id, StepStarted(step=step("helper", 2, type="delegate", tool_name="call_subagent", title="Ask a helper"))
    )
    request = DelegationRequest(task=f"help {HOSTILE}", parent_id=id, idempotency_key=f"{id}:2:helper")
    child = (await service.create(request)).delegation.id
    turn(service, child, 1, "I help.", "look")
    service.happen(child, StepStarted(step=step("look", 1)))
    return id, child


def ended(service: FakeService, id: str, child: str) -> None:
    service.finish(child, summary="Helped.", usage=USAGE)
    for name, error in (("helper", None), ("test", "exit code 1")):
        status = StepStatus.FAILED if error else StepStatus.COMPLETED
        service.happen(
            id, StepCompleted(step=step(name, 2, status, error=error, type="delegate" if not error else "bash"))
        )
    service.happen(
        id, CheckCompleted(check=0, on="candidate", ok=False, exit_code=1, output_tail="FAILED test_pricing.py")
    )
    service.patches[id] = PATCH
    service.made[id, "report.md"] = ["# Report"]
    check = Check(
        item={"kind": "command", "run": "make test"},
        outcome="refuted",
        why="1 test fails",
        candidate="red",
        exit_code=1,
        output_tail="FAILED test_pricing.py",
        tests={"failed": ["test_pricing.py::test_100"]},
    )
    claims = [SummaryClaim(claim="The tests pass", evidence="test", verdict="refuted")]
    service.finish(
        id,
        TerminationReason.MAX_TURNS,
        summary=f"# Mended\n\n- the **price**\n- [a link](javascript:alert(3)) {HOSTILE}\n",
        file_changes=[FileChange(path="pricing.py", change="modified", added_lines=1, removed_lines=1)],
        verification=Verification(verdict="refuted", checks=[check], claims=claims),
        artifacts=[Artifact(name="report.md", version=1, size=8)],
        instructions=[InstructionFile(path=f"AGENTS.md {HOSTILE}", sha256="ab" * 32)],
        turn_count=2,
        tool_call_count=3,
        usage=USAGE,
        errors=["bash: exit code 1"],
    )


async def family(service: FakeService) -> tuple[str, str]:
    """A parent that runs with a child that runs and one that has ended, and two others; parent and running child."""
    service.fleet = [worker_card(running=2, concurrency=8)]
    parent = await delegated(service, "review it all\nin parts", labels={"team": "docs"}, session_id="s-1")
    child = await delegated(service, "review a", parent_id=parent)
    ended = await delegated(service, "review b", parent_id=parent)
    service.finish(ended, execution_time_ms=61_000, usage=Usage(input_tokens=41_000, cost_usd=0.5))
    failed = await delegated(service, "an old one")
    refuted = Verification(verdict="refuted")
    service.finish(failed, TerminationReason.ERROR, summary="It is broken.", verification=refuted, denied_call_count=1)
    await service.create(DelegationRequest(task="later"))
    return parent, child
