"""The use by processes of sandboxes: memory, processes, and space on disk and in /tmp.

Memory in use counts, not reserved address space: interpreters and compilers with a heap of their own (Node, the JVM,
WebAssembly, Go) reserve many times what they use. Everything here blocks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize

from ..linux.system import taken_bytes
from ..linux.tree import descendants

_OWN_PAGES = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)
_WRITTEN = re.compile(rb"^write_bytes: (\d+)$", re.MULTILINE)
_IN_MEMORY = ("tmp", "dev/shm")
_DU_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one sandbox."""

    memory: int = 0
    """Bytes, its files in memory included."""
    processes: int = 0
    """Threads included."""
    tmp: int = 0
    """Bytes of its /tmp, which are part of ``memory``."""


def size(count: float) -> str:
    """Returns bytes as text."""
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def usages(inits: Sequence[int], enough: int) -> list[Usage]:
    """Returns what the sandboxes with these first processes hold.

    As long as all together hold no more memory than ``enough``, that is an upper bound which takes microseconds:
    pages that several processes share count for each.
    """
    trees = [[init, *descendants(init)] if init else [] for init in inits]
    files = [[_files_in_memory(init, name) for name in _IN_MEMORY] for init in inits]
    memory = [sum(map(_resident, tree)) + sum(held) for tree, held in zip(trees, files, strict=True)]
    if sum(memory) > enough:
        memory = [sum(map(_proportional, tree)) + sum(held) for tree, held in zip(trees, files, strict=True)]
    threads = [sum(map(_threads, tree)) for tree in trees]
    return [Usage(*each) for each in zip(memory, threads, (held[0] for held in files), strict=True)]


def disk_bytes(folders: Sequence[Path], inits: Sequence[int] = ()) -> int:
    """Returns what the directories take on disk, and the files that were deleted there and are still open."""
    taken = taken_bytes(folders, _DU_SECONDS, unreadable=True)
    return 0 if taken is None else taken + _deleted_bytes(folders, inits)


def written_bytes(init: int) -> int:
    """Returns how much the processes of a sandbox have written to disks so far."""
    written = 0
    for pid in (init, *descendants(init)) if init else ():
        with suppress(OSError):
            found = _WRITTEN.search(Path(f"/proc/{pid}/io").read_bytes())
            written += int(found[1]) if found else 0
    return written


def _deleted_bytes(folders: Sequence[Path], inits: Sequence[int]) -> int:
    devices = set[int]()
    for folder in folders:
        with suppress(FileNotFoundError):
            devices.add(folder.stat().st_dev)
    found: dict[tuple[int, int], int] = {}
    for entry in _open_files(inits):
        with suppress(OSError):
            held = entry.stat()
            if stat.S_ISREG(held.st_mode) and held.st_nlink == 0 and held.st_dev in devices:
                found[held.st_dev, held.st_ino] = held.st_blocks * 512
    return sum(found.values())


def _open_files(inits: Sequence[int]) -> Iterator[os.DirEntry[str]]:
    for init in inits:
        for pid in (init, *descendants(init)) if init else ():
            with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
                yield from entries


def _files_in_memory(init: int, name: str) -> int:
    with suppress(OSError):
        found = os.statvfs(f"/proc/{init}/root/{name}")
        return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * getpagesize()
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Returns the bytes that the kernel cannot take back, of shared ones this process's part."""
    try:
        found = _OWN_PAGES.findall(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
    except ProcessLookupError:
        return 0
    except OSError:  # not permitted
        return _resident(pid)
    return sum(map(int, found)) * 1024


def _threads(pid: int) -> int:
    with suppress(OSError):
        return len([*Path(f"/proc/{pid}/task").iterdir()])
    return 0
