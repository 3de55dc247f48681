"""`python -m tests.system.storm --minutes 10` (`make chaos`): a storm, what it survived, and what was held meanwhile.

Each fault is printed with its seed. ``--seed 17`` begins with the faults of that storm again, ``--seed 17.store.5``
repeats this one alone. The disks are small file systems in memory where this may mount them (root); the clock of Redis
is put forward and back where Debian's ``faketime`` is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes.leaks import CLONE_NEWNS, MS_PRIVATE, MS_REC, adopt_orphans, descendants, described
from tests.system.older_version import older_tree
from tests.system.storm.faults import LANES, Antagonist
from tests.system.storm.stage import FAKETIME, HOME_BYTES, STORE_BYTES, Stage, open_stage
from tests.system.storm.vitals import Vitals
from tests.system.storm.waves import Wave
from tests.waiting import until

WAVE_SECONDS = 30.0
STEADY = 0.15
"""The part of the time after which the fleet counts as in its steady state, and at least two waves."""
WARM_SECONDS = 600.0
"""So long a process fills its caches. In a storm of over 67 minutes memory is held from then on."""


def mount_disks(folder: Path) -> bool:
    """Gives home and store disks of their own, which only this process and its children see."""
    if os.geteuid() != 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    for name, size in {"home": HOME_BYTES, "store": STORE_BYTES}.items():
        (folder / name).mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", folder / name], check=True)
    return True


def seed_of(text: str) -> tuple[int, str | None, int | None]:
    """A storm's number, and the lane and the number of one fault."""
    if not (found := re.fullmatch(r"(\d+)(?:\.(\w+)\.(\d+))?", text)) or (found[2] and found[2] not in LANES):
        raise argparse.ArgumentTypeError(f"{text} is neither N nor N.LANE.N, of the lanes {' and '.join(LANES)}")
    return int(found[1]), found[2], int(found[3]) if found[3] else None


@contextmanager
def mounted(folder: Path) -> Generator[bool]:
    """Yields whether the disks are there, and takes them away again."""
    has_disks = mount_disks(folder)
    try:
        yield has_disks
    finally:
        for each in ("home", "store") if has_disks else ():
            subprocess.run(["umount", "--lazy", folder / each], check=True)


@dataclass
class Storm:
    """What there was so far, and what went wrong."""

    seed: int
    begun: float = field(default_factory=time.monotonic)
    waves: int = 0
    refused: int = 0
    attempts: list[int] = field(default_factory=list[int])
    wrong: list[str] = field(default_factory=list[str])
    first: Vitals | None = None
    """What was held when the steady state began."""
    last: Vitals = field(default_factory=Vitals)

    @property
    def passed(self) -> float:
        return time.monotonic() - self.begun

    def note(self, text: str) -> None:
        print(f"{self.passed:8.1f} {text}", flush=True)

    async def pass_over(self, stage: Stage, wave: Wave, antagonists: list[Antagonist], steady: float) -> None:
        is_steady = self.waves >= 2 and self.passed > steady
        await wave.pass_over(antagonists)
        self.last = await Vitals.of(stage)
        self.first = self.first or (self.last if is_steady else None)
        self.waves += 1
        self.refused += wave.refused
        self.attempts += wave.attempts
        self.wrong += wave.wrong
        came = f"wave {self.waves}: {len(wave.ids)} delegations, {sum(wave.attempts)} attempts, {wave.refused} refusals"
        print(came, *wave.wrong[:20], *self.last.lines(), sep="\n  ", flush=True)

    def end(self, faults: int) -> int:
        """Prints all of it; returns the exit code."""
        if self.first:
            print("when the steady state began:", *self.first.lines(), "at the end:", *self.last.lines(), sep="\n  ")
            self.wrong += self.last.more_than(self.first, is_warm=self.passed * STEADY >= WARM_SECONDS)
        print(
            f"storm {self.seed}: {len(self.attempts)} delegations in {self.waves} waves, {sum(self.attempts)} "
            f"attempts, at most {max(self.attempts, default=0)} for one, {self.refused} refusals, {faults} faults, "
            f"{len(self.wrong)} things wrong",
            *self.wrong[:50],
            sep="\n  ",
        )
        return 1 if self.wrong else 0


async def main(seconds: float, workers: int, number: int, seed: tuple[int, str | None, int | None]) -> int:
    storm = Storm(seed[0])
    antagonists = [Antagonist(lane, seed[0], storm.note, seed[2]) for lane in LANES if seed[1] in (None, lane)]
    with tempfile.TemporaryDirectory(prefix="deputize-") as name, tempfile.TemporaryDirectory() as older:
        folder = Path(name)
        folder.chmod(0o755)
        async with AsyncExitStack() as stack:
            has_disks = stack.enter_context(mounted(folder))
            print(f"storm {storm.seed}; disks of its own: {has_disks}; clocks: {FAKETIME.exists()}", flush=True)
            opened = open_stage(folder, workers, older=older_tree(Path(older)), has_disks=has_disks)
            stage = await stack.enter_async_context(opened)
            while (left := seconds - storm.passed) > 0:
                wave = Wave(stage, f"{storm.seed}-{storm.waves}", number, min(WAVE_SECONDS, left))
                await storm.pass_over(stage, wave, antagonists, STEADY * seconds)
    with suppress(AssertionError):
        await until(lambda: not descendants())  # on a busy machine a killed process takes its time
    storm.wrong += [f"left: {described(pid)}" for pid in descendants()]
    return storm.end(sum(each.done for each in antagonists))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--hours", type=float, default=0, help="in place of minutes")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--delegations", type=int, default=40, help="in each wave")
    parser.add_argument("--seed", type=seed_of, default=(random.randrange(1 << 32), None, None))
    options = parser.parse_args()
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its processes end with it, as after Ctrl-C
    duration = 3600 * options.hours or 60 * options.minutes
    sys.exit(asyncio.run(main(duration, options.workers, options.delegations, options.seed)))
