"""Locks of files: for edits within this process, and for writes by several workers that share a directory."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock
from weakref import WeakValueDictionary

from ...shared.errors import ErrorType, ToolError
from ...shared.libc import closing_fd
from ..contracts import FileAccess

LOCK_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_HELD = (errno.EAGAIN, errno.EACCES)
_locks: WeakValueDictionary[str, _FileLock] = WeakValueDictionary()
_guard = Lock()


@contextmanager
def file_lock(files: FileAccess, path: str, stop: Event, seconds: float = LOCK_SECONDS) -> Generator[None]:
    """Holds an exclusive lock of the file, which is created if missing; it also ends with the process. Blocks.

    Args:
        files: The workspace.
        path: The lock file.
        stop: Ends the waiting.
        seconds: How long to wait for the lock.

    Raises:
        ToolError: TIMEOUT if another process holds the lock for longer.
    """
    with closing_fd(files.open_fd(path, _FLAGS)) as fd:
        deadline = time.monotonic() + seconds
        while not _try_lock(fd, path):
            if stop.wait(_PAUSE_SECONDS) or time.monotonic() > deadline:
                raise ToolError(
                    ErrorType.TIMEOUT,
                    f"{path} has been locked by another process for {seconds:g} seconds. Try again later.",
                )
        yield


def _try_lock(fd: int, path: str) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise ToolError(ErrorType.EXECUTION_FAILED, f"{path} cannot be locked: {error.strerror}.") from None
    return True


@dataclass(slots=True, weakref_slot=True)
class _FileLock:
    lock: Lock = field(default_factory=Lock)


@contextmanager
def edit_lock(files: FileAccess, path: str) -> Generator[None]:
    """Holds the lock of the file within this process, by its real path. Blocks.

    A lock within the process is sufficient because no two processes work in one workspace.
    """
    key = files.real(path)
    with _guard:
        found = _locks.setdefault(key, _FileLock())
    with found.lock:
        yield
