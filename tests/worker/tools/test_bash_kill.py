"""bash_kill: how a command in the background is ended, and that nothing of it is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deputize.worker.tools.base import Effect, Kind
from tests.toolbench import EVERYTHING, Toolbench, open_toolbench
from tests.waiting import until
from tests.worker.sandbox.sandboxes import DAEMON, anyone_alive, sandbox_over
from tests.worker.tools.background_shells import has_ended, output, shell_of, start


@pytest.mark.requirement("S000-080", "S000-081", "S000-082", "S000-083", "S000-078")
async def test_a_killed_shell_may_say_its_last_words(desk: Toolbench) -> None:
    id = await start(desk, "mkfifo never; trap 'echo bye; exit 0' TERM; echo up; read -r line <>never")
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
