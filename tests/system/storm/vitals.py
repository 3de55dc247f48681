"""What the processes of a fleet and its Redis hold when nothing is under way."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes.leaks import descendants
from tests.system.storm.stage import Stage

_BESIDE = ("deputize:celery:", "deputize:idempotency", "deputize:test")
"""Keys that are not compared: Celery's own, and those by which a request that is sent again is known for a day."""
SPARE_DESCRIPTORS = 8
"""Connections and files that a process may have more at one moment than at another one."""
SPARE_MEMORY = 0.03
"""The part of its memory by which a process may grow in its steady state."""


@dataclass(frozen=True)
class Held:
    """Of one process."""

    pid: int
    memory: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Held:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pid, pages * os.sysconf("SC_PAGE_SIZE"), len([*Path(f"/proc/{pid}/fd").iterdir()]))

    def __str__(self) -> str:
        return f"{self.memory / (1 << 20):.1f} MiB, {self.descriptors} descriptors"


@dataclass
class Vitals:
    """At one moment. ``keys`` are those of Redis by the beginning of their names."""

    processes: dict[str, Held] = field(default_factory=dict[str, Held])
    keys: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    on_disk: int = 0
    """Bytes of the disk of the workspaces, when those of the wave are removed."""
    children: int = 0

    @classmethod
    async def of(cls, stage: Stage) -> Vitals:
        found = cls(on_disk=shutil.disk_usage(stage.home).used, children=len(descendants()))
        nodes = {f"redis {number}": node.process.pid for number, node in enumerate(stage.servers.nodes)}
        for name, pid in ({each.name: each.pid for each in stage.members.values()} | nodes).items():
            with suppress(OSError):
                found.processes[name] = Held.of(pid)
        client = stage.servers.primary.client
        names = await asyncio.to_thread(lambda: [key.decode() for key in client.scan_iter(count=1000)])
        found.keys = Counter(":".join(name.split(":")[:2]) for name in names if not name.startswith(_BESIDE))
        found.bytes = (await asyncio.to_thread(client.info, "memory"))["used_memory"]
        return found

    def lines(self) -> Iterator[str]:
        yield f"Redis: {self.keys.total()} keys, {self.bytes / (1 << 20):.2f} MiB; {self.children} processes"
        yield f"the disk of the workspaces: {self.on_disk / (1 << 20):.1f} MiB"
        yield from (f"{name}: {held}" for name, held in self.processes.items())

    def more_than(self, before: Vitals, *, is_warm: bool) -> Iterator[str]:
        """What there is more of: keys of Redis, and what processes hold that are the same ones.

        ``is_warm``: they had lived long enough by then that their memory may not grow any more.
        """
        if more := self.keys - before.keys:
            yield f"Redis has more keys than before: {dict(more)}"
        for name, held in self.processes.items():
            earlier = before.processes.get(name)
            if earlier is None or earlier.pid != held.pid:
                continue
            if held.descriptors > earlier.descriptors + SPARE_DESCRIPTORS:
                yield f"{name} has {held.descriptors} descriptors, and had {earlier.descriptors}"
            if is_warm and not name.startswith("redis") and held.memory > earlier.memory * (1 + SPARE_MEMORY):
                yield f"{name} has grown from {earlier} to {held}"
