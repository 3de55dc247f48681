"""What a person at a terminal sees of many delegations at once, and lines that are longer than it is wide."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.live import EventLines, Lines
from deputize.orchestrator.cli.output import wrapped
from deputize.orchestrator.run_states import RunStates
from deputize.shared.delegation import Progress, Status, Step, StepStatus, TerminationReason, ToolAgentResult, Usage
from deputize.shared.errors import Unavailable
from deputize.shared.events import (
    AnyEvent,
    Envelope,
    ErrorSeen,
    Heartbeat,
    ModelRetried,
    Replied,
    RunFinished,
    RunStarted,
    StepCompleted,
    StepStarted,
    StepUpdated,
    Waiting,
)
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.cli.asked import FIRST, SECOND, asked
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.terminal import Terminal, on_terminal
from tests.waiting import until

LINES = 20


async def accepted(service: FakeService, number: int) -> list[str]:
    return [(await service.create(DelegationRequest(task=f"task {n:02}"))).delegation.id for n in range(number)]


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
    return [line for line in terminal.screen() if re.search(r"task \d\d +….{6} +running", line)]


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
        assert sum(f" …{id[-6:]}  " in line for line in history if line.startswith(("✓", "✗"))) == 1
    assert sum(line.endswith("TURN       TIME     COST") for line in history) == 0
    assert any(line.startswith("60/60 finished, 2 failed, $") for line in history)


def asking(number: int, status: StepStatus) -> Step:
    fields = {"title": f"ask {number}", "tool_name": "call_subagent", "turn_index": 1, "timestamp": now()}
    return Step.model_validate({"id": f"stp_{number}", "type": "delegate", "status": status, **fields})


def delegate(service: FakeService, id: str, number: int, child: str, step: str) -> None:
    """A call of a subagent begins, which executes a step."""
    call = asking(number, StepStatus.RUNNING)
    service.happen(id, StepStarted(step=call))
    service.happen(id, StepUpdated(step_id=call.id, metadata={"delegationId": child, "step": step}))


async def test_children_are_shown_below_their_parent_while_they_run(url: str, service: FakeService) -> None:
    ids = await accepted(service, 2)
    async with on_terminal("watch", *ids, lines=LINES, columns=120, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 2, 60)
        for id in ids:
            start(service, id)
        delegate(service, ids[0], 1, "dlg_childone", "read a.py")
        delegate(service, ids[0], 2, "dlg_childtwo", "grep \x1b[2Jb")
        await until(lambda: "grep" in "".join(terminal.screen()), 60)
        shown = [re.split("  +", line.strip())[:4] for line in terminal.screen() if "task 0" in line or "↳" in line]
        assert [row[0] for row in shown] == ["task 00", "↳ ask 1", "↳ ask 2", "task 01"]
        assert [row[1:3] for row in shown[1:3]] == [["…ildone", "read a.py"], ["…ildtwo", "grep \\x1b[2Jb"]]
        assert last(terminal).startswith("0/2 finished, 2 running")
        service.happen(ids[0], StepCompleted(step=asking(1, StepStatus.COMPLETED)))
        await until(lambda: "↳ ask 1" not in "".join(terminal.screen()), 60)
        for id in ids:
            service.finish(id)
        await terminal.ended()


async def test_a_child_that_is_followed_itself_has_one_row(url: str, service: FakeService) -> None:
    parent, child = await accepted(service, 2)
    async with on_terminal("watch", parent, child, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 2, 60)
        start(service, parent)
        delegate(service, parent, 1, child, "read a.py")
        delegate(service, parent, 2, "dlg_other", "read b.py")
        await until(lambda: "↳ ask 2" in "".join(terminal.screen()), 60)
        assert "↳ ask 1" not in "".join(terminal.screen())
        for id in (parent, child):
            service.finish(id)
        await terminal.ended()


async def test_the_only_run_has_its_children_below_its_line(url: str, service: FakeService) -> None:
    (id,) = await accepted(service, 1)
    async with on_terminal("watch", id, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 1, 60)
        start(service, id)
        delegate(service, id, 1, "dlg_one", "read a.py")
        await until(lambda: "  ↳ ask 1: read a.py" in terminal.screen(), 60)
        service.finish(id)
        await terminal.ended()


def totals(*ends: dict[str, Any]) -> str:
    """The totals of delegations that ended so."""
    states = RunStates()
    for number, end in enumerate(ends):
        result = ToolAgentResult(delegation_id=str(number), **end)
        finished = RunFinished(result=result)
        states.take(Envelope(delegation_id=str(number), seq=1, at=now(), attempt=1, event=finished))
    return states.totals()


async def test_a_clock_stops_with_the_connection(service: FakeService, capsys: pytest.CaptureFixture[str]) -> None:
    ids = await accepted(service, 2)
    said: list[str] = []

    def states() -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return [each for each in said if each.startswith("… ")]

    with Lines(quiet_seconds=0.02) as shown, Lines(quiet_seconds=0.02) as other:
        for display, id in ((shown, ids[0]), (other, ids[1])):
            service.begin(id)
            display.add(service.runs[id])
        shown.connection(Unavailable("no service answers"))
        states()
        said.clear()
        (run,), (running,) = ([*each._states.open.values()] for each in (shown, other))
        elapsed, before = run.elapsed(), running.elapsed()
        await until(lambda: len(states()) > 3)
        assert (run.elapsed(), running.elapsed() > before) == (elapsed, True)
        said.clear()
        other.connection(Unavailable("no service answers"))
        shown.connection(None)
        await until(lambda: len(states()) > 3)
        assert run.elapsed() > elapsed
    assert {"no service answers; trying again …", "connected again"} <= {*said}


@pytest.mark.parametrize(
    ("costs", "said"),
    [([0.01, 0.02], "$0.0300"), ([None, 0.02], "at least $0.0200"), ([None, None], "cost unknown")],
)
def test_totals_claim_no_cost_that_is_not_known(costs: list[float | None], said: str) -> None:
    ends = [{"status": Status.SUCCEEDED, "termination_reason": TerminationReason.COMPLETED}] * 2
    found = totals(*(end | {"usage": Usage(cost_usd=cost)} for end, cost in zip(ends, costs, strict=True)))
    assert found == f"2/2 finished, {said}"


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
    ends = dict.fromkeys(range(2), ("✗", "failed (error)", "$0.0100"))
    ends |= dict.fromkeys(range(25, 30), ("✓", "succeeded (completed)", "$0.0000"))
    wanted: set[str] = set()
    for n, id in enumerate(service.runs):
        sign, reason, cost = ends.get(n, ("✓", "succeeded (completed)", "$0.0100"))
        wanted.add(f"{sign} line {n + 1}  …{id[-6:]}  {reason}  0.0 s  {cost}  did task {n:02}")
    assert set(said) == wanted
    assert len(said) == 30
    assert not any(line.startswith("TASK ") for line in terminal.history())


def test_what_was_cancelled_has_not_failed() -> None:
    end = {"status": Status.CANCELLED, "termination_reason": TerminationReason.CANCELLED}
    assert totals(end, end, end) == "3/3 finished, 3 cancelled, $0.0000"


async def test_a_second_ctrl_c_counts_what_it_cancels(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("t.txt").write_text("".join(f"task {n:02}\n" for n in range(12)))
    async with on_terminal("batch", str(tmp_path / "t.txt"), columns=80, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 12, 60)
        terminal.send(signal.SIGINT)
        await until(lambda: "Ctrl-C again" in terminal.drawn)
        terminal.send(signal.SIGINT)
        assert await terminal.ended() == 130
    assert "cancelled: 12 delegations" in terminal.history()
    said = " ".join(" ".join(terminal.history()).split())
    (batch,) = re.findall(r"12 delegations accepted as batch (b\w+); `deputize cancel --label batch:\1` stops it", said)
    group = f"--label batch:{batch}"
    again = f"Come back with `deputize watch {group}`, or stop with `deputize cancel {group}`."
    assert f"detached; 12 delegations go on. {again}" in said
    assert terminal.last_line() == "12/12 finished, 12 cancelled, $0.0000"


async def test_what_waits_comes_first_and_shows_its_question(url: str, service: FakeService) -> None:
    ids = await accepted(service, 30)
    async with on_terminal("watch", *ids, columns=80, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 30, 60)
        finish_the_first(service, ids, 0)
        event = asked(FIRST, ids[-1])
        service.happen(ids[-1], event)  # answered elsewhere already, so that there is no question
        service.happen(ids[-1], Waiting(why="permission", detail=f"$ git push ({FIRST})"))
        await until(lambda: "1 waiting" in last(terminal))
        header, first, *_ = [line for line in terminal.screen() if re.match("TASK|task", line)]
        assert header.startswith("TASK ")
        assert first.startswith("task 29 ")
        assert "asks: $ git" in first
        assert not any("permission" in line for line in terminal.history())


async def test_a_key_that_echoes_and_ctrl_c_leave_no_trace(url: str, service: FakeService) -> None:
    ids = await accepted(service, 3)
    async with on_terminal("watch", *ids, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 3, 60)
        finish_the_first(service, ids, 0)
        await until(lambda: "3 running" in last(terminal), 60)
        terminal.take(b"^C")  # as the terminal's driver echoes it
        service.happen(ids[0], Heartbeat(turn=7, tool_calls=1, elapsed_ms=61_000, cost_usd=0.5))
        await until(lambda: any("1 min 0" in line for line in terminal.screen()), 60)
        assert [line.startswith("TASK ") for line in terminal.screen()].count(True) == 1
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


async def test_after_ctrl_z_and_fg_the_table_is_drawn_below(url: str, service: FakeService) -> None:
    ids = await accepted(service, 2)
    async with on_terminal("watch", *ids, lines=LINES, DEPUTIZE_URL=url) as terminal:
        await until(lambda: "2 queued" in terminal.drawn, 60)
        terminal.take(b"[1]+  Stopped\r\n$ fg\r\n")  # what a shell prints meanwhile
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
        assert re.fullmatch(r"running: turn 4, grep, 1 min 0\d s, \$0\.1250", row)
        terminal.send(signal.SIGINT)
        await terminal.ended()


async def test_a_resized_or_tiny_terminal_still_shows_something(url: str, service: FakeService) -> None:
    ids = await accepted(service, 5)
    async with on_terminal("watch", *ids, lines=4, columns=20, DEPUTIZE_URL=url) as terminal:
        await until(lambda: "queued" in terminal.drawn, 60)
        for id in ids:
            service.finish(id)
        assert await asyncio.wait_for(terminal.ended(), 30) == 0


async def test_the_list_fits_a_narrow_terminal_and_has_time_and_cost(url: str, service: FakeService) -> None:
    (id,) = await accepted(service, 1)
    task = "Summarise all of the files of this folder in one sentence each"
    long = (await service.create(DelegationRequest(task=task))).delegation.id
    service.finish(long, usage=Usage(cost_usd=0.25), execution_time_ms=61_000)
    async with on_terminal("list", columns=80, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    first, second = terminal.history()
    assert re.fullmatch(
        rf"✓ Summarise all of the… +…{long[-6:]}  succeeded  –  1 min 01 s  \$0\.2500 +\d+ s ago", first
    )
    assert re.fullmatch(rf"  task 00 +…{id[-6:]}  queued +– +0\.0 s +– +\d+ s ago", second)
    assert len(first) == len(second) <= 80


ID = "dlg_01m87ws0000000000000h3yk00"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("the command ended with exit code 1", ["the command ended", "  with exit code 1"]),
        ("  and indented ones as well", ["  and indented ones", "  as well"]),
        (f"detached; {ID} goes on", ["detached;", f"  {ID}", "  goes on"]),
        (f"come back with `deputize watch {ID}`.", ["come back with", f"  `deputize watch {ID}`."]),
        (f"  to take over: deputize apply {ID}", ["  to take over:", f"  deputize apply {ID}"]),
        (f"to take over: A=/x /v/deputize apply {ID}", ["to take over:", f"  A=/x /v/deputize apply {ID}"]),
    ],
)  # fmt: skip
def test_words_ids_and_commands_stay_whole(line: str, parts: list[str]) -> None:
    assert wrapped(line, 20, hang=2) == parts


@pytest.mark.parametrize("width", range(4, 45))
def test_a_hard_limit_holds_for_every_word_and_loses_nothing(width: int) -> None:
    line = f"run `deputize show {ID}` in   /a/very/long/path/without/any/blank or not"
    parts = wrapped(line, width, hang=2, hard=True)
    assert max(map(len, parts)) <= width
    assert "".join("".join(parts).split()) == "".join(line.split())


def test_an_error_of_the_endpoint_is_printed_once_and_then_counted() -> None:
    lines = EventLines(stream=False)
    down = "HTTP 529 from http://model: overloaded."

    def printed(event: AnyEvent, seq: int = 1) -> list[str]:
        return lines.of(Envelope(delegation_id="dlg_1", seq=seq, at=now(), attempt=1, event=event))

    def retried(error: str) -> list[str]:
        return printed(ModelRetried(turn=1, error=error, delay_seconds=2))

    assert retried(down) == [f"turn 1  the model is asked again in 2.0 s: {down}"]
    assert printed(Waiting(why="rate", detail=down)) == ["waits for the model's endpoint"]
    assert retried(down) == ["turn 1  the model is asked again in 2.0 s: the same error, 2 times so far"]
    assert retried("HTTP 500") == ["turn 1  the model is asked again in 2.0 s: HTTP 500"]
    assert printed(Waiting(why="rate", detail=down)) == [f"waits for the model's endpoint: {down}"]
    ended = f"its time ended while it waited for the model's endpoint: {down}"
    assert printed(ErrorSeen(message=ended, kind="rate")) == [ended]
    printed(Replied(turn=1, stop_reason="end_turn", usage=Usage()))
    assert retried("HTTP 500") == ["turn 1  the model is asked again in 2.0 s: HTTP 500"]


@pytest.mark.parametrize("no_color", ["", "1"], ids=["colours", "plain"])
async def test_a_result_begins_with_its_task_and_its_summary_is_broken_between_words(
    url: str, service: FakeService, no_color: str
) -> None:
    (id,) = await accepted(service, 1)
    summary = "The discount begins at one hundred now.\n  - one comparison of the module was changed here\n" + "x" * 50
    service.finish(id, summary=summary, verification={"verdict": "verified"})
    async with on_terminal("show", id, columns=44, DEPUTIZE_URL=url, NO_COLOR=no_color) as terminal:
        assert await terminal.ended() == 0
    shown = terminal.history()
    assert shown[:2] == ["task       task 00", f"id         {id}"]
    assert shown[shown.index("") + 1 :] == [
        *("The discount begins at one hundred now.", "", " • one comparison of the module was changed", "   here"),
        *(f"   {'x' * 41}", f"   {'x' * 9}"),
    ]
    assert ("verdict    \x1b[32mverified\x1b[0m" in terminal.drawn) is not bool(no_color)
    assert any(line == "verdict    verified" for line in shown)


async def test_what_waits_is_a_table_and_a_long_call_is_whole(url: str, service: FakeService) -> None:
    short, long = await accepted(service, 2)
    command = "$ rm -rf build && git push --force origin main" + " && echo word" * 5
    service.ask(short, asked(FIRST, short))
    service.ask(long, asked(SECOND, long, title=command))
    async with on_terminal("permissions", columns=80, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    head, one, *more = terminal.history()
    assert head.split() == ["id", "expires", "delegation", "call"]
    assert one == f'0000aaaa    0.0 s  …{short[-6:]}     $ git push in "task 00"'
    assert {line.index(word) for line, word in ((head, "call"), (one, "$ git"), (more[0], "$ rm"))} == {31}
    other = " ".join(" ".join(more).split())
    assert other == f'0000bbbb 0.0 s …{long[-6:]} {command} in "task 01"'


async def test_only_a_diff_has_the_colours_of_one(url: str, service: FakeService) -> None:
    (id,) = await accepted(service, 1)
    base: dict[str, Any] = {"status": StepStatus.COMPLETED, "turn_index": 1, "timestamp": now()}
    listed = Step(id="a", type="bash", title="$ ls -l", tool_name="bash", result="-rw-r--r-- x.py\n- y", **base)
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new"
    edited = Step(id="b", type="edit", title="edit x.py", tool_name="edit_file", result="Edited.", diff=diff, **base)
    for step in (listed, edited):
        service.happen(id, StepCompleted(step=step))
    async with on_terminal("show", id, "--transcript", DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    shown = terminal.history()
    assert [line for line in shown if line.startswith("    ")] == ["    -rw-r--r-- x.py", "    - y", "    Edited."]
    assert [line for line in shown if line.startswith("  | ")] == [f"  | {line}" for line in diff.splitlines()]
    assert "  | \x1b[31m-old\x1b[0m" in terminal.drawn
    assert "\x1b[31m- " not in terminal.drawn
    assert "\x1b[31m-rw" not in terminal.drawn


async def test_a_list_is_no_wider_than_its_titles(url: str, service: FakeService) -> None:
    (id,) = await accepted(service, 1)
    async with on_terminal("list", columns=200, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    assert terminal.history()[0].startswith(f"  task 00  …{id[-6:]}  queued ")
