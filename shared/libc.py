"""The C library, loaded once a process, and what is asked of it beyond Python's own modules."""

from __future__ import annotations

import ctypes
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def send_on_death_of_parent(number: int) -> None:
    """Has the kernel send this process a signal when the thread that forked it ends. May be called before an exec."""
    LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def keep_memory_private() -> None:
    """Other processes of this user, a command or a server of a run above all, may not read this one's memory.

    Keys and tokens are in it, and in the environment it was started with.
    """
    if sys.platform == "linux":
        LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
