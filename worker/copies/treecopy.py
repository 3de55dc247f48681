"""A private copy of a directory tree: contents, links, modes and times, and nothing from outside it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event

_CLONE = 0x40049409  # ioctl FICLONE: the copy shares the blocks until one side changes
_NOT_HERE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF)
_CHUNK = 1 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Wanted = Callable[[str, bool], bool]
"""Path from the top and whether it is a directory, to whether it is copied."""


class Stopped(Exception):
    """The copy was given up because its event was set."""


class Unreadable(Exception):
    """``path``, relative to the source, cannot be read; ``why`` is what the system said."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


@dataclass(slots=True)
class TreeCopy:
    """Copies what lies below the directory ``source`` into the empty directory ``target`` (both descriptors).

    Every name is opened in its directory without following links, so a tree that changes meanwhile can lose
    files from the copy but bring none from elsewhere. Sockets, FIFOs and devices are left out. ``owner`` is who
    the copies belong to; ``skip`` is a directory that is left out wherever it is met (device, inode).
    """

    source: int
    target: int
    wanted: Wanted = lambda path, is_directory: True
    owner: tuple[int, int] | None = None
    skip: tuple[int, int] | None = None
    stop: Event = field(default_factory=Event)
    _clones: bool = True

    def run(self) -> None:
        """Raises Stopped, Unreadable, or OSError for what went wrong on the target's side."""
        self._folder(self.source, self.target, "")

    def _folder(self, source: int, target: int, path: str) -> None:
        for entry in _entries(source, path):
            if self.stop.is_set():
                raise Stopped
            inner = f"{path}/{entry.name}" if path else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if self.wanted(inner, is_directory):
                with suppress(FileNotFoundError):
                    self._entry(entry, source, target, inner)

    def _entry(self, entry: os.DirEntry[str], source: int, target: int, path: str) -> None:
        name, found = entry.name, entry.stat(follow_symlinks=False)
        if modes.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif modes.S_ISREG(found.st_mode):
            self._file(name, source, target, path)
            return
        elif modes.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) != self.skip:
            self._descend(name, source, target, path)
        else:
            return
        if self.owner:
            os.chown(name, *self.owner, dir_fd=target, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target, follow_symlinks=False)

    def _descend(self, name: str, source: int, target: int, path: str) -> None:
        inner = _open(name, _FOLDER, source, path)
        try:
            os.mkdir(name, 0o700, dir_fd=target)
            copy = os.open(name, _FOLDER, dir_fd=target)
            try:
                self._folder(inner, copy, path)
                os.fchmod(copy, modes.S_IMODE(os.fstat(inner).st_mode) & 0o777)
            finally:
                os.close(copy)
        finally:
            os.close(inner)

    def _file(self, name: str, source: int, target: int, path: str) -> None:
        inner = _open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, source, path)
        try:
            found = os.fstat(inner)
            if not modes.S_ISREG(found.st_mode):
                return
            copy = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
            try:
                self._content(inner, copy)
                if self.owner:
                    os.fchown(copy, *self.owner)
                os.fchmod(copy, modes.S_IMODE(found.st_mode) & 0o777)  # set-uid bits were for the old owner
                os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            finally:
                os.close(copy)
        finally:
            os.close(inner)

    def _content(self, source: int, target: int) -> None:
        if self._clones:
            try:
                fcntl.ioctl(target, _CLONE, source)
                return
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._clones = False
        try:
            while os.copy_file_range(source, target, _CHUNK):
                pass
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            while os.sendfile(target, source, None, _CHUNK):
                pass


def _entries(folder: int, path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from list(found)
    except OSError as error:
        raise Unreadable(path or ".", error.strerror or "") from None


def _open(name: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError from None  # it was replaced since the directory was listed
        raise Unreadable(path, error.strerror or "") from None
