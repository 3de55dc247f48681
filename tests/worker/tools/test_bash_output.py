"""bash_output: what a command in the background has written since the last look."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.sandbox.buffers import HiddenLines
from tests.toolbench import Toolbench, open_toolbench
from tests.waiting import until
from tests.worker.sandbox.sandboxes import sandbox_over
from tests.worker.tools.background_shells import WAIT_FOR_GO, all_output, has_ended, output, shell_of, start


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
async def test_how_it_ended_is_said(desk: Toolbench, command: str, status: str) -> None:
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
    assert (len(hidden), hidden.lines[-1], hidden.lost) == (1048, f"{1999:0999}", 952)


@pytest.mark.requirement("S000-077")
async def test_where_no_line_matches_that_is_said(desk: Toolbench) -> None:
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
        (
            "(unclosed",
            ErrorType.INVALID_TOOL_PARAMS,
            "is not a valid regular expression: missing ) at position 9",
        ),
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
