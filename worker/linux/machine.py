"""What this machine has, or the container that this process runs in, and what it has run out of."""

from __future__ import annotations

import errno
import os
import re
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
    """Returns the numbers of the processors that this process may use."""
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
