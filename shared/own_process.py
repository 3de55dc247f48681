"""What the kernel does with this process: its end with its parent, who may read its memory, and what it takes back."""

from __future__ import annotations

import sys
from contextlib import suppress

from .libc import LIBC

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_M_MMAP_THRESHOLD, _M_MOST_HEAPS = -3, -8
LARGE_BYTES, HEAPS = 1 << 20, 2


def send_on_death_of_parent(number: int) -> None:
    """Makes the kernel send this process a signal when the thread that forked it ends. Safe before an exec."""
    LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def keep_memory_private() -> None:
    """Denies other processes of this user, such as a run's commands and servers, access to this one's memory.

    It holds keys and tokens, as does the environment the process was started with.
    """
    if sys.platform == "linux":  # pragma: no branch - tests run on Linux; elsewhere there is no prctl
        LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_memory_private() -> bool:
    """Whether other processes of this user are denied access to this one's memory."""
    return sys.platform == "linux" and LIBC.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) == 0


def return_large_memory() -> None:
    """Makes each block of over ``LARGE_BYTES`` go back to the kernel as soon as it is freed, and threads share heaps.

    By default glibc raises this limit with each such block, up to 32 MiB. Later ones then stay in the heap of their
    thread, of which a process has eight for each core: a worker keeps 8 MiB for each that ever read a large file.
    """
    with suppress(AttributeError):  # another C library than glibc has no such limits
        LIBC.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        LIBC.mallopt(_M_MOST_HEAPS, HEAPS)
