"""What sandboxes get of a busy machine: less than the worker, and what has run for a while less than what begins.

So a command that computes for minutes holds up neither the worker's event loop nor the short commands of other runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FIRST = 5
"""How much nicer than the worker is what begins."""
LATER = 15
"""And what has run for ``LATER_SECONDS``: a tenth of the share of one that begins."""
LATER_SECONDS = 1.0


def lower(session: int, processes: Iterable[int], niceness: int) -> None:
    """Makes these processes, and what they will start, so much nicer than the worker. The first one of their session
    is ``session``.

    Whole process groups, because a process's own number means only its first thread. Where the kernel divides the
    machine among sessions (autogroup) the session gets it, too: between sessions, that of a process means nothing.
    """
    niceness = min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness, 19)
    groups: set[int] = set()
    for process in (session, *processes):
        with suppress(OSError):  # it has ended
            group = os.getpgid(process)
            if group not in groups:
                os.setpriority(os.PRIO_PGRP, group, niceness)
                groups.add(group)
    with suppress(OSError):  # the kernel has no autogroups, or lets only root say this of what it may not look into
        Path(f"/proc/{session}/autogroup").write_text(str(niceness), "ascii")
