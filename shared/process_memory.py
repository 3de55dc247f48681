"""The memory of a process of ours: keys and tokens are in it, and in the environment it was started with."""

from __future__ import annotations

import ctypes
import sys

PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """Other processes of this user, a command or a server of a run above all, may not read this one's memory."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
