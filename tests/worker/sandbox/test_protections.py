"""What tries the protections of commands sees each of them broken; the sandboxes here let something through."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import SandboxSettings
from deputize.worker.linux.machine import processors
from deputize.worker.sandbox.base import NoSandbox
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.canaries import Canaries
from deputize.worker.sandbox.command import Command, Completed
from deputize.worker.sandbox.environment import owner
from deputize.worker.sandbox.limit_protections import has_ended, is_refused, try_limits
from deputize.worker.sandbox.protections import Make, try_egress, try_isolation
from deputize.worker.web.egress_proxy import EgressProxy
from tests.internet import response
from tests.leaks import descendants
from tests.waiting import until
from tests.worker.web.servers import saying, serving

pytestmark = pytest.mark.system
CANARY = f"deputize-canary-{'0' * 16}"
VARIABLE = {
    "an environment that a command can read holds a variable of the worker",
    "memory that a command can read holds a variable of the worker",
}
NOTHING = {"secrets": set[str](), "files": set[str](), "network": set[str](), "kernel": set[str]()}


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    """As in the process that `deputize doctor` starts, which has one of its variables from it."""
    monkeypatch.setenv("CANARY", CANARY)
    with Canaries(tmp_path) as made:
        yield made
    assert list(tmp_path.iterdir()) == []


class Showing(Bubblewrap):
    """Commands have a variable of the worker, and its private file and that of another run under another path."""

    def __init__(self, workspace: Path, **more: Any) -> None:
        for number, path in enumerate(workspace.parents[1].rglob("canary-*")):
            seen = workspace / f"seen-{number}" / path.name
            seen.parent.mkdir()
            shutil.copy(path, seen)
            os.chown(seen, *(owner() or (-1, -1)))
        super().__init__(workspace, **more)

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        return [*super()._options(command, fds), "--setenv", "CANARY", os.environ["CANARY"]]


class Networked(Bubblewrap):
    """Commands have the network of the machine."""

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        return [option for option in super()._options(command, fds) if option != "--unshare-net"]


class Unfiltered(Bubblewrap):
    """All system calls are allowed."""

    def _options(self, command: Command, fds: list[int]) -> list[str]:
        return super()._options(command, fds)[:-2]


async def broken(canaries: Canaries, make: Make, **more: Any) -> dict[str, set[str]]:
    """What is found wrong, with random names replaced."""
    assert await Bubblewrap.selftest() is None
    tried = await try_isolation(canaries, make=make, **more)
    return {
        promise: {re.sub(r"/[^ ]*/canary-\w+", "FILE", each) for each in found}
        for promise, found in tried.problems.items()
    }


async def test_what_lies_within_sight_is_found(canaries: Canaries) -> None:
    seen = {"a command opened FILE"}
    assert await broken(canaries, Showing) == NOTHING | {"secrets": VARIABLE | seen, "files": seen}


async def test_a_network_is_found_with_redis_on_it(canaries: Canaries) -> None:
    redis = [["Redis", *address] for _, *address in canaries.servers[:1]]
    found = await broken(canaries, Networked, servers=redis)
    reached = {f"a command reached {name}" for name in ("a server on 127.0.0.1", "an abstract socket", "Redis")}
    assert reached <= found["network"]
    assert found["files"] == {"a command reached Redis"}
    assert found["secrets"] == set()
    assert found["kernel"] == {"commands do not have user, pid, mnt, net, ipc namespaces of their own"}


async def test_system_calls_and_sockets_that_are_not_refused_are_found(canaries: Canaries) -> None:
    found = await broken(canaries, Unfiltered)
    assert found | {"kernel": set()} == NOTHING
    for line in (
        "the system call ptrace",
        "the system call unshare",
        "a socket of the family ALG",
        "a program without",
    ):
        assert any(each.startswith(line) for each in found["kernel"]), found["kernel"]


async def test_a_secret_of_the_settings_is_found_in_variables(canaries: Canaries) -> None:
    assert (await broken(canaries, Bubblewrap, secrets=["C.UTF-8"]))["secrets"] == {sorted(VARIABLE)[0]}


async def test_what_finds_nothing_outside_of_a_sandbox_proves_nothing(
    canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CANARY")
    for path in canaries.values:
        path.unlink()
    blind = "nothing is proven: a program outside of the sandbox did not find"
    found = await broken(canaries, Bubblewrap)
    of_worker = ("the variable in its environment", "the variable in its memory", "the private file")
    assert found["secrets"] == {f"{blind} {what}" for what in of_worker}
    assert found["files"] == {f"{blind} the file of another run"}


async def test_the_proxy_reaches_what_is_allowed_and_what_else_it_reaches_is_found(canaries: Canaries) -> None:
    async with serving(saying(response("hello", "text/plain"))) as one, serving(saying(response("", ""))) as two:
        urls = f"http://{one}/", [f"http://{two}/"]
        only = EgressProxy("setting", ["localhost"], 1 << 20, private_hosts=[one])
        assert await try_egress(canaries, only, *urls) == []
        every = EgressProxy("setting", ["localhost"], 1 << 20, private_hosts=[one, two])
        assert await try_egress(canaries, every, *urls) == [f"a command reached http://{two}/, which is not allowed"]
        none = EgressProxy("setting", [], 1 << 20)
        (missed,) = await try_egress(canaries, none, *urls)
        assert missed.startswith("a command did not reach an allowed host: HTTP/1.1 403")


async def test_limits_that_do_not_hold_are_found(canaries: Canaries) -> None:
    wide = SandboxSettings(cpus=len(processors()) + 1)
    found, _ = await try_limits(canaries.workspace, wide, seconds=1)
    assert {each.split()[0] for each in found} == {
        "memory",
        "disk",
        "processes",
        *(["processors"] * (len(processors()) > 1)),
    }


class Unisolated(NoSandbox):
    """Runs commands as processes of this machine that go on."""

    def __init__(self, folder: Path) -> None:
        super().__init__("")
        self._folder = folder

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        options = {"cwd": self._folder, "stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        process = await asyncio.create_subprocess_exec(*command.argv, **options)
        return Completed(await process.wait(), b"up\n", b"")


async def test_a_process_that_goes_on_after_its_command_is_found(tmp_path: Path) -> None:
    before = descendants()
    try:
        assert not await has_ended(20, Unisolated(tmp_path), tmp_path)
    finally:
        for pid in descendants() - before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not descendants() - before)


class Slow(NoSandbox):
    """Ends every command for its time."""

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        return Completed(-9, b"", b"", timed_out=True)


async def test_a_command_that_ran_out_of_time_was_not_refused_any_process(tmp_path: Path) -> None:
    assert not await is_refused(20, Slow(""), tmp_path)
