"""Each row of the table of protections is tried: a sandbox that lacks its protection fails that row and no other."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.promises import PROMISES
from deputize.shared.settings import SandboxSettings, Settings
from deputize.worker.contracts import Command, Completed
from deputize.worker.linux.system import processors
from deputize.worker.sandbox import environment, seccomp
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.protections import (
    AT_START,
    BY_LIMIT,
    BY_PROBE,
    BY_PROXY,
    FROM_OUTSIDE,
    Make,
    Problems,
    Protection,
    run_selftest,
)
from deputize.worker.sandbox.trials import LIMITS, Canaries, try_commands, try_egress, try_limits
from deputize.worker.web.egress_proxy import EgressProxy
from tests.network.internet import response
from tests.worker.forked import need_root
from tests.worker.web.servers import saying, serving

pytestmark = pytest.mark.system
CANARY = f"deputize-canary-{'0' * 16}"
SECONDS = 12
UNSHARE, KEYCTL = ({"x86_64": 272, "aarch64": 97}, {"x86_64": 250, "aarch64": 219})
ALLOW = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
Change = Callable[[list[str], list[int]], list[str]]


def changed(change: Change) -> Make:
    """Sandboxes with other options."""

    class Changed(Bubblewrap):
        def _options(self, command: Command, fds: list[int]) -> list[str]:
            return change(super()._options(command, fds), fds)

    return Changed


def without(option: str) -> Make:
    return changed(lambda options, fds: [each for each in options if each != option])


def inserted(*more: str) -> Make:
    """With further mounts, before the root is made read-only."""
    return changed(lambda options, fds: [*options[: root(options)], *more, *options[root(options) :]])


def root(options: list[str]) -> int:
    return next(at for at, each in enumerate(options) if options[at : at + 2] == ["--remount-ro", "/"])


def filtered(old: bytes, new: bytes) -> Change:
    """With another filter of system calls."""

    def change(options: list[str], fds: list[int]) -> list[str]:
        program = seccomp.program()
        assert program.count(old) == 1
        os.pwrite(int(options[-1]), program.replace(old, new), 0)
        return options

    return change


def compared(number: int) -> bytes:
    """The step of the filter that the next one belongs to."""
    return struct.pack("=HBBI", 0x15, 0, 1, number)


def allowing(numbers: Mapping[str, int]) -> Change:
    """Lets one system call through."""
    return filtered(compared(numbers[os.uname().machine]), compared(9999))


def unfiltered(options: list[str], fds: list[int]) -> list[str]:
    os.close(fds.pop())
    return options[:-2]


def opened(options: list[str], fds: list[int]) -> list[str]:
    fds.append(os.open("/dev/null", os.O_RDONLY))
    return options


class Inheriting(Bubblewrap):
    """The first process has a variable of the worker."""

    def _command_line(self, *given: Any, **more: Any) -> list[str]:
        line = super()._command_line(*given, **more)
        at = line.index("--args") - 1
        return [*line[:at], environment.system_program("env"), "LEAKED=x", *line[at:]]


def running(change: Callable[[Command], Command]) -> Make:
    class Running(Bubblewrap):
        async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
            return await super().run(change(command), on_output)

    return Running


class Wide(Bubblewrap):
    """A command may have many processes."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.bounds.limits = SandboxSettings(processes=300)


class Rooted(Bubblewrap):
    """What a command writes belongs to root."""

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        done = await super().run(command, on_output)
        os.chown(self._workspace / "probe", 0, 0)
        return done


class Lasting(Bubblewrap):
    """A process reads the pipe of a command after its end: this one."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._kept: list[int] = []

    async def run(self, command: Command, on_output: Callable[[bytes], None] | None = None) -> Completed:
        try:
            return await super().run(command, on_output)
        finally:
            with suppress(FileNotFoundError):
                self._kept.append(os.open(self._workspace / "alive", os.O_RDONLY | os.O_NONBLOCK))

    def close(self) -> None:
        super().close()
        while self._kept:
            os.close(self._kept.pop())


def showing(folder: str) -> Make:
    """A copy of a private file lies in the workspace."""

    class Showing(Bubblewrap):
        def __init__(self, workspace: Path, *given: Any, **more: Any) -> None:
            (path,) = (workspace.parents[1] / folder).rglob("canary-*")
            shutil.copy(path, workspace)
            os.chown(workspace / path.name, *(environment.owner() or (-1, -1)))
            super().__init__(workspace, *given, **more)

    return Showing


class Serving(Bubblewrap):
    """A socket in the workspace leads to a server of the machine."""

    def __init__(self, workspace: Path, *given: Any, **more: Any) -> None:
        super().__init__(workspace, *given, **more)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(f"/proc/self/fd/{self._fd}/redis")
        self._server.listen()
        (workspace / "redis").chmod(0o777)

    def close(self) -> None:
        super().close()
        self._server.close()


LACKING_AT_START: Sequence[tuple[Protection, Make]] = tuple(
    zip(
        (*AT_START, *FROM_OUTSIDE),
        (
            Inheriting,
            running(lambda command: replace(command, env={"LEAKED": "x"})),
            inserted("--dir", "/srv"),
            changed(lambda options, fds: [*options[: root(options)], *options[root(options) + 2 :]]),
            without("--unshare-net"),
            without("--unshare-ipc"),
            inserted("--ro-bind", "/proc", "/proc"),
            changed(opened),
            changed(unfiltered),
            inserted("--dev-bind", "/dev/null", "/proc/sys/kernel/core_pattern"),
            changed(
                lambda options, fds: [each for each in allowing(UNSHARE)(options, fds) if each != "--disable-userns"]
            ),
            changed(lambda options, fds: [*options, "--uid", "1001"]),
            Wide,
            partial(Bubblewrap, read_only=True),
            Rooted,
            Lasting,
        ),
        strict=True,
    )
)
"""A sandbox that lacks it, by protection."""
LACKING_BY_PROBE: Sequence[tuple[Protection, Make]] = tuple(
    zip(
        BY_PROBE,
        (
            changed(lambda options, fds: [*options, "--setenv", "CANARY", CANARY]),
            running(lambda command: replace(command, argv=[*command.argv, CANARY])),
            showing("private"),
            showing("other"),
            inserted("--dev-bind", "/dev/null", "/etc/shadow"),
            Serving,
            without("--unshare-net"),
            changed(allowing(KEYCTL)),
            changed(filtered(compared(16) + ALLOW, compared(38) + ALLOW)),
        ),
        strict=True,
    )
)


def each_of(lacking: Sequence[tuple[Protection, Make]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("row", "make"), lacking, ids=[row.tries for row, _ in lacking])


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    """As in the process that `deputize doctor` starts, which has one of its variables from it."""
    monkeypatch.setenv("CANARY", CANARY)
    with Canaries(tmp_path) as made:
        yield made
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def crowd() -> Iterator[None]:
    """More processes than a sandbox has."""
    started = [subprocess.Popen(["sleep", "1000"]) for _ in range(16)]
    yield
    for each in started:
        each.kill()
        each.wait()


def assert_broken(problems: list[str], row: Protection) -> None:
    pattern = re.escape(row.broken).replace(r"\{\}", ".+")
    assert problems
    assert [each for each in problems if not re.fullmatch(pattern, each)] == []


@each_of(LACKING_AT_START)
async def test_a_worker_does_not_start_with_a_sandbox_that_lacks_a_protection(
    row: Protection, make: Make, tmp_path: Path, crowd: None
) -> None:
    if make is Rooted:
        need_root()
    bwrap = environment.find_bubblewraps()[:1]
    found = await run_selftest(make, tmp_path, bwrap)
    assert found.reason is not None
    assert found.reason.startswith(f"{bwrap[0].program}: ")
    assert_broken(found.reason.partition(": ")[2].partition(". Install bubblewrap")[0].split("; "), row)
    assert list(tmp_path.iterdir()) == []


async def tried(canaries: Canaries, make: Make = Bubblewrap, **environ: str) -> Problems:
    assert await Bubblewrap.selftest() is None
    settings = Settings.load(environ={"DEPUTIZE_SANDBOX_FIND_TOOLS": "false", **environ})
    problems, notes = await try_commands(make, canaries, settings)
    assert {"PATH", "HOME"} <= {*notes["secrets"].removeprefix("; they find ").split(", ")}
    return problems


def broken(problems: Problems) -> Problems:
    return {promise: found for promise, found in problems.items() if found}


@each_of(LACKING_BY_PROBE)
async def test_the_doctor_finds_that_a_protection_of_commands_is_missing(
    row: Protection, make: Make, canaries: Canaries
) -> None:
    found = broken(await tried(canaries, make, DEPUTIZE_REDIS_URL="unix:///workspace/redis"))
    assert found.keys() == {row.promise}
    assert_broken(found[row.promise], row)
    if row.tries in ("private", "neighbour"):
        name = canaries.paths[row.tries][0].name
        assert all(name in each for each in found[row.promise])


async def test_all_is_well_with_a_whole_sandbox(canaries: Canaries) -> None:
    found = await tried(canaries)
    assert broken(found) == {}
    assert found.keys() == {promise.name for promise in PROMISES if promise.by_command} - {"bounds"}


async def test_a_secret_of_the_settings_is_found_in_variables(canaries: Canaries) -> None:
    found = broken(await tried(canaries, DEPUTIZE_TOKEN="C.UTF-8"))
    assert found == {"secrets": [BY_PROBE[0].broken]}


async def test_what_finds_nothing_outside_of_a_sandbox_proves_nothing(
    canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CANARY")
    for path in (canaries.private, canaries.neighbour):
        path.unlink()
    canaries.servers.append(["another server", socket.AF_UNIX, socket.SOCK_STREAM, "/nowhere"])
    blind = "nothing is proven: a program outside of the sandbox did not find"
    found = [each for problems in (await tried(canaries)).values() for each in problems]
    assert found == [f"{blind} {row.seen}" for row in BY_PROBE if row.seen]


async def test_the_proxy_reaches_what_is_allowed_and_what_else_it_reaches_is_found(canaries: Canaries) -> None:
    async with serving(saying(response("hello", "text/plain"))) as one, serving(saying(response("", ""))) as two:
        urls = f"http://{one}/", [f"http://{two}/"]
        for hosts, ports, row in (
            (["localhost"], [one], None),
            ([], [], BY_PROXY[0]),
            (["localhost"], [one, two], BY_PROXY[1]),
        ):
            reach = EgressProxy("setting", hosts, 1 << 20, private_hosts=ports)
            found = broken(await try_egress(Bubblewrap, canaries, reach, *urls))
            assert found.keys() == ({row.promise} if row else set())
            if row:
                assert_broken(found[row.promise], row)


UNLIMITED: dict[Protection, Mapping[str, int]] = dict(
    zip(
        BY_LIMIT,
        ({"memory_bytes": 4 << 30}, {"disk_bytes": 1 << 30}, {"processes": 256}, {"cpus": len(processors()) + 1}, {}),
        strict=True,
    )
)


@pytest.mark.long
@pytest.mark.parametrize("row", BY_LIMIT, ids=[row.broken for row in BY_LIMIT])
async def test_a_limit_that_does_not_hold_is_found(row: Protection, canaries: Canaries) -> None:
    if row.tries == "nproc" and len(processors()) == 1:
        pytest.skip("SKIPPED: there is one processor")
    limits, make = LIMITS.model_copy(update=dict(UNLIMITED[row])), Bubblewrap if UNLIMITED[row] else Lasting
    assert await Bubblewrap.selftest() is None
    problems, _ = await try_limits(make, canaries, limits, SECONDS)
    assert_broken(problems["bounds"], row)


def test_a_command_that_ran_out_of_time_has_not_met_its_limit() -> None:
    assert [row for row in BY_LIMIT if not row.problems("timed out")] == []


def test_every_protection_belongs_to_a_promise_about_commands() -> None:
    rows = (*AT_START, *FROM_OUTSIDE, *BY_PROBE, *BY_PROXY, *BY_LIMIT)
    assert {row.promise for row in rows} == {promise.name for promise in PROMISES if promise.by_command}
