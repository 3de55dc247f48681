"""Background shells below the tools: what bounds them, who sees them, and what is left of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.linux.tree import command_line
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.buffers import MAX_FILTER, MAX_UNREAD, LineFilter, OutputBuffer, incomplete_utf8_length
from deputize.worker.sandbox.environment import Bwrap
from deputize.worker.sandbox.protections import run_selftest
from deputize.worker.sandbox.shells import BackgroundShell
from tests.processes.leaks import descendants
from tests.processes.ordinary_user import home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until
from tests.worker.forked import in_child
from tests.worker.sandbox.sandboxes import DAEMON, LAST_WORDS, anyone_alive, bash, sandbox_over


async def started(sandbox: Bubblewrap, script: str) -> BackgroundShell:
    """A shell that has written something."""
    shell = await sandbox.shells.start(script, bash(script))
    await until(shell.unread.arrived.is_set)
    return shell


@pytest.mark.requirement("P-18", "S000-084")
async def test_at_the_end_every_shell_is_dead_and_named(sandbox: Bubblewrap, place: Path) -> None:
    await started(sandbox, f"{DAEMON}; echo up; exec sleep 1234")
    await started(sandbox, "trap '' TERM; echo up; exec sleep 5678")
    await until(lambda: {"sleep 1234", "sleep 5678"} <= {command_line(pid) for pid in descendants()})
    await sandbox.shells.end()
    assert not anyone_alive(place)
    assert all(not shell.running for shell in sandbox.shells)
    assert {"sleep 1234", "sleep 5678"} <= set(sandbox.reaped)


@pytest.mark.requirement("S000-066", "S000-084")
async def test_what_a_shell_leaves_behind_is_ended_with_it_and_named(sandbox: Bubblewrap, place: Path) -> None:
    shell = await sandbox.shells.start("x", bash(f"{DAEMON}; sleep 0.1"))
    await shell.process.ended
    assert not anyone_alive(place)
    await until(lambda: sandbox.reaped == ["sleep"])


async def test_a_shell_that_was_ended_on_purpose_is_not_named(sandbox: Bubblewrap) -> None:
    shell = await started(sandbox, "echo up; exec sleep 1000")
    await shell.stop()
    await sandbox.shells.end()
    assert sandbox.reaped == []


@pytest.mark.requirement("S000-078")
async def test_a_shell_that_cannot_be_started_reports_the_reason(place: Path) -> None:
    with sandbox_over(place, bwrap=Bwrap(Path("/bin/false"))) as sandbox:
        shell = await sandbox.shells.start("x", bash("echo never"))
        await shell.wait_for_output(20)
        assert ((await shell.read()).status, shell.process.failure) == ("error", "it ended without a message")


async def test_a_shell_that_is_ended_before_it_begins_does_nothing(sandbox: Bubblewrap, place: Path) -> None:
    await Bubblewrap.selftest()
    shell = await sandbox.shells.start("x", bash("touch ran"))
    await shell.stop()
    assert not (place / "ran").exists()
    assert shell.status == "terminated"


@pytest.mark.requirement("P-03")
async def test_two_sandboxes_do_not_know_each_others_shells(tmp_path: Path) -> None:
    with sandbox_over(tmp_path / "a") as one, sandbox_over(tmp_path / "b") as other:
        shell = await started(one, "echo up; sleep 1000")
        with pytest.raises(ToolError, match="there is no background shell"):
            other.shells.lookup(shell.bash_id)
        await other.shells.end()
        assert shell.running
        await one.shells.end()


@pytest.mark.requirement("S000-081")
def test_an_ordinary_user_can_ask_a_shell_to_end() -> None:
    """The test is root here; elsewhere every other test is this one."""
    need_ordinary_user()

    async def work(home: Path) -> list[Any]:
        proof = await run_selftest(Bubblewrap, home, environment.find_bubblewraps())
        with sandbox_over(home / "ws", bwrap=proof.bwrap, mounts=()) as sandbox:
            shell = await started(sandbox, LAST_WORDS)
            await shell.stop()
            return [(await shell.read()).text, shell.exit_code]

    with home_of_an_ordinary_user() as home:
        assert in_child(lambda: asyncio.run(work(home)), ordinary=True) == ["up\nbye", 0]


async def test_a_look_that_is_cancelled_uses_up_nothing(sandbox: Bubblewrap) -> None:
    shell = await sandbox.shells.start("x", bash("printf 'a%.0s' {1..3000}; echo '!'"))
    await shell.process.ended
    looking = asyncio.create_task(shell.read("^(a|aa)+$"))
    await until(lambda: shell.unread.empty)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert (await shell.read()).text.endswith("aaa!")


async def test_a_flood_is_read_slowly(sandbox: Bubblewrap) -> None:
    """Else one endless ``yes`` would keep the whole worker busy: a megabyte is kept, a pipe then waits for us."""
    shell = await started(sandbox, "yes")
    await until(lambda: shell.unread.full)
    before = os.times()
    await asyncio.wait([shell.process.ended], timeout=0.5)
    after = os.times()
    assert after.user + after.system - before.user - before.system < 0.25
    await sandbox.shells.end()


def test_of_an_unread_output_a_part_is_kept_and_the_rest_is_counted() -> None:
    unread = OutputBuffer()
    for _ in range(5):
        unread.add(b"x" * MAX_UNREAD)
    assert unread.full
    data = unread.take()
    assert (len(data.replace(b"x", b"")) < 100, data.count(b"x"), unread.lost) == (True, MAX_UNREAD, 4 * MAX_UNREAD)
    assert unread.empty


def test_what_is_put_back_stands_before_what_came_since() -> None:
    unread = OutputBuffer()
    unread.add(b"one ")
    taken = unread.take()
    unread.add(b"two")
    unread.put_back(taken)
    assert unread.arrived.is_set()
    assert unread.take() == b"one two"
    unread.put_back(b"rest")
    assert (unread.arrived.is_set(), unread.empty) == (False, False)


@pytest.mark.parametrize(
    ("data", "bytes_"),
    [(b"", 0), (b"abc", 0), ("é".encode(), 0), (b"\xc3", 1), (b"x\xe6\xbc", 2), (b"\xf0\x9f\x9a", 3), (b"\xff", 0)],
)
def test_half_a_character_at_the_end_is_counted(data: bytes, bytes_: int) -> None:
    assert incomplete_utf8_length(data) == bytes_


def test_a_filter_that_is_long_is_refused() -> None:
    """While such a one is compiled, no other run of the process goes on."""
    LineFilter("a" * MAX_FILTER)
    with pytest.raises(ToolError, match="filter has 100,000 characters, and may have 2,000"):
        LineFilter("(a|a)*" * 16_666 + "aaaa")


def test_a_filter_finds_anywhere_in_a_line_and_sees_no_carriage_return() -> None:
    assert LineFilter("b$").matches(["ab\r", "ba", "b"]) == [True, False, True]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<n>", "a{2,1}", "(?<=a*+)(", "\\"])
def test_a_wrong_filter_is_a_mistake_of_the_arguments(pattern: str) -> None:
    with pytest.raises(ToolError, match="filter is not a valid regular expression") as caught:
        LineFilter(pattern)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
