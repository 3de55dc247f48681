"""What this machine has, or the container that this process runs in: memory and processors."""

from __future__ import annotations

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
