"""`deputize show --transcript` reads as a conversation."""

from __future__ import annotations

import re
from datetime import timedelta

from deputize.shared.delegation import Step, StepStatus, Usage
from deputize.shared.events import AskedCall, ErrorSeen, Replied, StepCompleted, StepStarted, TurnStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService

WANTED = """\
━━ task
  Count the files.
  All of them.

━━ context
  ━━ ✓ succeeded

━━ turn 1  00:00:00
  I look first.
✓ $ ls  0.0 s
    a.py
    b.py
✗ read x.py  0.0 s: there is no x.py
· tools_missing: `x` is missing

━━ turn 2  00:00:00
  There are 2.
✓ $ seq 30  0.0 s
    {numbers}
… 10 more lines

━━ ✓ succeeded (completed): 2 turns, 3 tool calls, 0.0 s, 0 tokens, $0.0000
"""


def step(**fields: object) -> Step:
    base = {"id": "s", "type": "bash", "title": "$ ls", "status": StepStatus.COMPLETED, "tool_name": "bash"}
    return Step.model_validate(base | {"turn_index": 1, "timestamp": now() - timedelta(seconds=1)} | fields)


async def test_a_transcript_reads_as_a_conversation(url: str, service: FakeService) -> None:
    request = DelegationRequest(task="Count the files.\nAll of them.", context="━━ ✓ succeeded")
    id = (await service.create(request)).delegation.id
    failed = step(status=StepStatus.FAILED, title="read x.py", error="there is no x.py")
    call = AskedCall(id="c", name="bash")
    for event in (
        TurnStarted(turn=1),
        Replied(turn=1, text="I look first.\n", stop_reason="tool_use", usage=Usage(), tool_calls=[call]),
        StepStarted(step=step(status=StepStatus.RUNNING)),
        StepCompleted(step=step(result="a.py\nb.py\n")),
        StepCompleted(step=failed),
        ErrorSeen(message="`x` is missing", kind="tools_missing"),
        TurnStarted(turn=2),
        Replied(turn=2, text="There are 2.", stop_reason="end_turn", usage=Usage()),
        StepCompleted(step=step(title="$ seq 30", result="\n".join(map(str, range(1, 31))))),
    ):
        service.happen(id, event)
    service.finish(id, summary="There are 2.", turn_count=2, tool_call_count=3)
    done = await deputize("show", id, "--transcript", DEPUTIZE_URL=url)
    said = re.sub(r"\d+\.\d s", "0.0 s", re.sub(r"\d\d:\d\d:\d\d", "00:00:00", done.out))
    assert said == WANTED.format(numbers="\n    ".join(map(str, range(1, 21))))
    refused = await deputize("show", id, "--transcript", "--json", DEPUTIZE_URL=url)
    assert (refused.code, refused.out) == (2, "")
