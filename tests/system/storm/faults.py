"""What happens to a stage, drawn from seeds: the same seed is the same fault with the same lengths of time.

What a process does just then is not drawn from it. So a seed that found something may have to be repeated.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import redis

from tests.system.storm.stage import Member, Stage

Note = Callable[[str], None]
Fault = Callable[[Stage, random.Random, Note], Awaitable[None]]
LAG = 5.0
DRAIN_SECONDS = 30.0


def _one_of(chance: random.Random, members: list[Member]) -> Member:
    return chance.choice(sorted(members, key=lambda each: each.name))


async def kill(stage: Stage, chance: random.Random, note: Note) -> None:
    member = _one_of(chance, stage.mortal)
    note(f"kills {member.name}")
    await stage.end(member, signal.SIGKILL)


async def freeze(stage: Stage, chance: random.Random, note: Note) -> None:
    member, seconds = _one_of(chance, stage.mortal), chance.uniform(0.2, 6)
    note(f"stops {member.name} for {seconds:.1f} s")
    member.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    member.signal(signal.SIGCONT)


async def drain(stage: Stage, chance: random.Random, note: Note) -> None:
    member = _one_of(chance, stage.mortal)
    note(f"asks {member.name} to stop")
    await stage.end(member, signal.SIGTERM, DRAIN_SECONDS)


async def cut(stage: Stage, chance: random.Random, note: Note) -> None:
    member = _one_of(chance, list(stage.members.values()))
    silently, seconds = chance.random() < 0.5, chance.uniform(0.2, 5)
    note(f"cuts {member.name} off from Redis {'silently ' if silently else ''}for {seconds:.1f} s")
    member.link.cut(silently=silently)
    await asyncio.sleep(seconds)
    member.link.restore()


async def upgrade(stage: Stage, chance: random.Random, note: Note) -> None:
    """A worker of the older version is replaced by one of this version; where there is none, nothing happens."""
    if older := [each for each in stage.members.values() if each.older]:
        member = _one_of(chance, older)
        note(f"upgrades {member.name}")
        member.older = False
        await stage.end(member, chance.choice([signal.SIGTERM, signal.SIGKILL]), DRAIN_SECONDS)


async def fail_over(stage: Stage, chance: random.Random, note: Note) -> None:
    """The replica takes over, as it is. Workers of the older version do not wait for replicas: not beside them."""
    lag, catches_up = chance.uniform(0, LAG), chance.random() < 0.5
    if any(each.older for each in stage.members.values()):
        return
    note(f"fails over to a replica {lag:.1f} s behind{', which catches up' if catches_up else ''}")
    before, (replica,) = stage.servers.primary, stage.servers.replicas
    await asyncio.to_thread(replica.lag)
    await asyncio.sleep(lag)
    if catches_up:
        await asyncio.to_thread(replica.follow, before)
        await asyncio.sleep(chance.uniform(0, 0.2))
    await asyncio.to_thread(stage.servers.fail_over, replica)
    await asyncio.to_thread(stage.servers.rejoin, before)


async def restart(stage: Stage, chance: random.Random, note: Note) -> None:
    seconds = chance.uniform(0, 3)
    note(f"kills Redis for {seconds:.1f} s")
    stage.servers.primary.kill()
    await asyncio.sleep(seconds)
    await asyncio.to_thread(stage.servers.primary.start)


async def freeze_redis(stage: Stage, chance: random.Random, note: Note) -> None:
    seconds = chance.uniform(0.2, 6)
    note(f"stops Redis for {seconds:.1f} s")
    stage.servers.primary.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    stage.servers.primary.process.send_signal(signal.SIGCONT)


async def fill_memory(stage: Stage, chance: random.Random, note: Note) -> None:
    seconds = chance.uniform(0.5, 5)
    note(f"lets Redis have no memory for {seconds:.1f} s")
    client = stage.servers.primary.client
    await asyncio.to_thread(client.config_set, "maxmemory", 1)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(client.config_set, "maxmemory", 0)


async def step_clock(stage: Stage, chance: random.Random, note: Note) -> None:
    seconds = chance.uniform(-20, 20)
    note(f"sets the clock of Redis {seconds:+.0f} s off")
    stage.set_clock(seconds)
    await asyncio.sleep(chance.uniform(2, 5))


async def fill_home(stage: Stage, chance: random.Random, note: Note) -> None:
    seconds = chance.uniform(0.5, 5)
    note(f"fills the disk of the workspaces for {seconds:.1f} s")
    with _Full(stage.home / "filler"):
        await asyncio.sleep(seconds)


async def fill_store(stage: Stage, chance: random.Random, note: Note) -> None:
    """With ``appendfsync always`` a server ends that cannot write; whoever looks after it starts it again."""
    seconds = chance.uniform(0.2, 3)
    note(f"fills the disk of Redis for {seconds:.1f} s")
    with _Full(stage.folder / "store" / "filler"):
        await asyncio.sleep(seconds)
    primary, (replica,) = stage.servers.primary, stage.servers.replicas
    for node in (primary, replica):
        with suppress(redis.RedisError):  # it has ended, or ends now
            await asyncio.to_thread(node.client.ping)
        if node.process.poll() is not None:
            await asyncio.to_thread(node.start)
    await asyncio.to_thread(replica.follow, primary)


def _free(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


class _Full:
    """A file that takes all that a disk has left."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY)
        with suppress(OSError):
            while free := _free(self._path):
                os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, free)
        os.close(descriptor)

    def __exit__(self, *_: object) -> None:
        self._path.unlink()


LANES: dict[str, tuple[Fault, ...]] = {
    "fleet": (kill, kill, freeze, drain, cut, cut, upgrade),
    "store": (fail_over, fail_over, restart, freeze_redis, fill_memory, step_clock, fill_home, fill_store),
}
"""Those of a lane follow each other; the lanes are beside each other."""
NEED_DISKS = (fill_home, fill_store)


@dataclass
class Antagonist:
    """Lets faults of one lane happen, one after the other. ``only`` is the number of the one that is repeated."""

    lane: str
    seed: int
    note: Note
    only: int | None = None
    pause: float = 2.0
    done: int = 0
    _numbers: count[int] = field(default_factory=count)

    async def rage(self, stage: Stage, calm: asyncio.Event) -> None:
        """Returns when it is calm, and the last fault is over."""
        while not calm.is_set():
            number = next(self._numbers) if self.only is None else self.only
            name = f"{self.seed}.{self.lane}.{number}"
            chance = random.Random(name)
            fault = chance.choice(LANES[self.lane])
            with suppress(TimeoutError):
                await asyncio.wait_for(calm.wait(), chance.uniform(0.2, 1) * self.pause)
                return
            if fault in NEED_DISKS and not stage.has_disks:
                continue
            await fault(stage, chance, lambda text, name=name: self.note(f"{name} {text}"))
            self.done += 1
            for ended in await stage.replace_ended():
                self.note(f"{name} {ended} had ended by itself")
