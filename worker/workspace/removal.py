"""The removal of a workspace's directory, not while it is copied, and what it takes on disk."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...shared.libc import closing_fd
from ...shared.log import log
from ...shared.workspaces import delete
from ..linux.system import taken_bytes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MEASURE_SECONDS = 30.0


@contextmanager
def in_use(folder: Path) -> Generator[None]:
    """Keeps ``delete_unused`` from deleting the directory within the block, also in other processes.

    Raises FileNotFoundError if it is deleted already.
    """
    with closing_fd(os.open(folder, _FOLDER)) as fd:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_SH)  # one that is being deleted is gone soon
        folder.lstat()
        yield


def delete_unused(folder: Path) -> bool:
    """Deletes the directory unless it is in use, or cannot be removed. Returns whether it is gone."""
    with ExitStack() as held:
        try:
            held.enter_context(closing_fd(fd := os.open(folder, _FOLDER)))
            _lock(fd)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        except OSError:  # no directory, or none that can be opened
            pass
        try:
            delete(folder)
        except OSError as error:
            log.warning("%s is left: it cannot be removed", folder, extra={"cause": str(error)})
            return False
    return True


def delete_unused_files(folder: Path, seconds: float, needed: Collection[Path]) -> None:
    """Deletes files that were not changed for so many seconds, but those that are needed, or locked."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            _lock(file.fileno())
            if path not in needed and os.fstat(file.fileno()).st_mtime <= time.time() - seconds:
                path.unlink()


def _lock(fd: int) -> None:
    """Raises BlockingIOError where another process has a lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


def disk_bytes(folder: Path) -> int | None:
    """Returns what a directory takes on disk; None where that is not known."""
    return taken_bytes([folder], _MEASURE_SECONDS)
