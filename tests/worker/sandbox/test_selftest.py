"""The sandbox proves its promises before it is used: with which bubblewrap, and as which user."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import Bwrap
from deputize.worker.sandbox.protections import run_selftest
from tests.processes.ordinary_user import ORDINARY_UID, home_of_an_ordinary_user, need_ordinary_user
from tests.waiting import until
from tests.worker.forked import in_child, need_root
from tests.worker.sandbox.sandboxes import DAEMON, anyone_alive, bash, processes_named, sandbox_over

ROOT = Path(__file__).parents[3]
PR_SET_DUMPABLE = 4


async def test_without_a_working_bubblewrap_nothing_runs_and_the_reason_states_the_remedy(tmp_path: Path) -> None:
    none = await run_selftest(Bubblewrap, tmp_path, [])
    broken = await run_selftest(Bubblewrap, tmp_path, [Bwrap(Path("/bin/false"))])
    assert none.bwrap is broken.bwrap is None
    assert none.reason is not None
    assert none.reason.startswith("there is no bubblewrap. Install bubblewrap")
    assert "worker/sandbox/seccomp-worker.json" in none.reason
    assert broken.reason is not None
    assert broken.reason.startswith("/bin/false: the sandbox could not be set up")


async def test_the_first_bubblewrap_that_keeps_its_promises_is_taken(tmp_path: Path) -> None:
    good = environment.find_bubblewraps()
    assert await run_selftest(Bubblewrap, tmp_path, [Bwrap(Path("/bin/false")), *good]) == await run_selftest(
        Bubblewrap, tmp_path, good
    )
    assert list(tmp_path.iterdir()) == []


async def test_a_sandbox_that_fails_twice_is_tried_again(tmp_path: Path) -> None:
    """A disk that was full for a moment, or a process too many, would deny all later calls of this worker."""
    folders = iter([tmp_path / "missing"] * 2)

    def make(workspace: Path, bwrap: Bwrap) -> Bubblewrap:
        return Bubblewrap(next(folders, workspace), bwrap)

    assert (await run_selftest(make, tmp_path, environment.find_bubblewraps()[:1])).reason is None


def test_an_untested_sandbox_is_broken(tmp_path: Path) -> None:
    class Untested(Bubblewrap):
        _selftest_result = None

    with Untested(tmp_path) as sandbox:
        assert sandbox.broken == "the sandbox has not been tested yet"


def test_an_ordinary_user_keeps_the_same_promises() -> None:
    """The test is root here; elsewhere every other test is this one."""
    need_ordinary_user()

    async def work(home: Path) -> list[object]:
        proof = await run_selftest(Bubblewrap, home, environment.find_bubblewraps())
        with sandbox_over(home / "ws", bwrap=proof.bwrap, mounts=()) as sandbox:
            done = await sandbox.run(bash(f"{DAEMON}; id -u; touch f"))
        return [proof.reason, done.stdout.decode(), (home / "ws/f").stat().st_uid, anyone_alive(home / "ws")]

    with home_of_an_ordinary_user() as home:
        found = in_child(lambda: asyncio.run(work(home)), ordinary=True)
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


async def test_root_can_use_a_bubblewrap_that_only_root_may_enter(tmp_path: Path) -> None:
    """As in a clone below root's home: pytest's own directories are as private."""
    need_root()
    found = next((each for each in environment.find_bubblewraps() if each.parts), None)
    if found is None:
        pytest.skip("SKIPPED: the wheel of bubblewrap is not installed")
    private = tmp_path / "private"
    for part in found.parts:
        shutil.copytree(part, private / part.name)
    private.chmod(0o700)
    program = private / found.program.relative_to(found.parts[0].parent)
    parts = tuple(private / part.name for part in found.parts)
    assert (await run_selftest(Bubblewrap, tmp_path, [Bwrap(program, parts)])).reason is None


def test_root_that_may_not_mount_is_advised_to_be_another_user(tmp_path: Path) -> None:
    """As in a container without CAP_SYS_ADMIN."""
    need_root()
    script = (
        "import asyncio, pathlib, sys\n"
        "from deputize.worker.sandbox.bubblewrap import Bubblewrap\n"
        "print(asyncio.run(Bubblewrap.selftest(pathlib.Path(sys.argv[1]))))"
    )
    weaker = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run([*weaker, sys.executable, "-c", script, tmp_path], capture_output=True, text=True, cwd=ROOT)
    assert "root may not mount here (Operation not permitted)" in done.stdout, done.stderr
    assert "run the worker as an ordinary user" in done.stdout


def test_a_worker_with_any_umask_or_hidden_memory_can_run_commands_and_stays_so(tmp_path: Path) -> None:
    """A hardened host's umask is 077, and what root makes then is closed to the sandbox's user."""

    def prove() -> list[str | int | None]:
        os.umask(0o077)
        assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0) == 0
        reason = asyncio.run(run_selftest(Bubblewrap, tmp_path, environment.find_bubblewraps())).reason
        return [reason, os.umask(0o022)]

    assert in_child(prove) == [None, 0o077]


@pytest.mark.parametrize(("descriptors", "proved"), [(120, True), (16, False)])
def test_few_descriptors_are_enough_or_are_named_as_the_reason(tmp_path: Path, descriptors: int, proved: bool) -> None:
    script = (
        "import asyncio, pathlib, resource, sys\n"
        "from deputize.worker.sandbox.bubblewrap import Bubblewrap\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)\n"
        "print(asyncio.run(Bubblewrap.selftest(pathlib.Path(sys.argv[1]))))"
    )
    arguments = [sys.executable, "-c", script, tmp_path, str(descriptors)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    reason = "the worker has too many open files; raise its limit (ulimit -n), or lower DEPUTIZE_CONCURRENCY"
    assert done.stdout == f"{None if proved else reason}\n", done.stderr
