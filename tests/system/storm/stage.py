"""What a storm falls on: a Redis with a replica, workers and services, each with a link of its own to Redis."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

import redis

from deputize.orchestrator.client import Client
from deputize.orchestrator.scopes import Scope
from deputize.orchestrator.sockets import free_port
from tests.orchestrator.access_tokens import entry, secret_of, write
from tests.processes.link import Link
from tests.processes.preloaded import Forked
from tests.processes.replication import Replicated
from tests.runs.fleet import Fleet, open_fleet
from tests.system.crashing import WORKER, Counting
from tests.system.older_version import SERVICE, Versions
from tests.waiting import until

TENANTS = ("red", "blue")
SETTINGS: dict[str, Any] = {
    "lease_seconds": 2,
    "claim_seconds": 5,
    "max_attempts": 1000,
    "shutdown_seconds": 1,
    "sandbox": {"disk_bytes": 8 << 20},
    "redis": {"replicas": 1},
    "local": False,
}
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
"""Debian's package ``faketime``. Without it, or elsewhere, no clock is put forward or back."""
HOME_BYTES, STORE_BYTES = 768 << 20, 512 << 20


@dataclass
class Member:
    """A process of the fleet. Another one takes its place when it has ended."""

    name: str
    link: Link
    program: str
    older: bool = False
    process: Popen[str] | Forked | None = None
    starts: int = 0
    is_being_ended: bool = False
    """Whether a fault ends it, and starts another one. The other lane's faults leave it alone."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        if not self.has_ended:
            assert self.process is not None
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


@dataclass
class Stage:
    """Everything that faults can fall on. The first worker and the first service are spared where others die."""

    folder: Path
    servers: Replicated
    fleet: Fleet
    counting: Counting
    older: Path | None = None
    has_disks: bool = False
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    clients: dict[str, list[Client]] = field(default_factory=dict[str, list[Client]])
    ports: dict[str, int] = field(default_factory=dict[str, int])
    wrong: list[str] = field(default_factory=list[str])
    """What no delegation shows."""

    @property
    def home(self) -> Path:
        return self.fleet.settings.home

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    @property
    def workers(self) -> list[Member]:
        return [each for each in self.members.values() if each.program == WORKER]

    @property
    def mortal(self) -> list[Member]:
        """Those that may be killed: not the first worker and the first service, whose memory is watched."""
        return [each for each in self.members.values() if not each.name.endswith("0")]

    async def start(self, member: Member) -> None:
        member.starts += 1
        name = f"{member.name}-{member.starts}"
        arguments = ("--name", name) if member.program == WORKER else ("--port", str(self.ports[member.name]))
        environment = self.fleet.settings.child_environment() | {"DEPUTIZE_REDIS_URL": member.link.url}
        versions = Versions(self.older or self.folder, environment, self.folder)
        await versions.start("older" if member.older else "newer", name, member.program, *arguments)
        member.process = versions.running[name]

    async def end(self, member: Member, number: signal.Signals, seconds: float = 60) -> None:
        """Ends a process, and starts another one in its place. Shows where one stands that does not end in time."""
        member.is_being_ended = True
        member.signal(number)
        member.signal(signal.SIGCONT)
        try:
            await until(lambda: member.has_ended, seconds)
        except AssertionError:
            member.signal(signal.SIGABRT)  # it writes its stacks into its log
            await until(lambda: member.has_ended)
            log = (self.folder / f"{member.name}-{member.starts}.log").read_text()
            self.wrong.append(f"{member.name} has not ended {seconds:.0f} s after {number.name}:\n{log[-6000:]}")
        await self.start(member)
        member.is_being_ended = False

    async def replace_ended(self) -> list[str]:
        """Starts others for those that have ended by themselves; returns their names."""
        ended = [each for each in self.members.values() if each.has_ended and not each.is_being_ended]
        for each in ended:
            await self.start(each)
        return [each.name for each in ended]

    async def all_answer(self) -> None:
        """Waits until each service and each worker is there."""

        async def ready() -> bool:
            await self.replace_ended()
            try:
                cards = {card.pid for card in await self.fleet.service.workers()}
            except redis.RedisError:
                return False
            refused = await asyncio.gather(*(client.not_ready() for client in self.clients[TENANTS[0]]))
            return {each.pid for each in self.workers} <= cards and not any(refused)

        await until(ready, 120)

    def set_clock(self, seconds: float) -> None:
        """Of the servers of Redis. They read it within two seconds."""
        self.clock.write_text(f"{seconds:+.0f}")


def clock_environment(clock: Path) -> dict[str, str] | None:
    """The environment in which a program has the clock of that file, which may be put forward and back."""
    if not FAKETIME.exists():
        return None
    clock.write_text("+0")
    own = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1"}
    return {**os.environ, **own, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


def remove_clocks() -> None:
    """Removes what faketime has left of processes that were killed: two files each, named by their numbers."""
    for path in Path("/dev/shm").glob("*faketime_s*"):
        if not Path("/proc", path.name.rpartition("_")[2]).exists():
            path.unlink(missing_ok=True)


@asynccontextmanager
async def open_stage(
    folder: Path, workers: int, *, older: Path | None = None, has_disks: bool = False
) -> AsyncGenerator[Stage]:
    """Half of the workers are of the older version, where there is one."""
    (folder / "store").mkdir(exist_ok=True)
    servers = await asyncio.to_thread(Replicated, folder / "store", 1, environment=clock_environment(folder / "clock"))
    secrets = write(folder / "tokens.toml", *(entry(name, Scope.READ, Scope.SUBMIT) for name in TENANTS))
    async with AsyncExitStack() as stack:
        stack.callback(remove_clocks)
        stack.callback(servers.close)
        settings = SETTINGS | {"tokens_file": secrets}
        fleet = await stack.enter_async_context(open_fleet(servers.url, folder / "home", **settings))
        counting = await stack.enter_async_context(Counting.open())
        stage = Stage(folder, servers, fleet, counting, older, has_disks)
        stack.push_async_callback(_end_all, stage)
        for name, program in _names(workers):
            link = Link(folder / f"{name}.sock", Path(servers.url.removeprefix("unix://")))
            await stack.enter_async_context(link.passing())
            is_older = program == WORKER and older is not None and int(name[1:]) % 2 == 1
            stage.members[name] = Member(name, link, program, is_older)
            if program == SERVICE:
                stage.ports[name] = free_port()
        for tenant in TENANTS:
            opened = [Client(f"http://127.0.0.1:{port}", secret_of(tenant)) for port in stage.ports.values()]
            stage.clients[tenant] = [await stack.enter_async_context(client) for client in opened]
        for member in stage.members.values():
            await stage.start(member)
        await stage.all_answer()
        yield stage


def _names(workers: int) -> Iterator[tuple[str, str]]:
    yield from ((f"w{number}", WORKER) for number in range(workers))
    yield from ((f"s{number}", SERVICE) for number in range(2))


async def _end_all(stage: Stage) -> None:
    for member in stage.members.values():
        member.signal(signal.SIGCONT)
        member.signal(signal.SIGKILL)
        await until(partial(getattr, member, "has_ended"))
