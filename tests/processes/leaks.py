"""Every test also checks that nothing is left behind: processes, asyncio tasks, files, Redis keys without an end."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest
import redis
from pytest_asyncio import is_async_test

from deputize.shared.runs.keys import WAITING_RUNS, record_key, waiting_runs_key
from deputize.worker.linux.tree import children, command_line
from tests.waiting import until_sync

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2
MIN_MEMORY = 8 << 30
ROOT = Path(__file__).parents[2]
KEPT_WITHOUT_END = (
    "deputize:runs",
    "deputize:leases",
    "deputize:presence",
    "deputize:webhooks",
    "deputize:metrics",
    "deputize:spend:total",
    "deputize:spend:caps",
    "deputize:weights",
    "deputize:queue",
    "deputize:acknowledged",
    "deputize:celery:",
    "deputize:test",
)
"""The index, the deadlines, the signs of life, the totals and the queues of a service live as long as it does."""

_before_next: list[tuple[set[int], set[str]]] = []
"""The processes and files at the end of one test, which are those before the next one: to look takes as long as many a
test. Empty where a fixture that several tests share was set up or torn down in between."""

_zombies: set[int] = set()
"""Orphans that became ours and that nothing waits for. A killed fleet leaves hundreds: each is looked at once."""

servers: set[int] = set()
"""Processes that start others for tests and stay. What they start is looked at."""
kept: set[int | str] = set()
"""Processes and files that a fixture of the whole session holds for later tests."""
stacks: set[int] = set()
"""Supervisors of the stacks that several tests share. They start a program again whenever it ends."""
browsers: set[int] = set()
"""Browsers that several tests share. What they start is theirs, and ends with them."""
_PARTS = (
    *("deputize.orchestrator.supervisor", "-m deputize.worker", "deputize.orchestrator.serve", "valkey-server"),
    "worker/standby/program.py",
)
"""What a stack consists of, in the command lines of its processes; all else below it is looked at."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Lets this process have a temporary directory of its own, so that what is left in it is ours."""
    config.option.basetemp = None  # below the new one, in a process of several, too
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="t")
    if not hasattr(config, "workerinput"):  # the directories of further processes are below the first one's
        _keep_in_memory(tempfile.tempdir)
    adopt_orphans()
    # A test session in the background is born deaf to Ctrl-C, and so would be the commands it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the directory at exit: that of multiprocessing lies in it and is removed before, at priority -100.

    With it go those of the further processes. Each of these would take seconds to remove its own, file by file, and
    after ten seconds it is killed.
    """
    if not hasattr(config, "workerinput"):
        util.Finalize(None, _remove, [tempfile.gettempdir()], exitpriority=-101)


def _keep_in_memory(directory: str) -> None:
    """Mounts a file system in memory for this process and its children, where there is the right and memory for it.

    For each new file ext4 looks through the inodes that were deleted in the last minutes: tests, which create and
    delete thousands, took three times as much CPU there.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    has_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= MIN_MEMORY
    is_apart = has_memory and libc.unshare(CLONE_NEWNS) == 0
    if is_apart and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0:
        libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, b"mode=700")


def _remove(directory: str) -> None:
    ctypes.CDLL(None).umount2(directory.encode(), MNT_DETACH)  # fails where nothing was mounted
    shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    if fixturedef.scope != "function":
        _before_next.clear()
    return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    if fixturedef.scope != "function":
        _before_next.clear()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails the test that leaves a process, a file or an endless Redis key."""
    before, files_before = _before_next.pop() if _before_next else (descendants(), files())
    yield
    now = set[int]()

    def all_have_ended() -> bool:
        now.clear()
        now.update(descendants())
        return now - kept <= before

    left = ""
    try:
        until_sync(all_have_ended)
    except AssertionError:
        left = f"{ {pid: described(pid) for pid in descendants() - before - kept} }"
    if left:  # outside of the handler: a report of both errors is cut before the second one
        pytest.fail(f"processes left behind: {left}", pytrace=False)
    files_now = files()
    assert files_now - kept <= files_before, f"files left behind: {files_now - files_before}"
    _before_next.append((now, files_now))


@pytest.fixture(autouse=True)
def no_log_handler_left_behind() -> Iterator[None]:
    """Removes the handler of a program that a test called in this process: its stream is closed by now."""
    root = logging.getLogger()
    before = [*root.handlers]
    yield
    for handler in [*root.handlers]:
        if type(handler) is logging.StreamHandler and handler not in before:
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest) -> None:
    """Fails the test whose asyncio tasks outlive it. A test without a loop does not pay for one."""
    if is_async_test(request.node):
        request.getfixturevalue("all_tasks_end")


@pytest.fixture
async def all_tasks_end() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if not task.done() and task is not asyncio.current_task()]
    assert not left, f"tasks left behind: {left}"


def adopt_orphans() -> None:
    """Makes processes whose parent dies ours, so that an orphan of a killed worker is seen."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> set[int]:
    """Process ids of everything that this process or a child of it has started and that is not yet gone."""
    ours = {*children(os.getpid())}
    _zombies.intersection_update(ours)  # the others were waited for, and their numbers may come again
    found = set[int]()
    edge = [(pid, pid in stacks) for pid in ours - _zombies]
    while edge:
        pid, is_shared = edge.pop()
        if _is_gone(pid):
            _zombies.update({pid} & ours)
            continue
        if not (is_shared and _is_part(pid)):
            found.add(pid)
        if pid not in browsers:  # they start and end processes as they like
            edge += [(child, is_shared or child in stacks) for child in children(pid)]
    return found - servers - stacks


def _is_part(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
        command = file.read().replace(b"\0", b" ").decode()
        return any(part in command for part in _PARTS)
    return False


def described(pid: int) -> str:
    """The command line, and what the process waits for: a leak that is rare is seen once."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        kept = [line for line in lines if line.startswith(("State", "PPid", "NSpid", "SigQ", "ShdPnd", "SigBlk"))]
        waits = [Path(f"/proc/{pid}/{name}").read_text().strip() for name in ("wchan", "syscall")]
    except OSError as error:
        kept, waits = [str(error)], []
    return " | ".join([command_line(pid) or "", *kept, *waits]).replace("\t", " ")


def _is_gone(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split(maxsplit=1)[0] == b"Z"
    return True


def files() -> set[str]:
    temporary = tempfile.gettempdir()
    found = {f"{temporary}/{name}" for name in os.listdir(temporary) if "pytest" not in name}  # noqa: PTH208
    return found | {f"{ROOT}/{name}" for name in os.listdir(ROOT) if name not in (".pytest_cache", ".ruff_cache")}  # noqa: PTH208


def endless_keys(client: redis.Redis) -> list[str]:
    """Keys without a time to live that no running service explains: those of finished runs, and unknown ones."""
    try:
        keys = [key.decode() for key in client.scan_iter(count=1000)]
        with client.pipeline(transaction=False) as each:
            for key in keys:
                each.ttl(key)
            endless = [key for key, seconds in zip(keys, each.execute(), strict=True) if seconds == -1]
    except redis.ConnectionError:
        return []
    runs = [key for key in endless if key.endswith("}")]
    unfinished = {key for key in runs if client.hget(key, "status") in (b"queued", b"running", b"waiting")}
    return [
        key
        for key in endless
        if not key.startswith(KEPT_WITHOUT_END) and not any(key.startswith(run) for run in unfinished)
    ]


def wrongly_waiting(client: redis.Redis) -> list[str]:
    """Delegations that wait for a place in a worker though they run or have ended; owners without any."""
    try:
        owners: Any = client.zrange(WAITING_RUNS, 0, -1)
        sets: set[Any] = {*client.scan_iter(f"{WAITING_RUNS}:*", count=1000)}
        ids = [id.decode() for key in sets for id in _members(client, key)]
        wrong = [id for id in ids if client.hget(record_key(id), "status") not in (b"queued", None)]
    except redis.ConnectionError:
        return []
    return wrong + sorted({key.decode() for key in sets} ^ {waiting_runs_key(owner.decode()) for owner in owners})


def _members(client: redis.Redis, key: str) -> Any:
    return client.zrange(key, 0, -1)
