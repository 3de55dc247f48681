"""The bytes of one file, copied: by sharing blocks where the file system can, and never more than are really there."""

from __future__ import annotations

import errno
import fcntl
import os
from threading import Event

from worker.threads import give_way

_CLONE = 0x40049409  # ioctl FICLONE: the copy shares the blocks until one side changes
_NOT_HERE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF)
_CHUNK = 64 << 20


class Stopped(Exception):
    """The copy was given up because its event was set."""


class Copier:
    """Copies contents between descriptors; what the file system cannot do is tried once only."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._clones = self._ranges = True

    def copy(self, source: int, target: int) -> None:
        """Raises Stopped, or OSError. Holes stay holes."""
        if self._cloned(source, target):
            return
        size = os.fstat(source).st_size
        if not size:  # also what the kernel makes up while it is read
            self._stretch(source, target, 0, None)
            return
        os.ftruncate(target, size)
        at = 0
        while at < size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
                end = os.lseek(source, at, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # a hole to the end
                    return
                if error.errno != errno.EINVAL:
                    raise
                end = size
            self._stretch(source, target, at, min(end, size))
            at = end

    def _cloned(self, source: int, target: int) -> bool:
        if not self._clones:
            return False
        try:
            fcntl.ioctl(target, _CLONE, source)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            self._clones = False
        return self._clones

    def _stretch(self, source: int, target: int, at: int, end: int | None) -> None:
        """The bytes from ``at`` to ``end``, or to the end of the file."""
        while end is None or at < end:
            if self._stop.is_set():
                raise Stopped
            give_way()
            count = self._piece(source, target, at, _CHUNK if end is None else min(_CHUNK, end - at))
            if not count:
                return
            at += count

    def _piece(self, source: int, target: int, at: int, count: int) -> int:
        if self._ranges:
            try:
                return os.copy_file_range(source, target, count, at, at)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._ranges = False
        os.lseek(target, at, os.SEEK_SET)
        return os.sendfile(target, source, at, count)
