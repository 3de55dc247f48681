"""Whole screens of the real command: steps scroll away above a row for each running delegation."""

from __future__ import annotations

import os
import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.live import Lines
from deputize.shared.delegation import Step, StepStatus, TerminationReason, Usage
from deputize.shared.events import Heartbeat, Replied, RunStarted, StepCompleted, StepStarted, StepUpdated, TextDelta
from deputize.shared.request import After, DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.cli.asked import FIRST, asked
from tests.orchestrator.command_line import PROGRAM, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.terminal import Terminal, on_terminal
from tests.waiting import until

BEGUN = ["<id>", "queued: Repair it", "running on w with claude"]
RUNNING = "running: turn 2, … read b.py, 0.0 s, $0.0100"
STEP = "turn 1  ✗ $ pytest  0.0 s: the command ended with exit code 1"
END = "✓ succeeded (completed): 2 turns, 2 tool calls, 0.0 s, 15 tokens, $0.0100"
RUN = ("run", "--no-workspace")
MORE = "  more: deputize show @last"
BY_NAME = f"{Path(PROGRAM).parent}:{os.environ['PATH']}"
"""A search path on which commands are shown by their name alone."""


def step(n: int, status: StepStatus, **fields: Any) -> Step:
    base = {"id": f"s{n}", "type": "bash", "status": status, "title": "$ pytest", "tool_name": "bash"}
    return Step(**base | {"turn_index": n, "timestamp": now() - timedelta(seconds=2)} | fields)


def begin(service: FakeService, id: str) -> None:
    limits = service.runs[id].effective_limits
    service.happen(id, RunStarted(worker="w", model="claude", tools=[], limits=limits))


def fail_a_step_and_start_another(service: FakeService, id: str) -> None:
    begin(service, id)
    service.happen(id, StepStarted(step=step(1, StepStatus.RUNNING)))
    failed = step(1, StepStatus.FAILED, error="the command ended with exit code 1", result="1 failed")
    service.happen(id, StepCompleted(step=failed))
    service.happen(id, Replied(turn=2, stop_reason="tool_use", usage=Usage(cost_usd=0.01)))
    service.happen(id, StepStarted(step=step(2, StepStatus.RUNNING, type="read", title="read b.py")))
    service.happen(id, Heartbeat(turn=2, tool_calls=1, elapsed_ms=100, cost_usd=0.01))


def plain(lines: list[str], id: str) -> list[str]:
    """Without what differs from run to run: the id, and times."""
    lines = [line.replace(id, "<id>").replace(id[-6:], "iiiiii") for line in lines]
    return [re.sub(r"\d+\.\d s\b", "0.0 s", line) for line in lines]


WRAPPED = {
    60: [
        *["turn 1  ✗ $ pytest  0.0 s: the command ended with exit code", "    1"],
        *["✓ succeeded (completed): 2 turns, 2 tool calls, 0.0 s, 15", "    tokens, $0.0100"],
    ],
    80: [STEP, END],
    200: [STEP, END],
}
"""The step and the end as they are broken for a terminal of so many columns: between words."""


async def comes(terminal: Terminal, id: str, wanted: list[str]) -> None:
    try:
        await until(lambda: plain(terminal.screen(), id) == wanted, 30)
    except AssertionError:
        assert plain(terminal.screen(), id) == wanted


@pytest.mark.parametrize("columns", WRAPPED)
@pytest.mark.parametrize("no_color", ["", "1"], ids=["colours", "plain"])
async def test_a_run_from_start_to_end(url: str, service: FakeService, columns: int, no_color: str) -> None:
    service.fleet = [worker_card()]
    async with on_terminal(
        *RUN, "Repair it", columns=columns, DEPUTIZE_URL=url, NO_COLOR=no_color, PATH=BY_NAME
    ) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        fail_a_step_and_start_another(service, id)
        lines = WRAPPED[columns]
        await comes(terminal, id, [*BEGUN, *lines[: len(lines) // 2], RUNNING])
        used = Usage(input_tokens=10, output_tokens=5, cost_usd=0.01)
        service.finish(id, summary="Done.\nAll of it.", turn_count=2, tool_call_count=2, usage=used)
        assert await terminal.ended() == 0
        await comes(terminal, id, [*BEGUN, *lines, "Done.", "All of it.", MORE])
    assert ("\x1b[36m" in terminal.drawn) is not bool(no_color)  # running is cyan
    for part in ("\x1b[31m✗\x1b[0m", "\x1b[36m$ pytest\x1b[0m", "\x1b[32m✓\x1b[0m"):
        assert (part in terminal.drawn) is not bool(no_color)
    assert not no_color or not re.search(r"\x1b\[[0-9;]*[349][0-7]m", terminal.drawn)
    assert not re.search(r"\x1b\[\?(25|1049|47)", terminal.drawn)


async def test_a_terminal_that_cannot_move_its_cursor_gets_lines(url: str, service: FakeService) -> None:
    service.fleet = [worker_card()]
    async with on_terminal(*RUN, "Repair it", columns=80, DEPUTIZE_URL=url, TERM="dumb", PATH=BY_NAME) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        fail_a_step_and_start_another(service, id)
        service.finish(id, summary="Done.")
        assert await terminal.ended() == 0
        ended = "✓ succeeded (completed): 0 turns, 0 tool calls, 0.0 s, 0 tokens, $0.0000"
        said = [*BEGUN, STEP, ended, "Done.", MORE]
        await comes(terminal, id, said)
    assert "\x1b" not in terminal.drawn


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_interrupt_leaves_the_steps_and_how_to_come_back(
    url: str, service: FakeService, number: signal.Signals
) -> None:
    service.fleet = [worker_card()]
    async with on_terminal(*RUN, "Repair it", "--wait", "600", columns=200, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        fail_a_step_and_start_another(service, id)
        await comes(terminal, id, [*BEGUN, STEP, RUNNING])
        terminal.send(number)
        assert await terminal.ended() == 130
        notes = [
            "detached; <id> goes on. Come back with `deputize watch <id>`, or stop with `deputize cancel <id>`.",
            "Ctrl-C again within 2 s cancels it.",
        ]
        said = notes if number == signal.SIGINT else notes[:1]
        await comes(terminal, id, [*BEGUN, STEP, *said, RUNNING])
    assert not service.runs[id].status.finished


@pytest.mark.parametrize("columns", [50, 200])
async def test_words_and_output_come_as_they_are_made(url: str, service: FakeService, columns: int) -> None:
    service.fleet = [worker_card()]
    async with on_terminal(*RUN, "x", "--stream", columns=columns, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        begin(service, id)
        words = "First I look at what the tests say about it, then I go\non as be"
        for at in range(0, len(words), 5):
            service.happen(id, TextDelta(turn=1, text=words[at : at + 5]))
        await until(lambda: "> on as be" in terminal.last_line())  # the row holds the line that is not finished
        said = ["> First I look at what the tests say about it, then I go"]
        if columns == 50:
            said = ["> First I look at what the tests say about it,", "> then I go"]
        assert plain(terminal.screen(), id)[:-1] == ["<id>", "queued: x", BEGUN[2], *said]
        service.happen(id, Replied(turn=1, text=words + "fore.", stop_reason="tool_use", usage=Usage()))
        service.happen(id, StepStarted(step=step(1, StepStatus.RUNNING)))
        service.happen(id, StepUpdated(step_id="s1", metadata={"output": "\x1b[31mtest_a\x1b[0m ok\ntest"}))
        await until(lambda: "| test" in terminal.last_line())
        service.happen(id, StepUpdated(step_id="s1", metadata={"output": "\x1b[31mtest_a\x1b[0m ok\ntest_b"}))
        await until(lambda: "| test_b" in terminal.last_line())
        service.happen(id, StepCompleted(step=step(1, StepStatus.COMPLETED, result="test_a ok\ntest_b ok")))
        service.finish(id, summary="Done.")
        await terminal.ended()
        more = ["> on as before.", "… $ pytest", "| test_a ok", "| test_b ok", "turn 1  ✓ $ pytest  0.0 s"]
        assert plain(terminal.screen(), id)[: 8 + len(said)] == ["<id>", "queued: x", BEGUN[2], *said, *more]


async def test_a_pipe_gets_words_and_output_in_whole_lines(url: str, service: FakeService) -> None:
    service.fleet = [worker_card()]
    async with started("run", "x", "--stream", DEPUTIZE_URL=url) as command:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        for text in ("I lo", "ok.\nAnd", " then"):
            service.happen(id, TextDelta(turn=1, text=text))
        service.happen(id, Replied(turn=1, text="I look.\nAnd then", stop_reason="end_turn", usage=Usage()))
        service.finish(id, summary="Done.")
        done = await command.done()
    assert [line for line in done.err.splitlines() if line.startswith(">")] == ["> I look.", "> And then"]


async def test_where_nothing_happens_for_long_a_line_shows_the_state(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [(await service.create(DelegationRequest(task=f"t{n}"))).delegation.id for n in (1, 2)]
    said: list[str] = []

    def tells(line: str) -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any(line in each for each in said)

    with Lines(quiet_seconds=0.02) as shown:
        shown.add(service.runs[ids[0]])
        await until(lambda: tells("… queued"))
        begin(service, ids[0])
        shown.event(service.happen(ids[0], StepStarted(step=step(1, StepStatus.RUNNING))))
        shown.event(service.happen(ids[0], Heartbeat(turn=3, tool_calls=1, elapsed_ms=61_000, cost_usd=0.5)))
        await until(lambda: tells("… running: turn 3, … $ pytest, 1 min 01 s, $0.5000"))
        shown.add(service.runs[ids[1]])
        await until(lambda: tells("… 0/2 finished, 1 running, 1 queued, $0.5000"))
        for id in ids:
            shown.event(service.finish(id, TerminationReason.COMPLETED))
        said.clear()
        tells("")
        before = len(said)
    assert said[:before] == said


async def test_while_all_waits_the_state_is_shown_once(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    first = (await service.create(DelegationRequest(task="first"))).delegation.id
    id = (await service.create(DelegationRequest(task="t", after=[After(id=first)]))).delegation.id
    asks, runs = [(await service.create(DelegationRequest(task="t"))).delegation.id for _ in range(2)]
    said: list[str] = []

    def lines(beginning: str) -> list[str]:
        said.extend(capsys.readouterr().err.splitlines())
        return [each for each in said if each.startswith(beginning)]

    with (
        Lines(quiet_seconds=0.02) as queued,
        Lines(quiet_seconds=0.02) as waiting,
        Lines(quiet_seconds=0.02) as running,
    ):
        queued.add(service.runs[id])
        for shown, of in ((waiting, asks), (running, runs)):
            shown.add(service.runs[of])
            limits = service.runs[of].effective_limits
            shown.event(service.happen(of, RunStarted(worker="w", model="m", tools=[], limits=limits)))
        waiting.event(service.happen(asks, asked(FIRST, asks)))
        await until(lambda: len(lines("… running: ")) > 5)
    assert len(lines("… queued")) == 1
    assert lines("… waiting") == ["… waiting: asks: $ git push, $0.0000"]


async def test_a_batch_scrolls_each_step_with_its_delegation(url: str, service: FakeService, tmp_path: Path) -> None:
    tmp_path.joinpath("t.txt").write_text("one\ntwo\n")
    async with on_terminal("batch", str(tmp_path / "t.txt"), columns=80, DEPUTIZE_URL=url) as terminal:
        await until(lambda: service.following == 2, 60)
        for id in service.runs:
            fail_a_step_and_start_another(service, id)
        await until(lambda: "0/2 finished, 2 running, $0.0200" in terminal.last_line())
        for id, run in service.runs.items():
            assert f"{run.request.title}  …{id[-6:]}  {STEP}" in plain(terminal.screen(), "-" * 30)
        for id in service.runs:
            service.finish(id)
        await terminal.ended()


async def test_the_end_of_a_run_is_read_in_one_glance(url: str, service: FakeService, tmp_path: Path) -> None:
    """The mark with the verdict, the reason, the summary, changes, and one next command; `show` has the rest."""
    changes = [{"path": f"{n}.py", "change": "modified", "addedLines": n, "removedLines": 2} for n in range(1, 11)]
    item = {"item": {"run": "make test"}, "why": "it succeeds", "outcome": "inconclusive"}
    found = {
        "verdict": "inconclusive",
        "require": "passed",
        "why": "no test failed before",
        "restored": ["tests/a.py"],
        "checks": [item],
        "claims": [
            {"claim": "All tests pass", "evidence": None, "verdict": "refuted"},
            *({"claim": f"`{n}.py` changed", "evidence": None, "verdict": "unproved", "why": "no"} for n in "bcd"),
        ],
    }
    service.fleet = [worker_card()]
    given = ("run", "Repair it", "-w", str(tmp_path))
    async with on_terminal(*given, columns=300, DEPUTIZE_URL=url, PATH=BY_NAME) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        rest = {"left_out": ["pipe is a FIFO"], "ignored_count": 1, "ignored_files": ["x.log"]}
        ended: dict[str, Any] = {"verification": found, "file_changes": changes, **rest}
        service.finish(id, summary="## Done\n\nIt is **good**.", **ended)
        assert await terminal.ended() == 6
    shown = plain(terminal.history(), id)
    assert shown[2].startswith("? inconclusive (completed, 1 claim refuted): ")
    assert shown[3:] == [
        *["  no test failed before", "  refuted by the run: All tests pass"],
        *(f"  unproved by the run: `{n}.py` changed (no)" for n in "bc"),
        *["  and 1 more", "Done", "", "It is good."],
        *(f"  modified {n}.py (+{n} -2)" for n in range(1, 9)),
        "  and 2 more",
        f"  {tmp_path} itself is unchanged; to take this over: deputize apply @last",
        MORE,
    ]
    assert "(\x1b[32m+1\x1b[0m \x1b[31m-2\x1b[0m)" in terminal.drawn


async def test_only_the_newest_is_called_the_last(url: str, service: FakeService) -> None:
    async with on_terminal(*RUN, "x", DEPUTIZE_URL=url, PATH=BY_NAME) as terminal:
        await until(lambda: service.following, 60)
        (id,) = service.runs
        await service.create(DelegationRequest(task="another"))
        service.finish(id)
        assert await terminal.ended() == 0
    assert f"  more: deputize show {id}" in terminal.history()
