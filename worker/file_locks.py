"""One change of a file at a time: what reads a file and writes it again holds its lock meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakValueDictionary

from worker.files import Files


@dataclass(slots=True, weakref_slot=True)
class _FileLock:
    lock: Lock = field(default_factory=Lock)


_locks: WeakValueDictionary[str, _FileLock] = WeakValueDictionary()
_guard = Lock()


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
