"""The means of this system: processors, memory, the kernel's features, free space on disk."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where containers see their own limit, by version of the control groups."""


def memory_bytes(root: Path = Path("/")) -> int:
    """Returns the memory that there is for this process and all others beside it."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", (root / "proc/meminfo").read_text("ascii"), re.MULTILINE)
    limits = [int(found[1]) * 1024] if found else []
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # ``max`` is not a number
            limits.append(int((root / name).read_text("ascii")))
    return min(limits)


def processors() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def exhausted(error: BaseException) -> str | None:
    """Returns what the machine has run out of where that is the cause of the error, with a remedy; None elsewhere."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    match error.errno if isinstance(error, OSError) else None:
        case errno.ENOSPC | errno.EDQUOT:
            where = f" at {error.filename}" if isinstance(error, OSError) and error.filename else ""
            return f"no space left on the worker's disk{where}; free some, or put DEPUTIZE_WORKSPACE_ROOT elsewhere"
        case errno.EMFILE | errno.ENFILE:
            return "the worker has too many open files; raise its limit (ulimit -n), or lower DEPUTIZE_CONCURRENCY"
        case errno.ENOMEM | errno.EAGAIN:
            return (
                f"no memory or process is left for the worker ({error}); raise its limits or lower DEPUTIZE_CONCURRENCY"
            )
        case _:
            return None


def taken_bytes(folders: Sequence[Path], seconds: float, *, unreadable: bool = False) -> int | None:
    """Returns what the directories take on disk; None where that is not known within so many seconds. Blocks.

    ``unreadable``: with the privileges of a user namespace, so that directories without read permission count, too.
    """
    command = ["du", "-skxc", "--", *map(str, folders)]
    tries = [["unshare", "--map-root-user", *command]] if unreadable and os.geteuid() != 0 else []
    for each in (*tries, command):
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(each, check=False, capture_output=True, timeout=seconds)
            # A line before the total: without one no directory could be measured.
            if found := re.search(rb"\n(\d+)\ttotal\n$", done.stdout):
                return int(found[1]) * 1024
    return None
