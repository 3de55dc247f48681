"""`deputize show --usage` and `--transcript`, and what other commands show of the prompt cache."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from deputize.shared.delegation import Step, StepStatus, TerminationReason, Usage
from deputize.shared.events import (
    AskedCall,
    ErrorSeen,
    Replied,
    RunRetried,
    RunStarted,
    StepCompleted,
    StepStarted,
    TurnStarted,
)
from deputize.shared.request import After, DelegationRequest
from deputize.shared.wire import now
from deputize.shared.wording import tokens
from tests.orchestrator.cli.following import called
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService
from tests.waiting import until

WRITES = Usage(input_tokens=500, cache_write_tokens=4500, output_tokens=100, cost_usd=0.5, cache_saved_usd=-0.125)
READS = Usage(input_tokens=1000, cache_read_tokens=4000, output_tokens=200, cost_usd=0.25, cache_saved_usd=0.75)


async def accepted(service: FakeService, **fields: Any) -> str:
    request = DelegationRequest.model_validate({"task": "Count the files", **fields})
    return (await service.create(request)).delegation.id


async def replied(service: FakeService, *usages: Usage, **fields: Any) -> str:
    """A delegation whose turns used this; the second one missed the cache."""
    id = await accepted(service, **fields)
    for turn, usage in enumerate(usages, 1):
        missed = "tools_changed" if turn == 2 else None
        service.happen(id, Replied(turn=turn, stop_reason="tool_use", usage=usage, cache_miss=missed))
    return id


async def rows(url: str, id: str) -> list[list[str]]:
    done = await called(url, "show", id, "--usage")
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


HEAD = ["turn", "input", "read", "written", "output", "cached", "cost", "saved", "why", "missed"]
ONE = ["1", "500", "0", "4,500", "100", "0.0%", "$0.5000", "-$0.1250"]
TWO = ["2", "1,000", "4,000", "0", "200", "80.0%", "$0.2500", "$0.7500", "tools_changed"]
BOTH = ["total", "1,500", "4,000", "4,500", "300", "40.0%", "$0.7500", "$0.6250"]


async def test_what_tries_cost_that_were_done_again_is_a_part_of_its_own(url: str, service: FakeService) -> None:
    again = RunRetried(reason=TerminationReason.TIMEOUT, error="", retry=1, of=2, delay_seconds=0)
    id = await replied(service, WRITES, READS)
    service.happen(id, again)
    service.happen(id, Replied(turn=1, stop_reason="end_turn", usage=WRITES))
    *_, retried, total = await rows(url, id)
    assert (retried, total[:2]) == (["retried", *BOTH[1:]], ["total", "2,000"])
    service.happen(id, again)
    *_, retried, total = await rows(url, id)
    assert (retried[1:], total[:2]) == (total[1:], ["total", "2,000"])


async def test_each_call_has_a_row_and_all_of_them_the_last(url: str, service: FakeService) -> None:
    id = await replied(service, WRITES, READS)
    assert await rows(url, id) == [HEAD, ONE, TWO, BOTH]
    service.finish(id, usage=WRITES + READS)
    assert (await called(url, "show", id, "--usage")).stdout.splitlines() == [
        "turn   input   read  written  output  cached     cost     saved  why missed",
        "1        500      0    4,500     100    0.0%  $0.5000  -$0.1250",
        "2      1,000  4,000        0     200   80.0%  $0.2500   $0.7500  tools_changed",
        "total  1,500  4,000    4,500     300   40.0%  $0.7500   $0.6250",
    ]


async def test_what_is_in_no_turn_has_a_row_so_that_the_total_is_that_of_the_result(
    url: str, service: FakeService
) -> None:
    id = await replied(service, WRITES)
    service.finish(id, usage=WRITES + READS)
    assert await rows(url, id) == [HEAD, ONE, ["other", *TWO[1:-1]], BOTH]


async def test_children_have_a_row_together(url: str, service: FakeService) -> None:
    parent = await replied(service, WRITES)
    for usage in (READS, READS):
        service.finish(await accepted(service, parent_id=parent), usage=usage)
    await accepted(service, parent_id=parent)
    children = ["children", "2,000", "8,000", "0", "400", "80.0%", "$0.5000", "$1.5000"]
    total = ["total", "2,500", "8,000", "4,500", "500", "53.3%", "$1.0000", "$1.3750"]
    assert await rows(url, parent) == [HEAD, ONE, children, total]
    service.finish(parent, usage=WRITES + READS + READS)
    assert await rows(url, parent) == [HEAD, ONE, children, total]


async def test_a_price_that_is_not_known_leaves_dashes(url: str, service: FakeService) -> None:
    unpriced = {"cost_usd": None, "cache_saved_usd": None}
    first, second = (usage.model_copy(update=unpriced) for usage in (WRITES, READS))
    id = await replied(service, first)
    service.finish(id, usage=first + second)
    shown = await rows(url, id)
    assert [row[6:8] for row in shown[1:]] == [["–", "–"]] * 3
    assert (await rows(url, await accepted(service))) == [
        HEAD,
        ["total", "0", "0", "0", "0", "–", "$0.0000", "$0.0000"],
    ]


async def test_programs_get_a_line_for_each_row(url: str, service: FakeService) -> None:
    id = await replied(service, WRITES, READS)
    done = await called(url, "show", id, "--usage", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"kind": "call", "usage": WRITES.to_dict(), "turn": 1, "cacheMiss": None},
        {"kind": "call", "usage": READS.to_dict(), "turn": 2, "cacheMiss": "tools_changed"},
        {"kind": "total", "usage": (WRITES + READS).to_dict()},
    ]


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        (Usage(input_tokens=1204, cost_usd=0.0031), "1,204 tokens, $0.0031"),
        (WRITES, "5,100 tokens, $0.5000"),
        (READS, "5,200 tokens (80.0% cached), $0.2500 ($0.7500 saved)"),
        (
            READS + READS.model_copy(update={"cost_usd": None, "cache_saved_usd": None}),
            "10,400 tokens (80.0% cached), –",
        ),
        (
            READS.model_copy(update={"cache_saved_usd": -0.00001}),
            "5,200 tokens (80.0% cached), $0.2500 ($0.0000 saved)",
        ),
    ],
)
def test_the_line_with_the_cost_has_what_the_cache_had_and_saved(usage: Usage, shown: str) -> None:
    assert tokens(usage) == shown


async def test_run_and_show_end_with_what_caching_saved(url: str, service: FakeService) -> None:
    async with started("run", "Count", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        service.finish(id, usage=READS)
        done = await command.done()
    assert "5,200 tokens (80.0% cached), $0.2500 ($0.7500 saved)" in done.err
    shown = (await called(url, "show", id)).stdout
    assert "outcome    ✓ succeeded (completed): 0 turns, 0 tool calls, 0.0 s, 5,200 tokens (80.0% cached), " in shown


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


async def test_a_transcript_has_the_results_that_the_run_has_read(url: str, service: FakeService) -> None:
    first, gone = [(await service.create(DelegationRequest(task=task))).delegation.id for task in ("count", "gone")]
    service.finish(first, summary="There are 12 files.\n━━ turn 7")
    id = (await service.create(DelegationRequest(task="report", after=[After(id=first), After(id=gone)]))).delegation.id
    del service.runs[gone]
    waiting = (await deputize("show", id, "--transcript", DEPUTIZE_URL=url)).out
    limits = service.runs[id].effective_limits
    service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=limits))
    done = await deputize("show", id, "--transcript", DEPUTIZE_URL=url)
    lines = ["━━ task", "  report", "", f"━━ result of {first}: count", "  There are 12 files.", "  ━━ turn 7"]
    assert (done.code, done.out.splitlines()[:6]) == (0, lines)
    assert "12 files" not in waiting
