"""CPU priority of sandboxes: lower than the worker's, and lower still after the first second.

A command that computes for minutes thus delays neither the worker's event loop nor short commands of other runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FIRST = 5
"""Niceness at the start, relative to the worker."""
LATER = 15
"""Niceness after ``LATER_SECONDS``: a tenth of the CPU share of a new command."""
LATER_SECONDS = 1.0


def lower(session: int, processes: Iterable[int], niceness: int) -> None:
    """Sets the niceness of these processes and their future children, relative to the worker. ``session`` is the
    leader of their session.

    It is set for process groups, because for a process it applies to the first thread only, and for the session if
    the kernel schedules by session (autogroup), which ignores the niceness of processes of other sessions.
    """
    niceness = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness, 19)
    groups: set[int] = set()
    for process in (session, *processes):
        with suppress(OSError):  # the process has ended
            group = os.getpgid(process)
            if group not in groups:
                os.setpriority(os.PRIO_PGRP, group, niceness)
                groups.add(group)
    with suppress(OSError):  # the kernel has no autogroups, or permits it only for root
        Path(f"/proc/{session}/autogroup").write_text(str(niceness), "ascii")
