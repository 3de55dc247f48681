"""Commands in the background: how they are started, read and ended, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.linux.tree import command_line
from deputize.worker.sandbox.buffers import HiddenLines
from deputize.worker.sandbox.shells import MAX_SHELLS, BackgroundShell
from deputize.worker.tools.base import Effect, Kind, ToolResult
from tests.runs.toolbench import EVERYTHING, Toolbench, open_toolbench
from tests.waiting import until
from tests.worker.sandbox.sandboxes import DAEMON, LAST_WORDS, anyone_alive, sandbox_over

WAIT_FOR_GO = "while ! [ -e go ]; do sleep 0.01; done"


async def start(desk: Toolbench, command: str, **more: Any) -> str:
    """Starts a command in the background. Returns its id."""
    result = await desk.call("bash", command=command, run_in_background=True, **more)
    assert result.success, result.error
    return result.metadata["bashId"]


def shell_of(desk: Toolbench, bash_id: str) -> BackgroundShell:
    return desk.sandbox.shells.lookup(bash_id)


async def has_ended(desk: Toolbench, bash_id: str) -> None:
    await until(lambda: not shell_of(desk, bash_id).running)


async def output(desk: Toolbench, bash_id: str, **more: Any) -> ToolResult:
    return await desk.call("bash_output", bash_id=bash_id, **more)


async def all_output(desk: Toolbench, bash_id: str) -> str:
    """What bash_output shows once the command has ended."""
    await has_ended(desk, bash_id)
    return (await output(desk, bash_id)).content


@pytest.mark.requirement("S000-061", "S000-064", "S000-066", "S000-069", "S000-070", "S000-071", "S000-072")
async def test_a_background_start_answers_at_once_with_the_id(desk: Toolbench) -> None:
    result = await desk.call("bash", command="sleep 1000; echo never", run_in_background=True)
    id = result.metadata["bashId"]
    assert re.fullmatch("[0-9a-f]{8}", id)
    assert (result.success, result.error) == (True, None)
    assert result.content == (
        f"Command started in background. Use bash_output to monitor (bash_id='{id}').\n\n"
        f"Command: sleep 1000; echo never\nBash ID: {id}"
    )
    assert result.title == "$ sleep 1000; echo never &"
    assert result.metadata == {
        "exitCode": 0,
        "stdout": f"Background command started with ID: {id}",
        "stderr": "",
        "bashId": id,
    }
    assert shell_of(desk, id).running


@pytest.mark.requirement("S000-070")
async def test_a_foreground_command_has_the_same_facts(desk: Toolbench) -> None:
    facts = (await desk.call("bash", command="echo out; echo err >&2; exit 3")).metadata
    assert (facts["exitCode"], facts["stdout"], facts["stderr"], facts["bashId"]) == (3, "out\n", "err\n", None)


@pytest.mark.requirement("S000-067", "S000-068")
async def test_the_run_knows_its_shells(desk: Toolbench) -> None:
    id = await start(desk, "sleep 1000")
    shell = shell_of(desk, id)
    assert (shell.bash_id, shell.command, shell.process.ended.done()) == (id, "sleep 1000", False)
    assert shell.start_time.tzinfo is not None
    assert [each.bash_id for each in desk.sandbox.shells] == [id]


@pytest.mark.requirement("S000-061")
async def test_a_command_runs_in_the_foreground_unless_it_is_asked_otherwise(desk: Toolbench) -> None:
    assert (await desk.call("bash", command="echo here")).content == "here"
    assert (await desk.call("bash", command="echo here", run_in_background=False)).content == "here"
    assert [*desk.sandbox.shells] == []


async def test_a_background_command_may_run_as_long_as_its_run(desk: Toolbench) -> None:
    """A run may be as long as the cap in the settings, and its time is stopped while it waits for permission."""
    shell = shell_of(desk, await start(desk, "sleep 1000", timeout=1))
    assert shell.running
    await until(lambda: "timeout --signal=KILL 0 " in (command_line(shell.process.pid) or ""))


async def test_there_may_be_eight_and_a_read_one_that_ended_makes_room(desk: Toolbench) -> None:
    ids = [await start(desk, "sleep 1000") for _ in range(MAX_SHELLS - 1)]
    ended = await start(desk, "echo done")
    await has_ended(desk, ended)
    refused = await desk.call("bash", command="echo one too many", run_in_background=True)
    assert refused.error_type is ErrorType.LIMIT_REACHED
    assert f"there may be 8 background shells at once. There are: {ids[0]} (running: sleep 1000)" in refused.for_model
    assert "End one with bash_kill, or read one that has ended with bash_output." in refused.for_model
    await output(desk, ended)
    await start(desk, "sleep 1000")


async def test_where_commands_cannot_run_none_is_started(bare_desk: Toolbench) -> None:
    result = await bare_desk.call("bash", command="touch ran", run_in_background=True)
    assert result.error_type is ErrorType.SANDBOX_UNAVAILABLE
    assert "there is no background shell" in (await output(bare_desk, "00000000")).for_model


@pytest.mark.requirement("S000-065")
async def test_both_streams_are_one_in_the_order_of_writing(desk: Toolbench) -> None:
    id = await start(desk, "for n in 1 2 3; do echo out $n; echo err $n >&2; done")
    assert await all_output(desk, id) == (
        f"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n[bash_id: {id}, status: completed, exit code: 0]"
    )


@pytest.mark.requirement("S000-075", "S000-076", "S000-074", "S000-079")
async def test_each_look_shows_only_what_is_new(desk: Toolbench) -> None:
    id = await start(desk, f"echo one; {WAIT_FOR_GO}; echo two")
    first = await output(desk, id)
    assert first.content == f"one\n[bash_id: {id}, status: running]"
    assert (first.metadata["stdout"], first.metadata["stderr"]) == ("one", "")
    assert (first.metadata["status"], first.metadata["exitCode"]) == ("running", None)
    desk.write("go")
    assert await all_output(desk, id) == f"two\n[bash_id: {id}, status: completed, exit code: 0]"
    again = await output(desk, id)
    assert again.content == f"(no new output)\n[bash_id: {id}, status: completed, exit code: 0]"
    assert again.success


async def test_of_a_progress_bar_each_look_shows_the_last_state(desk: Toolbench) -> None:
    shell = await desk.start_shell("bar", "exec sleep 1000")
    status = "\n[bash_id: bar, status: running]"
    shell.unread.add(b"".join(b"\r\x1b[32m%d of 3000\x1b[0m" % number for number in range(1501)))
    assert (await output(desk, "bar")).content == "1500 of 3000" + status
    shell.unread.add(b"\r1501 of 3000\r")
    assert (await output(desk, "bar", filter="of")).content.startswith("(no new output)")  # the line goes on
    shell.unread.add(b"1502 of 3000\nend\n")
    assert (await output(desk, "bar", filter="1501|end")).content.startswith("end\n")
    assert (await output(desk, "bar")).content.startswith("1502 of 3000\n")


@pytest.mark.requirement("S000-078")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("true", "status: completed, exit code: 0"),
        ("exit 3", "status: failed, exit code: 3"),
        ("kill -9 $$", "status: failed, exit code: 137"),
    ],
)
async def test_the_end_is_shown_with_its_reason(desk: Toolbench, command: str, status: str) -> None:
    assert status in await all_output(desk, await start(desk, command))


async def test_a_look_waits_a_little_for_something_new(desk: Toolbench) -> None:
    """A call costs the model a turn; five seconds are enough for this one."""
    id = await start(desk, "sleep 0.2; echo late; sleep 1000")
    assert (await output(desk, id)).content.startswith("late\n")


async def test_a_look_at_a_silent_shell_ends(desk: Toolbench) -> None:
    id = await start(desk, "sleep 1000")
    assert (await output(desk, id)).content == f"(no new output)\n[bash_id: {id}, status: running]"


@pytest.mark.requirement("S000-077", "S000-074")
async def test_a_filter_shows_only_lines_that_match_and_the_others_stay_readable(desk: Toolbench) -> None:
    id = await start(desk, f"seq 1 12; {WAIT_FOR_GO}; echo 100")
    await until(lambda: not shell_of(desk, id).unread.empty)
    result = await output(desk, id, filter="^1.$")
    assert result.content == (
        "10\n11\n12\n[3 of 12 unread lines match the filter; read without a filter to get the others]\n"
        f"[bash_id: {id}, status: running]"
    )
    assert (await output(desk, id, filter="^[12]$")).content.startswith("1\n2\n[2 of 9 unread lines match")
    desk.write("go")
    await has_ended(desk, id)
    assert (await output(desk, id, filter="^[12]$")).content.startswith("(no line matches the filter)\n[0 of 1 unread")
    assert (await output(desk, id)).content.startswith(
        "3\n4\n5\n6\n7\n8\n9\n100\n[the first 8 lines had been hidden by a filter before]\n[bash_id"
    )
    assert (await output(desk, id)).content.startswith("(no new output)\n")


def test_of_hidden_lines_the_last_are_kept_and_the_others_counted() -> None:
    hidden = HiddenLines()
    hidden.replace([f"{number:0999}" for number in range(2000)], "x")
    assert (len(hidden.lines), hidden.lines[-1], hidden.lost) == (1048, f"{1999:0999}", 952)


@pytest.mark.requirement("S000-077")
async def test_where_no_line_matches_this_is_reported(desk: Toolbench) -> None:
    id = await start(desk, "seq 1 12")
    await has_ended(desk, id)
    assert (await output(desk, id, filter="x")).content == (
        "(no line matches the filter)\n"
        "[0 of 12 unread lines match the filter; read without a filter to get the others]\n"
        f"[bash_id: {id}, status: completed, exit code: 0]"
    )


async def test_with_a_filter_a_line_is_judged_when_it_is_whole(desk: Toolbench) -> None:
    id = await start(desk, f"echo first; printf 'half of '; {WAIT_FOR_GO}; echo a line; printf 'no end'")
    await until(shell_of(desk, id).unread.arrived.is_set)
    seen = ""
    while "first" not in seen:
        seen = (await output(desk, id, filter="line$|first|half")).content
    assert "half" not in seen
    desk.write("go")
    await has_ended(desk, id)
    assert (await output(desk, id, filter="line$|end$")).content.startswith("half of a line\nno end\n[bash_id")


async def test_without_a_filter_a_question_without_a_line_end_is_shown(desk: Toolbench) -> None:
    id = await start(desk, "printf 'Continue? '; sleep 1000")
    assert (await output(desk, id)).content.startswith("Continue? \n")


@pytest.mark.parametrize(
    ("pattern", "error_type", "said"),
    [
        ("(unclosed", ErrorType.INVALID_TOOL_PARAMS, "is not a valid regular expression: missing ) at position 9"),
        ("^(a|aa)+$", ErrorType.TIMEOUT, "the filter took longer than 1 s; use a simpler one, or none"),
    ],
)
async def test_a_filter_that_cannot_be_used_uses_up_nothing(
    desk: Toolbench, pattern: str, error_type: ErrorType, said: str
) -> None:
    id = await start(desk, "printf 'a%.0s' {1..5000}; echo '!'; echo next")
    await has_ended(desk, id)
    refused = await output(desk, id, filter=pattern)
    assert refused.error_type is error_type
    assert said in refused.for_model
    assert "aaa!\nnext\n" in (await output(desk, id)).content


async def test_a_character_in_two_halves_is_shown_whole(desk: Toolbench) -> None:
    id = await start(desk, rf"printf 'caf\xc3'; touch half; {WAIT_FOR_GO}; printf '\xa9'; {WAIT_FOR_GO}")
    await until((desk.root / "half").exists)
    assert (await output(desk, id)).content.startswith("caf\n")
    desk.write("go")
    assert (await all_output(desk, id)).startswith("é\n")


async def test_of_a_flood_both_ends_are_kept_and_the_rest_is_counted(desk: Toolbench) -> None:
    id = await start(desk, "echo first; yes | head -c 3000000; echo last")
    said = await all_output(desk, id)
    assert said.startswith("first\ny\n")
    assert re.search(r"\nlast\n\[19\d{5} bytes of output exceeded the limit and were dropped\]\n\[bash_id", said)
    assert "bytes of output" not in (await output(desk, id)).content


async def test_two_looks_at_once_share_the_news_and_lose_none(desk: Toolbench) -> None:
    id = await start(desk, "seq 1 50000")
    await has_ended(desk, id)
    shell = shell_of(desk, id)
    news = await asyncio.gather(shell.read("7"), shell.read(), shell.read())
    assert [(each.lines, each.shown) for each in news] == [(50_000, 17_195), (32_805, 32_805), (0, 0)]


@pytest.mark.requirement("S000-079")
async def test_an_unknown_id_is_answered_with_those_there_are(desk: Toolbench) -> None:
    for tool in ("bash_output", "bash_kill"):
        result = await desk.call(tool, bash_id="12345678")
        assert result.error_type is ErrorType.INVALID_TOOL_PARAMS
        assert result.for_model == (
            "Error: there is no background shell '12345678'. There are none; start one with bash and "
            "run_in_background true."
        )
    id = await start(desk, "sleep 1000")
    said = (await output(desk, "../" + id)).for_model
    assert said == f"Error: there is no background shell '../{id}'. There are: {id} (running: sleep 1000)."


async def test_a_shell_of_a_lost_worker_is_known_as_such(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    status_folder = tmp_path / "marks"
    with (
        sandbox_over(tmp_path / "first", status_folder=status_folder) as sandbox,
        open_toolbench(tmp_path / "first", sandbox=sandbox) as desk,
    ):
        ids = [await start(desk, "sleep 1000") for _ in range(2)]
        await desk.call("bash_kill", bash_id=ids[1])
        await sandbox.shells.end()
    with (
        sandbox_over(tmp_path / "next", status_folder=status_folder) as sandbox,
        open_toolbench(tmp_path / "next", sandbox=sandbox) as desk,
    ):
        for tool in ("bash_output", "bash_kill"):
            said = (await desk.call(tool, bash_id=ids[0])).for_model
            assert said.startswith(f"Error: background shell {ids[0]} ended when the run was interrupted")
            assert "start it again" in said
        assert f"there is no background shell '{ids[1]}'" in (await output(desk, ids[1])).for_model


@pytest.mark.requirement("S000-080", "S000-081", "S000-082", "S000-083", "S000-078")
async def test_a_killed_shell_may_say_its_last_words(desk: Toolbench) -> None:
    id = await start(desk, LAST_WORDS)
    await until(lambda: not shell_of(desk, id).unread.empty)
    result = await desk.call("bash_kill", bash_id=id)
    assert re.fullmatch(rf"up\nbye\n\[bash_id: {id}, status: terminated, exit code: 0\]", result.content), (
        result.content
    )
    assert (result.metadata["status"], result.metadata["bashId"]) == ("terminated", id)
    gone = (await desk.call("bash_kill", bash_id=id)).for_model
    assert gone.startswith(f"Error: background shell {id} is gone: bash_kill ended it (terminated). There are none")


@pytest.mark.requirement("S000-081", "S000-084")
async def test_what_does_not_want_to_end_is_killed(desk: Toolbench) -> None:
    id = await start(desk, f"trap '' TERM; {DAEMON}; echo up; sleep 1000")
    await until(lambda: not shell_of(desk, id).unread.empty)
    result = await desk.call("bash_kill", bash_id=id)
    assert result.content == f"up\n[bash_id: {id}, status: terminated, exit code: 137]"
    assert not anyone_alive(desk.root)


@pytest.mark.requirement("S000-081")
async def test_all_that_the_shell_started_is_asked_and_has_time(desk: Toolbench) -> None:
    """Not the shell alone: it would take the others with it before they have done what they have to do."""
    other = "trap 'sleep 0.3; echo saved > other.txt; exit' TERM; touch up; while :; do sleep 0.01; done"
    desk.write("other.sh", other)
    id = await start(desk, "setsid bash other.sh & wait")
    await until((desk.root / "up").exists)
    await desk.call("bash_kill", bash_id=id)
    assert desk.read("other.txt") == b"saved\n"


@pytest.mark.requirement("S000-082")
@pytest.mark.parametrize(("command", "status"), [("echo all", "completed"), ("echo all; exit 3", "failed")])
async def test_what_had_ended_before_keeps_its_status(desk: Toolbench, command: str, status: str) -> None:
    id = await start(desk, command)
    await has_ended(desk, id)
    result = await desk.call("bash_kill", bash_id=id)
    assert result.content.startswith(f"all\n[bash_id: {id}, status: {status}")


async def start_and_kill(desk: Toolbench, count: int) -> None:
    for id in [await start(desk, "yes") for _ in range(count)]:
        await output(desk, id)
        assert (await desk.call("bash_kill", bash_id=id)).success


def open_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.requirement("S000-083")
async def test_a_killed_shell_leaves_nothing(tmp_path: Path) -> None:
    """No process (``nothing_left_behind`` looks), no descriptor, no record and no mark."""
    (tmp_path / "marks").mkdir()
    status_folder = tmp_path / "marks"
    ws = tmp_path / "ws"
    with sandbox_over(ws, status_folder=status_folder) as sandbox, open_toolbench(ws, sandbox=sandbox) as desk:
        await start_and_kill(desk, 1)  # opens what a process opens once
        before = open_descriptors()
        await start_and_kill(desk, 3)
        await until(lambda: open_descriptors() <= before)  # transports are closed in the loop's next pass
        assert [*desk.sandbox.shells] == []
        assert [path.name for path in status_folder.iterdir() if path.name.startswith("shell")] == []


def test_looking_needs_no_approval_and_killing_twice_is_killing_once() -> None:
    look, kill = EVERYTHING["bash_output"], EVERYTHING["bash_kill"]
    assert (look.kind, look.effect, look.availability.needs_sandbox) == (Kind.READ, Effect.PURE, True)
    assert (kill.kind, kill.effect, kill.availability.needs_sandbox) == (Kind.EXECUTE, Effect.IDEMPOTENT, True)
    assert {tool.availability.switch for tool in (look, kill, EVERYTHING["bash"])} == {"enable_bash"}
