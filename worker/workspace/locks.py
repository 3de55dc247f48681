"""Locks: one change of a file at a time in this process, and one writer among workers that share a workspace."""

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

from shared.errors import ErrorType, ToolError
from worker.workspace.files import Files

PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_HELD = (errno.EAGAIN, errno.EACCES)
_locks: WeakValueDictionary[str, _FileLock] = WeakValueDictionary()
_guard = Lock()


@contextmanager
def locked(files: Files, path: str, stop: Event, patience: float = PATIENCE_SECONDS) -> Generator[None]:
    """Holds the file ``path``, made where it is missing, while the block lasts; it ends with its process, too.

    Waits ``patience`` seconds for whoever holds it, less where ``stop`` is set; blocks, so it belongs into a thread.
    Raises ToolError(TIMEOUT) when it is held for longer.
    """
    fd = files.open_fd(path, _FLAGS)
    try:
        deadline = time.monotonic() + patience
        while not _taken(fd, path):
            if stop.wait(_PAUSE_SECONDS) or time.monotonic() > deadline:
                raise ToolError(
                    ErrorType.TIMEOUT, f"{path} is held by somebody else for {patience:g} seconds now. Try again later."
                )
        yield
    finally:
        os.close(fd)


def _taken(fd: int, path: str) -> bool:
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
def changing(files: Files, path: str) -> Generator[None]:
    """Holds the lock of the file, under whatever name or link it is called; blocks, so it belongs into a thread.

    Of this process only: no two processes work in one workspace.
    """
    key = files.real(path)
    with _guard:
        found = _locks.get(key)
        if found is None:
            found = _locks[key] = _FileLock()
    with found.lock:
        yield
