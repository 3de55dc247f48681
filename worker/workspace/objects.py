"""The contents that a run's snapshots refer to, each stored once under its digest, within hard bounds."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..threads import give_way

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of one content."""
MAX_BYTES = 256 * 1024 * 1024
"""Of all contents of one run."""
MAX_OBJECTS = 10_000
FOLDER = "objects"
_CHUNK = 1 << 20
_PART_OF_DISK = 4


class Objects:
    """The contents of one run, which no command can reach. All attempts share them: none is ever changed."""

    def __init__(self, workspace: Path) -> None:
        self._folder = workspace / FOLDER
        self._left = MAX_BYTES
        self._held: set[str] = set()

    def note(self, id: str, size: int) -> None:
        """Counts a content that is stored already."""
        if id not in self._held:
            self._held.add(id)
            self._left -= size

    def path(self, id: str) -> Path:
        return self._folder / id

    def put(self, content: IO[bytes]) -> str | None:
        """Stores a content and returns its digest (SHA-256); None where the bounds do not allow it.

        Raises OSError, also where it takes more than a part of what is left of the disk, which is all runs'.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        disk = os.statvfs(self._folder)
        most = disk.f_bavail * disk.f_frsize // _PART_OF_DISK
        temporary, digest, size = self._folder / f"new.{secrets.token_hex(8)}", hashlib.sha256(), 0
        try:
            with temporary.open("xb", buffering=0) as file:
                while piece := content.read(_CHUNK):
                    give_way()
                    digest.update(piece)
                    file.write(piece)
                    if (size := size + len(piece)) > MAX_FILE_BYTES:
                        return None
                    if size > most:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(temporary))
            id = digest.hexdigest()
            if id not in self._held and (size > self._left or len(self._held) >= MAX_OBJECTS):
                return None
            temporary.rename(self.path(id))  # named by its content: a worker without its lease can only do the same
            self.note(id, size)
            return id
        finally:
            temporary.unlink(missing_ok=True)

    def adopt(self, earlier: Path, ids: Iterable[str]) -> None:
        """Takes over those contents of another workspace that are there."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for id in ids:
            give_way()
            with suppress(FileNotFoundError, FileExistsError):
                try:
                    os.link(earlier / FOLDER / id, self.path(id))
                except PermissionError:  # a file system without links
                    shutil.copyfile(earlier / FOLDER / id, self.path(id))
