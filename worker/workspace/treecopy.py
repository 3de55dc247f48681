"""A private copy of a directory tree: contents, links, modes and times, and nothing from outside it.

The bytes of a file are copied by sharing blocks where the file system can, and never more than are really there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from worker.linux.openat2 import beneath
from worker.threads import give_way

_CLONE = 0x40049409  # ioctl FICLONE: the copy shares the blocks until one side changes
_NOT_HERE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF)
_CHUNK = 64 << 20
__all__ = ["Stopped", "TooMuch", "TreeCopy", "Unreadable"]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What is wrong on the copy's side, not on the source's."""
_BLOCK = 512
_SPECIAL = {modes.S_IFSOCK: "a socket", modes.S_IFIFO: "a FIFO", modes.S_IFCHR: "a device", modes.S_IFBLK: "a device"}
Wanted = Callable[[str, bool], bool]
"""Path from the top and whether it is a directory, to whether it is copied."""


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


class Unreadable(Exception):
    """``path``, relative to the source, cannot be read; ``why`` is what the system said."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


class TooMuch(Exception):
    """The source has more bytes than may be copied; ``path`` is the file that did not fit."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class _Folder:
    """A directory to copy; ``found`` is what it was, once its contents are copied and it only needs its mode."""

    path: str
    found: os.stat_result | None = None


@dataclass(slots=True)
class TreeCopy:
    """Copies what lies below the directory ``source`` into the empty directory ``target`` (both descriptors).

    Every path is opened below its top without following links, so a tree that changes meanwhile can lose files from
    the copy but bring none from elsewhere. Sockets, FIFOs and devices are left out, and told of in ``left_out``.
    ``owner`` is who the copies belong to; ``skip`` is a directory that is left out wherever it is met (device,
    inode); ``max_bytes`` is how much may be copied, holes not counted.
    """

    source: int
    target: int
    wanted: Wanted = lambda path, is_directory: True
    owner: tuple[int, int] | None = None
    skip: tuple[int, int] | None = None
    stop: Event = field(default_factory=Event)
    max_bytes: int | None = None
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """What each special file is, by its path."""
    _bytes: int = 0
    _copier: Copier = field(init=False)

    def __post_init__(self) -> None:
        self._copier = Copier(self.stop)

    def run(self) -> None:
        """Raises Stopped, Unreadable, TooMuch, or OSError for what went wrong on the target's side."""
        waiting = [_Folder("")]
        while waiting:
            folder = waiting.pop()
            if folder.found is not None:
                self._finish(folder.path, folder.found)
            else:
                try:
                    self._enter(folder.path, waiting)
                except FileNotFoundError:
                    continue

    def _enter(self, path: str, waiting: list[_Folder]) -> None:
        """Copies what lies in one directory; the directories in it are left to be copied next, and finished then."""
        source = _open(self.source, path, _FOLDER)
        try:
            target = beneath(self.target, path or ".", _FOLDER, links=False)
            try:
                for entry in _entries(source, path):
                    if self.stop.is_set():
                        raise Stopped
                    give_way()
                    inner = f"{path}/{entry.name}" if path else entry.name
                    if self.wanted(inner, entry.is_dir(follow_symlinks=False)):
                        self._entry(entry, source, target, inner, waiting)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _entry(self, entry: os.DirEntry[str], source: int, target: int, path: str, waiting: list[_Folder]) -> None:
        name = entry.name
        try:
            found = entry.stat(follow_symlinks=False)
            if modes.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                self._dress(name, found, target)
            elif modes.S_ISREG(found.st_mode):
                self._file(name, source, target, path)
            elif not modes.S_ISDIR(found.st_mode):
                self.left_out[path] = _SPECIAL.get(modes.S_IFMT(found.st_mode), "a special file")
            elif (found.st_dev, found.st_ino) != self.skip:
                os.mkdir(name, 0o700, dir_fd=target)
                waiting += [_Folder(path, found), _Folder(path)]
        except FileNotFoundError:
            return  # it was replaced since the directory was listed
        except PermissionError as error:
            raise Unreadable(path, error.strerror or "") from None

    def _dress(self, name: str, found: os.stat_result, folder: int) -> None:
        if self.owner:
            os.chown(name, *self.owner, dir_fd=folder, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=folder, follow_symlinks=False)

    def _finish(self, path: str, found: os.stat_result) -> None:
        """Owner, mode and times of a directory, when nothing more is made in it."""
        folder = beneath(self.target, path, _FOLDER, links=False)
        try:
            if self.owner:
                os.fchown(folder, *self.owner)
            os.fchmod(folder, modes.S_IMODE(found.st_mode) & 0o777)
            os.utime(folder, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(folder)

    def _file(self, name: str, source: int, target: int, path: str) -> None:
        inner = _open(source, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, path)
        try:
            found = os.fstat(inner)
            if not modes.S_ISREG(found.st_mode):
                return
            self._count(found, path)
            copy = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
            try:
                self._content(inner, copy, path)
                if self.owner:
                    os.fchown(copy, *self.owner)
                os.fchmod(copy, modes.S_IMODE(found.st_mode) & 0o777)  # set-uid bits were for the old owner
                os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            finally:
                os.close(copy)
        finally:
            os.close(inner)

    def _count(self, found: os.stat_result, path: str) -> None:
        self._bytes += min(found.st_size, found.st_blocks * _BLOCK)
        if self.max_bytes is not None and self._bytes > self.max_bytes:
            raise TooMuch(path)

    def _content(self, source: int, target: int, path: str) -> None:
        try:
            self._copier.copy(source, target)
        except OSError as error:
            if error.errno in _OURS:
                raise
            raise Unreadable(path, error.strerror or "") from None


def _entries(folder: int, path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise Unreadable(path or ".", error.strerror or "") from None


def _open(folder: int, name: str, flags: int, path: str | None = None) -> int:
    try:
        return beneath(folder, name or ".", flags, links=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError from None  # it was replaced since the directory was listed
        if error.errno in _OURS:
            raise
        raise Unreadable(path or name or ".", error.strerror or "") from None
