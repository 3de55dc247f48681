"""The removal of a workspace's directory, not while it is copied, and what it takes on disk."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...shared.libc import closing_fd
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
    """Deletes the directory unless it is in use. Returns whether it is gone."""
    try:
        fd = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:  # no directory
        delete(folder)
        return True
    with closing_fd(fd), suppress(BlockingIOError):
        _lock(fd)
        delete(folder)
        return True
    return False


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


def delete(folder: Path) -> None:
    """Deletes a tree of any depth, also if a command changed the modes of its directories."""
    for _ in range(2):
        if subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder)


def disk_bytes(folder: Path) -> int | None:
    """Returns what a directory takes on disk; None where that is not known."""
    return taken_bytes([folder], _MEASURE_SECONDS)
