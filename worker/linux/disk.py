"""What directories take on disk."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


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
