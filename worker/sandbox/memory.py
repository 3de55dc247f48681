"""The memory limit of a sandbox: what its processes hold together, not the address space that they reserve.

Interpreters and compilers with a heap of their own (Node, the JVM, WebAssembly, Go) reserve many times what they use,
so a limit of the address space refuses them. Control groups need a delegation that containers and login sessions
seldom have. So the processes are measured, the more often the closer they are to the limit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize

from deputize.worker.linux.tree import descendants
from deputize.worker.sandbox.process import Process

_FASTEST = 4 << 30
"""Bytes per second that processes are assumed to take at most."""
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two measurements."""
_OWN_PAGES = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB$", re.MULTILINE)


def limit_memory(process: Process, limit: int, on_exceeded: Callable[[str], None]) -> None:
    """Kills ``process`` with all it has started as soon as they hold more than ``limit`` bytes together.

    ``on_exceeded`` is called before with a sentence about it.
    """
    loop = asyncio.get_running_loop()

    def measure() -> None:
        if not process.ended.done():
            measuring = loop.run_in_executor(None, memory_of, process.init_pid, limit)
            measuring.add_done_callback(decide)

    def decide(measured: asyncio.Future[int]) -> None:
        nonlocal next_time
        if process.ended.done() or measured.cancelled() or measured.exception():
            return
        used = measured.result()
        if used > limit:
            on_exceeded(
                f"[killed: its processes used {used / (1 << 30):.2g} GiB of memory together, and the limit is "
                f"{limit / (1 << 30):.3g} GiB (sandbox.memory_bytes)]\n"
            )
            process.kill()
            return
        next_time = loop.call_later(min(max((limit - used) / _FASTEST, _SHORTEST), _LONGEST), measure)

    next_time = loop.call_later(_SHORTEST, measure)
    process.ended.add_done_callback(lambda _: next_time.cancel())


def memory_of(init: int, enough: int) -> int:
    """Returns the bytes that a process and its descendants hold together.

    Up to ``enough`` it is an upper bound that takes microseconds: pages that several of them share count for each.
    """
    pids = [init, *descendants(init)] if init else []
    resident = sum(map(_resident, pids))
    return resident if resident <= enough else sum(map(_proportional, pids))


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
