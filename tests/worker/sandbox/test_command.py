"""What a command is given, and what is kept of its output."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.contracts import Command
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.process import LONG_RUNNING_NICENESS, NICENESS
from tests.waiting import until
from tests.worker.forked import need_root
from tests.worker.sandbox.sandboxes import bash, outcome, said


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [("exit 0", 0), ("exit 3", 3), ("no-such-program", 127), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)],
)
async def test_the_commands_own_exit_code_comes_back(script: str, exit_code: int, sandbox: Bubblewrap) -> None:
    assert (await sandbox.run(bash(script))).exit_code == exit_code


async def test_streams_are_kept_apart_and_the_workspace_is_the_working_directory(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash("pwd; echo oops >&2"))
    assert outcome(done) == (0, b"/workspace\n", b"oops\n")


@pytest.mark.requirement("S002-071", "S002-080")
async def test_a_command_can_work_below_the_workspace(sandbox: Bubblewrap, place: Path) -> None:
    await said(sandbox, "mkdir -p a/b")
    assert await said(sandbox, "pwd; touch here", cwd="a/b") == "/workspace/a/b"
    assert (place / "a/b/here").exists()
    with pytest.raises(ToolError, match="Not a directory: nowhere") as caught:
        await sandbox.run(bash("true", cwd="nowhere"))
    assert caught.value.type is ErrorType.NOT_A_DIRECTORY


async def test_what_a_command_writes_belongs_to_the_sandboxs_user(sandbox: Bubblewrap, place: Path) -> None:
    assert await said(sandbox, "touch f; id -u; stat -c %u f") == "1000\n1000"
    expected = environment.owner() or (os.geteuid(), os.getegid())
    found = (place / "f").stat()
    assert (found.st_uid, found.st_gid) == expected
    assert found.st_uid != 0


async def test_without_input_a_command_reads_the_null_device(sandbox: Bubblewrap) -> None:
    assert await said(sandbox, "readlink /proc/self/fd/0; cat") == "/dev/null"


async def test_a_command_reads_all_the_bytes_it_is_given_and_then_the_end(sandbox: Bubblewrap) -> None:
    data = bytes(range(256)) * 4096
    done = await sandbox.run(Command(["/bin/cat"], 20, stdin=data))
    assert outcome(done) == (0, data, b"")


async def test_a_command_may_leave_its_input_unread(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(Command(["/bin/true"], 20, stdin=b"x" * 1_000_000))
    assert outcome(done) == (0, b"", b"")


async def test_a_process_can_be_talked_to(sandbox: Bubblewrap) -> None:
    heard: list[bytes] = []
    process = await sandbox.start(Command(["/bin/cat"], 20), heard.append, heard.append, interactive=True)
    process.write(b"one\n")
    await until(lambda: b"".join(heard) == b"one\n")
    process.write(b"two\n")
    await until(lambda: b"".join(heard) == b"one\ntwo\n")
    process.close_stdin()
    assert await process.ended == 0


async def test_output_is_shown_as_it_comes(sandbox: Bubblewrap, place: Path) -> None:
    """The command goes on only when it sees what we do upon its first words."""
    heard: list[bytes] = []

    def hear(data: bytes) -> None:
        heard.append(data)
        (place / "go").touch()

    done = await sandbox.run(bash("echo first; until [ -e go ]; do sleep 0.01; done; echo second >&2"), hear)
    assert b"".join(heard) == b"first\nsecond\n"
    assert outcome(done) == (0, b"first\n", b"second\n")


async def test_a_listener_that_fails_does_not_affect_the_others(sandbox: Bubblewrap) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    done = await sandbox.run(bash("echo x"), lambda data: {}[data])
    assert outcome(done) == (0, b"x\n", b"")
    assert [type(each) for each in reported] == [KeyError]


async def test_ripgrep_is_found_inside(sandbox: Bubblewrap) -> None:
    program = sandbox.program("rg")
    assert program is not None
    assert (await said(sandbox, f"{program} --version; rg --version")).startswith("ripgrep ")
    assert sandbox.program("no-such-program") is None


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("head", b"a" * 1000), ("head_tail", b"a" * 500 + b"\n[... 300001 bytes dropped ...]\n" + b"b" * 499 + b"\n")],
)
async def test_output_over_the_limit_is_counted_and_dropped(keep: str, expected: bytes, sandbox: Bubblewrap) -> None:
    script = "head -c 200000 /dev/zero | tr '\\0' a; head -c 101000 /dev/zero | tr '\\0' b; echo"
    done = await sandbox.run(bash(script, max_output=1000, keep=keep))
    assert (done.exit_code, done.stdout, done.dropped_bytes) == (0, expected, 300001)


async def test_endless_output_is_cut_off_by_time_alone(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash("yes", timeout=0.5, max_output=1000))
    assert done.timed_out
    assert len(done.stdout) < 1100
    assert done.dropped_bytes > 100_000


@pytest.mark.parametrize("argv", [["/bin/echo", "x" * 200_000], ["/bin/echo", "a\0b"]])
async def test_a_command_the_system_cannot_start_is_an_answer(argv: list[str], sandbox: Bubblewrap) -> None:
    with pytest.raises(ToolError, match="the command cannot be started") as caught:
        await sandbox.run(Command(argv, 20))
    assert caught.value.type is ErrorType.EXECUTION_FAILED


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_many_commands_at_once_keep_apart_and_leave_no_descriptor(sandbox: Bubblewrap) -> None:
    await said(sandbox, "true")
    gc.collect()  # what other tests left closes its descriptors now, not between the two counts
    before = descriptors()
    answers = await asyncio.gather(*(said(sandbox, f"echo {number}") for number in range(20)))
    assert answers == [str(number) for number in range(20)]
    assert descriptors() == before


UNTIL_LATER = f"until [ $(nice) = {LONG_RUNNING_NICENESS} ]; do sleep 0.02; done"
SESSION = Path("/proc/self/autogroup")


@pytest.mark.requirement("P-03")
async def test_a_command_begins_after_the_worker_and_goes_after_the_others_when_it_takes_long(
    sandbox: Bubblewrap,
) -> None:
    assert await said(sandbox, f"nice; {UNTIL_LATER}; nice") == f"{NICENESS}\n{LONG_RUNNING_NICENESS}"


@pytest.mark.requirement("P-03")
async def test_what_left_the_commands_process_group_goes_after_the_others_too(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash(f"setsid sh -c '{UNTIL_LATER}; nice' & timeout 15 sh -c '{UNTIL_LATER}; nice'; wait"))
    assert (done.exit_code, done.stdout.split()) == (0, [b"15", b"15"])


@pytest.mark.requirement("P-03")
@pytest.mark.skipif(not SESSION.exists(), reason="this kernel has no autogroups")
async def test_the_session_of_a_command_goes_after_the_workers(sandbox: Bubblewrap) -> None:
    need_root()
    assert (await said(sandbox, "cat /proc/self/autogroup")).endswith(f"nice {NICENESS}")
    assert (await said(sandbox, f"{UNTIL_LATER}; cat /proc/self/autogroup")).endswith(f"nice {LONG_RUNNING_NICENESS}")
