"""Waits where the disk is full for a moment: what one run has filled it with is removed within seconds.

No other run is to fail meanwhile: the worker's own writes for it are repeated, and its commands are not started.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import BoundedSemaphore
from typing import ParamSpec, TypeVar

from ...shared.errors import RepositoryFailed
from ..threads import THREADS, release_slot, run_short

P = ParamSpec("P")
T = TypeVar("T")

WAIT_SECONDS = 60.0
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two tries."""
_TRIES = 8
"""What fails so often though the disk was not full afterwards does not fit. These tries take nearly four seconds, as
another run may fill the disk again and again."""
_FEW_BYTES, _FEW_FILES, _PART = 1 << 20, 64, 64
"""A disk with less room, and with less than one part in so many of all, counts as full."""
_threads = BoundedSemaphore(THREADS // 2)
"""Those that may wait: the others are for what removes files."""


class FullDisk:
    """The waits of one run for the disk of a directory.

    Where one was in vain, the run does not wait again for as long: the disk stays full.
    """

    def __init__(self, folder: Path, seconds: float = WAIT_SECONDS) -> None:
        self._folder, self._seconds = folder, seconds
        self._in_vain_until = 0.0

    def with_room(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work of a thread that may be repeated, again and again until the disk takes it.

        Raises what the work raises, and its OSError where the disk stays full or the work is stopped.
        """
        return self.with_room_until(lambda: False, work, *args, **kwargs)

    def with_room_until(
        self, is_over: Callable[[], bool], work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same with a limit of its own for the wait: ``is_over`` is asked before each further try."""
        end, pause, tries = time.monotonic() + self._seconds, _SHORTEST, 0
        while True:
            try:
                return work(*args, **kwargs)
            except (OSError, RepositoryFailed) as error:
                if not _is_for_room(error) or is_over():
                    raise
                tries += not self._is_full()
                if tries >= _TRIES or not self._may_wait(end) or not _wait(pause):
                    raise
            pause = min(2 * pause, _LONGEST)

    async def until_room(self) -> bool:
        """Waits while the disk is full. Returns whether it was."""
        end, was_full = time.monotonic() + self._seconds, False
        while await run_short(self._is_full) and self._may_wait(end):
            was_full = True
            await asyncio.sleep(2 * _SHORTEST)
        return was_full

    def _is_full(self) -> bool:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return False
        free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        return free < min(_FEW_BYTES, whole // _PART) or disk.f_favail < min(_FEW_FILES, disk.f_files // _PART)

    def _may_wait(self, end: float) -> bool:
        now = time.monotonic()
        if now < self._in_vain_until:
            return False
        if now > end:
            self._in_vain_until = now + self._seconds
        return now <= end


def _is_for_room(error: OSError | RepositoryFailed) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "no space left" in str(error).lower()


def _wait(seconds: float) -> bool:
    """Returns whether the work may go on: not where it is stopped, or does not run in a thread."""
    stopped = release_slot(with_place=True)
    if stopped is None or not _threads.acquire(blocking=False):
        return False
    try:
        return not stopped.wait(seconds)
    finally:
        _threads.release()
