"""How large the copies of directories will be, for people: a run over a large one begins late and fills the disk."""

from __future__ import annotations

import asyncio
import os
import stat as modes
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ..shared.log import log
from ..shared.request import DelegationRequest, DirectoryWorkspace
from ..shared.settings import Settings
from .sockets import is_loopback

LARGE_BYTES = 10**9
BYTES_PER_SECOND = 100 * 10**6
"""What a disk of a small machine copies."""
LOOK_SECONDS = 2.0
"""For looking through all directories of a call."""
_BLOCK = 512


def large_copies(
    requests: Iterable[DelegationRequest], settings: Settings, clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """Returns a sentence for each directory of this machine whose copy will be large.

    What cannot be read has none: the run itself reports what is wrong. Neither has what is not looked through after
    LOOK_SECONDS in all.
    """
    if settings.url and not _is_here(settings.url):
        return []
    copied: dict[str, tuple[DirectoryWorkspace, int]] = {}
    for request in requests:
        if isinstance(workspace := request.workspace, DirectoryWorkspace) and not request.builds_on:
            _, number = copied.get(workspace.to_json(), (None, 0))
            copied[workspace.to_json()] = workspace, number + 1
    look = _Look(clock() + LOOK_SECONDS, clock)
    sentences = (_sentence(workspace, number, look) for workspace, number in copied.values())
    return [each for each in sentences if each]


def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:  # connecting reports it
        return False


class _Look:
    """One look at directories, until a deadline: then its methods raise TimeoutError. They raise OSError."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline, self._clock = deadline, clock
        self._may_be_large: dict[Path, bool] = {}

    def may_be_large(self, folder: Path) -> bool:
        """Returns whether all files together are large."""
        if (known := self._may_be_large.get(folder)) is not None:
            return known
        total, waiting = 0, [str(folder)]
        while waiting and total <= LARGE_BYTES:
            self._go_on()
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    self._go_on()
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += _stored(entry.stat(follow_symlinks=False))
        self._may_be_large[folder] = total > LARGE_BYTES
        return total > LARGE_BYTES

    def copied_bytes(self, workspace: DirectoryWorkspace) -> int:
        """Returns what a copy of the directory writes."""
        from .packing import copied_paths  # most directories are small, and what packs is slow to import

        folder, total, left = Path(workspace.path), 0, self._deadline - self._clock()
        paths = copied_paths(
            folder, ignored=workspace.ignored, exclude=workspace.exclude, seconds=left, go_on=self._go_on
        )
        for path in paths:
            self._go_on()
            total += _stored(os.lstat(folder / path))
        return total

    def _go_on(self) -> None:
        if self._clock() > self._deadline:
            raise TimeoutError


def _sentence(workspace: DirectoryWorkspace, number: int, look: _Look) -> str:
    folder = Path(workspace.path)
    try:
        found = look.copied_bytes(workspace) if look.may_be_large(folder) else 0
    except OSError:
        return ""
    if found <= LARGE_BYTES:
        return ""
    each = f"each of {number} runs copies" if number > 1 else "the run copies"
    return (
        f"{each} {found / 10**9:.1f} GB of {folder}, which may take {found / BYTES_PER_SECOND:.0f} s; "
        "`exclude` leaves files out"
    )


def _stored(found: os.stat_result) -> int:
    """Returns the bytes that a copy of a file writes: holes are not copied."""
    return min(found.st_size, found.st_blocks * _BLOCK) if modes.S_ISREG(found.st_mode) else 0


class NotedCopies:
    """Logs a warning before the first run over each large directory: a program has no other place for it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen: set[str] = set()

    async def noted(self, requests: Sequence[DelegationRequest]) -> Sequence[DelegationRequest]:
        """Returns the requests, once the warnings are logged."""
        new: list[DelegationRequest] = []
        for request in requests:
            if isinstance(request.workspace, DirectoryWorkspace) and request.workspace.path not in self._seen:
                self._seen.add(request.workspace.path)
                new.append(request)
        for sentence in await asyncio.to_thread(large_copies, new, self._settings) if new else ():
            log.warning("%s", sentence)
        return requests
