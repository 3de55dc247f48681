"""The sandbox: what a command cannot see or do, how it ends, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from shared.errors import ErrorType, ToolError
from tests.leaks import descendants
from tests.waiting import until, until_sync
from tests.worker.forked import ORDINARY_UID, home_of_an_ordinary_user, in_child, need_root
from tests.worker.sandbox.sandboxes import DAEMON, anyone_alive, bash, outcome, processes_named, said, sandbox_over
from worker.linux.tree import children, command_line
from worker.sandbox import environment
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import Command
from worker.sandbox.environment import Bwrap
from worker.sandbox.selftest import prove

ROOT = Path(__file__).parents[3]
PR_SET_DUMPABLE = 4
SECRET = "sk-test-of-the-sandbox-0123456789"


async def test_the_selftest_proves_every_promise_on_this_machine() -> None:
    assert await Bubblewrap.selftest() is None


# --- what a command is given -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [("exit 0", 0), ("exit 3", 3), ("no-such-program", 127), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)],
)
async def test_the_commands_own_exit_code_comes_back(script: str, exit_code: int, sandbox: Bubblewrap) -> None:
    assert (await sandbox.run(bash(script))).exit_code == exit_code


async def test_streams_are_kept_apart_and_the_workspace_is_the_working_directory(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash("pwd; echo oops >&2"))
    assert outcome(done) == (0, b"/workspace\n", b"oops\n")


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


async def test_output_is_told_as_it_comes(sandbox: Bubblewrap, place: Path) -> None:
    """The command goes on only when it sees what we do upon its first words."""
    heard: list[bytes] = []

    def hear(data: bytes) -> None:
        heard.append(data)
        (place / "go").touch()

    done = await sandbox.run(bash("echo first; until [ -e go ]; do sleep 0.01; done; echo second >&2"), hear)
    assert b"".join(heard) == b"first\nsecond\n"
    assert outcome(done) == (0, b"first\n", b"second\n")


async def test_a_listener_that_fails_harms_nobody(sandbox: Bubblewrap) -> None:
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


async def test_an_interpreter_can_be_shown_where_the_system_has_none(tmp_path: Path) -> None:
    """Also when it lies where the sandbox's user could not go: as root, below a home directory."""
    shown = environment.interpreter(Path(sys.base_prefix))
    if not shown:
        pytest.skip(f"SKIPPED: {sys.base_prefix} is no whole installation")
    with sandbox_over(tmp_path / "ws", shown=shown) as sandbox:
        assert await said(sandbox, "/opt/python/bin/python3 -c 'import json, sys; print(sys.prefix)'") == "/opt/python"
        assert (await said(sandbox, "ls /opt/python; touch /opt/python/bin/x")).startswith("bin\nlib\ntouch: cannot")
        assert "/opt/python/bin" in await said(sandbox, "echo $PATH")


def test_a_virtual_environment_is_not_taken_for_an_interpreter(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    assert [each.place for each in environment.interpreter(tmp_path)] == ["/opt/python/bin", "/opt/python/lib"]
    (tmp_path / "pyvenv.cfg").touch()
    assert environment.interpreter(tmp_path) == ()
    assert environment.interpreter(Path("/nowhere")) == ()


# --- what a command cannot see or do -----------------------------------------------------------


@pytest.mark.parametrize("what", ["mem", "maps", "environ", "fd/0"])
async def test_no_command_reads_or_changes_the_guard_that_tells_of_it(sandbox: Bubblewrap, what: str) -> None:
    """Its memory holds the word by which we know its report."""
    for redirection in ("<", ">>"):
        assert "Permission denied" in await said(sandbox, f": {redirection}/proc/2/{what}; exit 0")


@pytest.mark.requirement("P-17")
async def test_no_secret_of_the_workers_environment_is_anywhere_in_sight(
    sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    assert (
        await said(
            sandbox, f"env | grep {SECRET}; cat /proc/*/environ /proc/*/cmdline 2>&- | grep -c {SECRET[:-1]}.?\\$"
        )
        == "0"
    )
    assert await said(sandbox, "cat /proc/1/environ | wc -c") == "0"
    names = (await said(sandbox, "env | cut -d= -f1 | sort | xargs")).split()
    assert names == ["HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "USER", "_"]


@pytest.mark.requirement("P-17")
async def test_variables_given_on_purpose_arrive_unchanged(sandbox: Bubblewrap) -> None:
    value = "a b'\"$HOME\n=é"
    done = await sandbox.run(bash('printf %s "$GIVEN"', env={"GIVEN": value}))
    assert done.stdout.decode() == value


@pytest.mark.parametrize(
    "script",
    [
        "ls -d /root /home /var /run /mnt /etc/shadow /etc/ssh 2>/dev/null",
        "ls /proc | grep -E '^[0-9]+$' | awk '$1 > 40'",
        "ls /proc/self/fd | grep -vE '^[0-3]$'",
        "true 2>/dev/null >>/proc/sys/kernel/core_pattern && echo wrote",
        "true 2>/dev/null >>/proc/sys/vm/drop_caches && echo wrote",
        "for f in / /etc /usr /usr/bin /dev /opt /proc; do touch $f/x 2>/dev/null && echo $f; done",
        "unshare --user true 2>/dev/null && echo namespaced",
        "unshare --mount true 2>/dev/null && echo namespaced",
        "mount -t tmpfs tmpfs /tmp 2>/dev/null && echo mounted",
        "mknod /tmp/null c 1 3 2>/dev/null && echo made",
        "chown 0 /workspace 2>/dev/null && echo owned",
        "dmesg 2>/dev/null",
        "ln /usr/bin/env /workspace/linked 2>/dev/null && echo linked",
        "hostname other 2>/dev/null && echo renamed",
        "nice -n -5 true 2>&1 | grep -v Permission",
        "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status | grep -v 0000000000000000",
        "tail -n +3 /proc/net/dev | grep -v lo:",
        "timeout 5 bash -c '>/dev/tcp/169.254.169.254/80' 2>/dev/null && echo connected",
        "timeout 5 bash -c '>/dev/udp/1.1.1.1/53' 2>/dev/null && echo sent",
    ],
)
async def test_an_attempt_to_get_out_says_nothing(script: str, sandbox: Bubblewrap) -> None:
    assert await said(sandbox, script) == ""


async def test_servers_of_the_machine_cannot_be_reached(sandbox: Bubblewrap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        port = server.getsockname()[1]
        abstract.bind("\0deputize-test-of-the-sandbox")
        abstract.listen()
        script = f">/dev/tcp/127.0.0.1/{port} && echo connected"
        assert "connected" not in await said(sandbox, script)
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0deputize-test-of-the-sandbox')"
        assert "ConnectionRefusedError" in await said(sandbox, f'python3 -c "{connect}"')
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("os.memfd_create('x')", "PermissionError"),
        ("socket.socket(40, 1)", "PermissionError"),
        ("socket.socket(17, 3)", "PermissionError"),
        ("socket.socket(38, 5)", "PermissionError"),
        ("os.open_by_handle_at", "AttributeError"),
        ("fcntl.ioctl(0, 0x5412, b'x')", "PermissionError"),
        ("number(425, 4, 0)", "PermissionError"),
        ("number(435, 0, 0)", "OSError: [Errno 38]"),
        ("os.kill(os.getppid(), 0) or os.kill(40000, 9)", "ProcessLookupError"),
        ("len(bytearray(5 << 30))", "MemoryError"),
    ],
)
async def test_a_program_is_refused(call: str, error: str, sandbox: Bubblewrap) -> None:
    program = f"""
import ctypes, fcntl, os, socket
def number(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "went"
print({call})
"""
    assert error in await said(sandbox, f"python3 - <<'END'\n{program}\nEND", stdin=b"")


@pytest.mark.parametrize(
    "script",
    [
        "python3 -c 'import threading, multiprocessing; multiprocessing.Pool(2).map(abs, [1]); print(1)'",
        "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
        "cat <(echo 1)",
        "ps >/dev/null && echo 1",
        "mkfifo p; (echo 1 >p) & cat p",
        "echo 1 >/tmp/f && cat /tmp/f",
        "python3 -c 'from socket import *; s = create_server((\"\", 0)); create_connection(s.getsockname()); print(1)'",
    ],
)
async def test_ordinary_work_goes_on_inside(script: str, sandbox: Bubblewrap) -> None:
    assert await said(sandbox, script) == "1"


async def test_each_limit_holds(sandbox: Bubblewrap, place: Path) -> None:
    limits = await said(sandbox, "ulimit -u; ulimit -v; ulimit -f; ulimit -n; ulimit -c")
    assert limits.split() == ["256", str(4 << 20), str(256 << 10), "1024", "0"]
    await said(sandbox, "truncate -s 300M big; head -c 300M /dev/zero >/tmp/big; true")
    assert not (place / "big").exists() or (place / "big").stat().st_size <= 256 << 20
    forks = "import os, signal\nfor number in range(300):\n  if os.fork() == 0: signal.pause()"
    assert (await said(sandbox, f"python3 -c '{forks}'")).endswith("Resource temporarily unavailable")


async def test_a_fork_bomb_is_bounded_and_ends_with_its_time(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash("f() { f | f & }; f; wait; sleep 1000", timeout=0.5))
    assert done.timed_out
    assert await said(sandbox, "echo fine") == "fine"


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.requirement("S001-038", "S000-073")
async def test_when_its_time_is_up_everything_is_killed_and_its_output_kept(sandbox: Bubblewrap, place: Path) -> None:
    done = await sandbox.run(bash(f"{DAEMON}; echo so far; trap '' TERM INT; sleep 1000", timeout=1.5))
    assert (done.exit_code, done.timed_out, done.stdout) == (-9, True, b"so far\n")
    assert 1.5 <= done.seconds < 3
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
            await sandbox.start(bash(f": {word}; {DAEMON}; sleep 1000"), bytes, bytes)
            asyncio.get_running_loop().call_later(milliseconds / 1000, os.kill, os.getpid(), 9)
            await asyncio.Event().wait()

    assert in_child(lambda: asyncio.run(start_and_die())) == "SIGKILL"
    until_sync(lambda: not processes_named(word))
    until_sync(lambda: not (place / "alive").exists() or not anyone_alive(place))


@pytest.mark.requirement("P-16", "S000-084")
def test_a_worker_killed_while_bubblewrap_lets_its_child_go_leaves_no_process(place: Path, tmp_path: Path) -> None:
    """A pipe that is full holds bubblewrap at the one moment at which its child waits for nobody but it."""
    os.mkfifo(tmp_path / "mark")
    full = os.open(tmp_path / "mark", os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(full, b"x" * 4096)

    async def start_and_die() -> None:
        with sandbox_over(place, marks=tmp_path) as sandbox:
            await Bubblewrap.selftest()
            process = await sandbox.start(bash("sleep 1000", mark="mark"), bytes, bytes)
            await until(lambda: any(map(children, children(process.pid))))
            os.kill(os.getpid(), 9)

    before = descendants()
    assert in_child(lambda: asyncio.run(start_and_die())) == "SIGKILL"
    until_sync(lambda: descendants() <= before)
    os.close(full)


async def test_what_cannot_be_ended_gently_is_ended_hard(sandbox: Bubblewrap) -> None:
    process = await sandbox.start(bash("sleep 1000"), bytes, bytes)
    process.kill_hard()
    assert await process.ended == -9


async def test_the_workers_own_timer_is_not_all_that_bounds_a_command(sandbox: Bubblewrap) -> None:
    """If we were stopped for ever, ``timeout`` would still end it."""
    process = await sandbox.start(bash("sleep 1000", timeout=20), bytes, bytes)
    await until(lambda: "timeout --signal=KILL 30 " in command_line(process.pid))
    await process.end()


@pytest.mark.parametrize(("script", "exit_code"), [("trap '' TERM; kill -TERM 0; exit 7", 7), ("kill -TERM 0", 143)])
async def test_a_command_may_signal_its_own_group(script: str, exit_code: int, sandbox: Bubblewrap) -> None:
    assert (await sandbox.run(bash(script))).exit_code == exit_code


# --- output and errors -------------------------------------------------------------------------


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
    before = descriptors()
    answers = await asyncio.gather(*(said(sandbox, f"echo {number}") for number in range(20)))
    assert answers == [str(number) for number in range(20)]
    assert descriptors() == before


async def test_without_a_working_bubblewrap_nothing_runs_and_the_reason_says_how_to_mend_it(tmp_path: Path) -> None:
    none = await prove(Bubblewrap, tmp_path, [])
    broken = await prove(Bubblewrap, tmp_path, [Bwrap(Path("/bin/false"))])
    assert none.bwrap is broken.bwrap is None
    assert none.reason is not None
    assert none.reason.startswith("there is no bubblewrap. Install bubblewrap")
    assert "worker/sandbox/seccomp-worker.json" in none.reason
    assert broken.reason is not None
    assert broken.reason.startswith("/bin/false: the sandbox could not be set up")


async def test_the_first_bubblewrap_that_keeps_its_promises_is_taken(tmp_path: Path) -> None:
    good = environment.bubblewraps()
    assert await prove(Bubblewrap, tmp_path, [Bwrap(Path("/bin/false")), *good]) == await prove(
        Bubblewrap, tmp_path, good
    )
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_nobody_has_tested_is_broken(tmp_path: Path) -> None:
    class Untested(Bubblewrap):
        _proof = None

    with Untested(tmp_path) as sandbox:
        assert sandbox.broken == "the sandbox has not been tested yet"


# --- as whom and on which loop -----------------------------------------------------------------


def test_it_works_the_same_on_uvloop(place: Path) -> None:
    async def work() -> tuple[str, bool]:
        with sandbox_over(place) as sandbox:
            done = await sandbox.run(bash(f"{DAEMON}; sleep 1000", timeout=0.5))
            return await said(sandbox, "cat", stdin=b"hello"), done.timed_out

    assert uvloop.run(work()) == ("hello", True)
    assert not anyone_alive(place)


def test_an_ordinary_user_keeps_the_same_promises() -> None:
    """The test is root here; elsewhere every other test is this one."""
    need_root()
    programs = [each.program for each in environment.bubblewraps()]
    if not any(in_child(lambda: [os.access(program, os.X_OK) for program in programs], ORDINARY_UID)):
        pytest.skip("SKIPPED: no bubblewrap lies where an ordinary user can go")

    async def work(home: Path) -> list[object]:
        proof = await prove(Bubblewrap, home, environment.bubblewraps())
        with sandbox_over(home / "ws", bwrap=proof.bwrap, shown=()) as sandbox:
            done = await sandbox.run(bash(f"{DAEMON}; id -u; touch f"))
        return [proof.reason, done.stdout.decode(), (home / "ws/f").stat().st_uid, anyone_alive(home / "ws")]

    with home_of_an_ordinary_user() as home:
        found = in_child(lambda: asyncio.run(work(home)), ORDINARY_UID)
    assert found == [None, "1000\n", ORDINARY_UID, False]


async def test_root_runs_no_process_of_a_sandbox_as_root(sandbox: Bubblewrap) -> None:
    need_root()
    heard: list[bytes] = []
    word = f"user-of-{os.getpid()}"
    process = await sandbox.start(bash(f": {word}; echo up; sleep 1000"), heard.append, heard.append)
    await until(lambda: heard)
    owners = {Path(f"/proc/{pid}").stat().st_uid for pid in processes_named(word)}
    process.kill()
    await process.ended
    assert owners == {environment.SANDBOX_UID}


async def test_root_can_use_a_bubblewrap_where_nobody_else_can_go(tmp_path: Path) -> None:
    """As in a clone below root's home: pytest's own directories are as private."""
    need_root()
    found = next((each for each in environment.bubblewraps() if each.parts), None)
    if found is None:
        pytest.skip("SKIPPED: the wheel of bubblewrap is not installed")
    private = tmp_path / "private"
    for part in found.parts:
        shutil.copytree(part, private / part.name)
    private.chmod(0o700)
    program = private / found.program.relative_to(found.parts[0].parent)
    parts = tuple(private / part.name for part in found.parts)
    assert (await prove(Bubblewrap, tmp_path, [Bwrap(program, parts)])).reason is None


def test_root_that_may_not_mount_is_told_to_be_somebody_else(tmp_path: Path) -> None:
    """As in a container without CAP_SYS_ADMIN."""
    need_root()
    script = (
        "import asyncio, pathlib, sys\n"
        "from worker.sandbox.bubblewrap import Bubblewrap\n"
        "print(asyncio.run(Bubblewrap.selftest(pathlib.Path(sys.argv[1]))))"
    )
    weaker = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run([*weaker, sys.executable, "-c", script, tmp_path], capture_output=True, text=True, cwd=ROOT)
    assert "root may not mount here (Operation not permitted)" in done.stdout, done.stderr
    assert "run the worker as an ordinary user" in done.stdout


def test_a_worker_that_hides_its_memory_can_still_run_commands(tmp_path: Path) -> None:
    def hide_and_prove() -> str | None:
        assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0) == 0
        return asyncio.run(prove(Bubblewrap, tmp_path, environment.bubblewraps())).reason

    assert in_child(hide_and_prove) is None
