"""How a command ends, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import uvloop

from deputize.worker.contracts import Command
from deputize.worker.linux import tree
from deputize.worker.linux.tree import children, command_line
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.standby.process import Standby
from tests.processes.leaks import descendants
from tests.waiting import until, until_sync
from tests.worker.forked import in_child
from tests.worker.sandbox.sandboxes import (
    DAEMON,
    anyone_alive,
    bash,
    outcome,
    processes_named,
    said,
    sandbox_over,
    unheard,
)


@pytest.mark.requirement("S001-038", "S000-073")
async def test_when_its_time_is_up_everything_is_killed_and_its_output_kept(sandbox: Bubblewrap, place: Path) -> None:
    done = await sandbox.run(bash(f"{DAEMON}; echo so far; trap '' TERM INT; sleep 1000", timeout=4))
    assert (done.exit_code, done.timed_out, done.stdout) == (-9, True, b"so far\n")
    assert 4 <= done.seconds < 6
    assert not anyone_alive(place)


@pytest.mark.requirement("S000-084")
async def test_cancelling_ends_everything_before_the_caller_goes_on(sandbox: Bubblewrap, place: Path) -> None:
    up = asyncio.Event()
    running = asyncio.create_task(sandbox.run(bash(f"{DAEMON}; echo up; sleep 1000"), lambda data: up.set()))
    await up.wait()
    assert anyone_alive(place)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not anyone_alive(place)


async def test_cancelling_at_once_runs_nothing(sandbox: Bubblewrap, place: Path) -> None:
    running = asyncio.create_task(sandbox.run(bash("touch ran")))
    await asyncio.sleep(0)  # it is started now, and its walls are not up
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_named("touch ran") == []
    assert not (place / "ran").exists()


@pytest.mark.requirement("S000-084")
async def test_a_daemon_does_not_outlive_its_command(sandbox: Bubblewrap, place: Path) -> None:
    done = await sandbox.run(bash(f"{DAEMON}; nohup sleep 1000 & disown -a; echo done"))
    assert outcome(done) == (0, b"done\n", b"")
    assert not anyone_alive(place)


async def test_closing_a_sandbox_kills_what_it_still_runs(place: Path) -> None:
    heard: list[bytes] = []
    with sandbox_over(place) as sandbox:
        process = await sandbox.start(bash(f"{DAEMON}; echo up; sleep 1000"), heard.append, heard.append)
        await until(lambda: heard)
        assert anyone_alive(place)
    assert await process.ended == 137
    assert not anyone_alive(place)


@pytest.mark.requirement("P-16", "S000-084")
@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 25])
def test_a_worker_killed_at_any_moment_leaves_no_process(milliseconds: int, place: Path) -> None:
    word = f"survivor-{milliseconds}-{os.getpid()}"

    async def start_and_die() -> None:
        with sandbox_over(place) as sandbox:
            await Bubblewrap.selftest()
            await sandbox.start(bash(f": {word}; {DAEMON}; sleep 1000"), unheard, unheard)
            asyncio.get_running_loop().call_later(milliseconds / 1000, os.kill, os.getpid(), 9)
            await asyncio.Event().wait()

    assert in_child(lambda: asyncio.run(start_and_die())) == "SIGKILL"
    until_sync(lambda: not processes_named(word))
    until_sync(lambda: not (place / "alive").exists() or not anyone_alive(place))


def full_pipe(path: Path) -> int:
    os.mkfifo(path)
    full = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(full, b"x" * 4096)
    return full


def is_held(timeout: int, path: Path) -> bool:
    """Whether bubblewrap waits to write to this file, and ``timeout`` sleeps: it knows by then whom it has started."""
    with suppress(OSError, IndexError):  # the system call of a process that does not wait is "running"
        (bubblewrap,) = children(timeout) or [0]
        descriptor = int(Path(f"/proc/{bubblewrap}/syscall").read_text("ascii").split()[1], 16)
        state = Path(f"/proc/{timeout}/stat").read_text().rpartition(") ")[2][0]
        return Path(f"/proc/{bubblewrap}/fd/{descriptor}").readlink() == path and state == "S"
    return False


@pytest.mark.requirement("P-16", "S000-084")
@pytest.mark.parametrize("has_standby", [False, True])
def test_a_worker_killed_while_bubblewrap_lets_its_child_go_leaves_no_process(
    has_standby: bool, place: Path, tmp_path: Path
) -> None:
    """A pipe that is full holds bubblewrap at the one moment at which its child waits for it alone.

    Where ``timeout`` dies alone, as it does where it has just started bubblewrap, the standby ends the sandbox.
    """
    full = full_pipe(tmp_path / "mark")

    async def start_and_die() -> None:
        with sandbox_over(place, status_folder=tmp_path) as sandbox:
            await Bubblewrap.selftest()
            async with Standby("redis://127.0.0.1:1", 10) if has_standby else nullcontext():
                process = await sandbox.start(bash("sleep 1000", status_file="mark"), unheard, unheard)
                await until(lambda: is_held(process.pid, tmp_path / "mark"))
                if has_standby:
                    os.kill(process.pid, 9)
                os.kill(os.getpid(), 9)

    before = descendants()
    assert in_child(lambda: asyncio.run(start_and_die())) == "SIGKILL"
    until_sync(lambda: descendants() <= before)
    os.close(full)


async def test_a_command_that_is_killed_while_it_has_no_command_line_yet_is_named(sandbox: Bubblewrap) -> None:
    """As in the middle of an exec, for longer: ``cat`` gets not even its name."""
    heard: list[bytes] = []
    script = "mkfifo never; echo up; exec -a '' cat <>never"
    process = await sandbox.start(bash(script), heard.append, unheard)
    await until(lambda: heard and "" in map(command_line, tree.descendants(process.init_pid)))
    await process.end()
    assert process.reaped == [script]


async def test_what_cannot_be_ended_gently_is_ended_hard(sandbox: Bubblewrap) -> None:
    process = await sandbox.start(bash("sleep 1000"), unheard, unheard)
    process.kill_hard()
    assert await process.ended == -9


async def test_the_workers_own_timer_is_not_all_that_bounds_a_command(sandbox: Bubblewrap) -> None:
    """If we were stopped for ever, ``timeout`` would still end it."""
    process = await sandbox.start(bash("sleep 1000", timeout=20), unheard, unheard)
    await until(lambda: "timeout --signal=KILL 30 " in (command_line(process.pid) or ""))
    await process.end()


@pytest.mark.parametrize(("script", "exit_code"), [("trap '' TERM; kill -TERM 0; exit 7", 7), ("kill -TERM 0", 143)])
async def test_a_command_may_signal_its_own_group(script: str, exit_code: int, sandbox: Bubblewrap) -> None:
    assert (await sandbox.run(bash(script))).exit_code == exit_code


def test_it_works_the_same_on_uvloop(place: Path) -> None:
    async def work() -> tuple[str, bool]:
        up = asyncio.Event()
        with sandbox_over(place) as sandbox:
            running = asyncio.create_task(sandbox.run(bash(f"{DAEMON}; echo up; sleep 1000"), lambda _: up.set()))
            await up.wait()
            running.cancel()
            await asyncio.wait({running})
            done = await sandbox.run(bash("sleep 1000", timeout=0.1))
            return await said(sandbox, "cat", stdin=b"hello"), done.timed_out

    assert uvloop.run(work()) == ("hello", True)
    assert not anyone_alive(place)


CROWD = """
import pathlib, subprocess, threading, time
for _ in range(60):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    subprocess.Popen(["sleep", "1000"])
pathlib.Path("up").touch()
time.sleep(1000)
"""


async def test_ending_many_processes_and_threads_takes_little_of_the_event_loop(
    sandbox: Bubblewrap, place: Path
) -> None:
    process = await sandbox.start(Command(["python3", "-c", CROWD], 100), unheard, unheard)
    await until((place / "up").exists)
    before = time.thread_time()
    await process.terminate(5)
    spent = time.thread_time() - before
    assert spent < 0.02
