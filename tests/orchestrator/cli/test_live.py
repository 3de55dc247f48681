"""What a person at a terminal sees of many delegations at once."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from deputize.orchestrator.cli.rows import Totals
from deputize.shared.delegation import Progress, Status, TerminationReason, ToolAgentResult, Usage
from deputize.shared.events import Heartbeat, RunStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.terminal import Terminal, on_terminal
from tests.waiting import until

LINES = 20


async def accepted(service: FakeService, number: int) -> list[str]:
    return [(await service.accept(DelegationRequest(task=f"task {n:02}"))).delegation.id for n in range(number)]


def start(service: FakeService, id: str) -> None:
    limits = service.runs[id].effective_limits
    service.happen(id, RunStarted(worker="w", model="m", tools=[], limits=limits))


def finish_the_first(service: FakeService, ids: list[str], number: int) -> None:
    """The first are over, two of them badly; the others run."""
    for id in ids:
        start(service, id)
    for n, id in enumerate(ids[:number]):
        reason = TerminationReason.ERROR if n < 2 else TerminationReason.COMPLETED
        service.finish(id, reason, summary=f"did task {n:02}", usage=Usage(cost_usd=0.01))


def last(terminal: Terminal) -> str:
    return (terminal.screen() or [""])[-1]


def running(terminal: Terminal) -> list[str]:
    return [line for line in terminal.screen() if re.search(r"task \d\d +running", line)]


async def test_what_runs_is_in_sight_and_what_finished_scrolls_away_with_its_id(url: str, service: FakeService) -> None:
    ids = await accepted(service, 60)
    async with on_terminal("watch", *ids, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 60, 60)
        finish_the_first(service, ids, 25)
        await until(lambda: "25/60 finished" in last(terminal), 60)
        await until(lambda: "35 running" in last(terminal), 60)
        await until(lambda: len(running(terminal)) == LINES - 6)
        assert last(terminal) == "25/60 finished, 2 failed, 35 running, $0.2500, 21 more not shown"
        for id in ids[25:]:
            service.finish(id, summary="did it")
        await terminal.ended()
    history = terminal.history()
    for id in ids:
        assert sum(f" {id}  " in line for line in history) == 1
    assert sum(line.endswith("TURN       TIME     COST") for line in history) == 0
    assert any(line.startswith("60/60 finished, 2 failed, $") for line in history)


@pytest.mark.parametrize(
    ("costs", "said"),
    [([0.01, 0.02], "$0.0300"), ([None, 0.02], "at least $0.0200"), ([None, None], "cost unknown")],
)
def test_totals_claim_no_cost_that_is_not_known(costs: list[float | None], said: str) -> None:
    totals = Totals()
    for number, cost in enumerate(costs):
        totals.new(str(number))
        how = {"status": Status.SUCCEEDED, "termination_reason": TerminationReason.COMPLETED}
        totals.finished(ToolAgentResult(delegation_id="d", **how, usage=Usage(cost_usd=cost)))
    assert totals.line([]) == f"2/2 finished, {said}"


async def test_a_batch_on_a_terminal_shows_every_result_once_and_whole(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps({"task": f"task {n:02}"}) + "\n" for n in range(30)))
    async with on_terminal("batch", str(file), lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 30, 60)
        finish_the_first(service, [*service.runs], 25)
        await until(lambda: "25/30 finished" in last(terminal), 60)
        await until(lambda: len(running(terminal)) == 5, 60)
        for id in [*service.runs][25:]:
            service.finish(id, summary=f"did {service.runs[id].request.task}")
        assert await terminal.ended() == 1
    said = [line for line in terminal.history() if "did task" in line]
    wanted = {f"{'✗' if n < 2 else '✓'} line {n + 1}  {id}  did task {n:02}" for n, id in enumerate(service.runs)}
    assert set(said) == wanted
    assert len(said) == 30
    assert not any(line.startswith("ID ") for line in terminal.history())


async def test_a_key_that_echoes_and_ctrl_c_leave_no_trace(url: str, service: FakeService) -> None:
    ids = await accepted(service, 3)
    async with on_terminal("watch", *ids, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 3, 60)
        finish_the_first(service, ids, 0)
        await until(lambda: "3 running" in last(terminal), 60)
        terminal.take(b"^C")  # as the terminal's driver echoes it
        service.happen(ids[0], Heartbeat(turn=7, tool_calls=1, elapsed_ms=61_000, cost_usd=0.5))
        await until(lambda: any("1 min 0" in line for line in terminal.screen()), 60)
        assert [line.startswith("ID ") for line in terminal.screen()].count(True) == 1
        assert not any("^C" in line for line in terminal.screen())
        terminal.send(signal.SIGINT)
        assert await terminal.ended() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_no_signal_leaves_the_cursor_hidden(url: str, service: FakeService, number: signal.Signals) -> None:
    async with on_terminal("run", "x", lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        await until(lambda: "queued" in terminal.drawn, 60)
        terminal.send(number)
        await terminal.ended()
    assert "\x1b[?25l" not in terminal.drawn


async def test_sigterm_detaches_and_says_how_to_come_back(url: str, service: FakeService) -> None:
    async with on_terminal("run", "x", columns=200, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        terminal.send(signal.SIGTERM)
        assert await terminal.ended() == 130
    (id,) = service.runs
    assert f"deputize watch {id}" in terminal.drawn
    assert not service.runs[id].status.finished


async def test_after_ctrl_z_and_fg_the_table_is_drawn_below(url: str, service: FakeService) -> None:
    ids = await accepted(service, 2)
    async with on_terminal("watch", *ids, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: "2 queued" in terminal.drawn, 60)
        terminal.take(b"[1]+  Stopped\r\n$ fg\r\n")  # what a shell says meanwhile
        terminal.send(signal.SIGCONT)
        await until(lambda: terminal.drawn.count("2 queued") > 1, 60)
        assert "[1]+  Stopped" in terminal.screen()
        assert "$ fg" in terminal.screen()


async def test_who_joins_late_starts_from_the_record(url: str, service: FakeService) -> None:
    (id,) = await accepted(service, 1)
    progress = Progress(turn=4, tool_calls=9, last_tool="grep", elapsed_ms=61_000, cost_usd=0.125)
    began = now() - timedelta(seconds=61)
    service.runs[id] = service.runs[id].model_copy(
        update={"status": Status.RUNNING, "started_at": began, "progress": progress}
    )
    async with on_terminal("watch", lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: "1 min 0" in terminal.drawn, 60)
        (row,) = [line for line in terminal.screen() if "running" in line]
        assert row.split()[:5] == [f"…{id[-6:]}", "task", "00", "running", "grep"]
        assert "$0.1250" in row
        assert " 4 " in row
        terminal.send(signal.SIGINT)
        await terminal.ended()


async def test_a_resized_or_tiny_terminal_still_shows_something(url: str, service: FakeService) -> None:
    ids = await accepted(service, 5)
    async with on_terminal("watch", *ids, lines=4, columns=20, DEPUTIZE_URL=url) as terminal:
        await until(lambda: "queued" in terminal.drawn, 60)
        for id in ids:
            service.finish(id)
        assert await asyncio.wait_for(terminal.ended(), 30) == 0
