"""What the kernel does with this process: its end with its parent, and who may read its memory."""

from __future__ import annotations

import sys

from .libc import LIBC

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


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
