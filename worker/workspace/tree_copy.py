"""A copy of a directory tree: contents, links, modes and times, and nothing from outside the tree.

Files are cloned where the file system supports it, and copied sparsely elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat as modes
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from ...shared.libc import beneath, closing_fd
from ...shared.patch_format import printable_path
from ...shared.text import clip
from ..threads import give_way

_CLONE = 0x40049409  # ioctl FICLONE: the copy shares the blocks until one side changes
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM, errno.EBADF)
_CHUNK = 64 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TARGET_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of the target, not of the source."""
_BLOCK = 512
_SPECIAL = {modes.S_IFSOCK: "a socket", modes.S_IFIFO: "a FIFO", modes.S_IFCHR: "a device", modes.S_IFBLK: "a device"}
_MAX_NAMED = 20
PathFilter = Callable[[str, bool], bool]
"""Whether to copy a path, from the path relative to the top and whether it is a directory."""


_Waiting = list[tuple[str, os.stat_result | None]]
"""Directories to copy; with a status those whose contents are copied, and whose mode and times remain to be set."""


class CopyStopped(Exception):
    """The copy was cancelled by its event."""


class Copier:
    """Copies contents between descriptors; an unsupported operation is tried only once."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._clones = self._ranges = True

    def copy(self, source: int, target: int) -> None:
        """Copies one file's content, without its holes. Raises CopyStopped or OSError."""
        if self._clone(source, target):
            return
        size = os.fstat(source).st_size
        if not size:  # also files that the kernel generates while they are read
            self._copy_range(source, target, 0, None)
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
            self._copy_range(source, target, at, min(end, size))
            at = end

    def _clone(self, source: int, target: int) -> bool:
        if not self._clones:
            return False
        try:
            fcntl.ioctl(target, _CLONE, source)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            self._clones = False
        return self._clones

    def _copy_range(self, source: int, target: int, at: int, end: int | None) -> None:
        """Copies the bytes from ``at`` to ``end``, or to the end of the file."""
        while end is None or at < end:
            if self._stop.is_set():
                raise CopyStopped
            give_way()
            count = self._copy_chunk(source, target, at, _CHUNK if end is None else min(_CHUNK, end - at))
            if not count:
                return
            at += count

    def _copy_chunk(self, source: int, target: int, at: int, count: int) -> int:
        if self._ranges:
            try:
                return os.copy_file_range(source, target, count, at, at)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                self._ranges = False
        os.lseek(target, at, os.SEEK_SET)
        return os.sendfile(target, source, at, count)


class SourceUnreadable(Exception):
    """``path``, relative to the source, cannot be read; ``why`` is the system's error message."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


class SourceTooLarge(Exception):
    """The source has more bytes than allowed; ``path`` is the file that exceeded the limit."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(slots=True)
class CopyTally:
    """What was copied so far; read by another thread."""

    files: int = 0
    bytes: int = 0
    """Without holes."""


@dataclass(slots=True)
class TreeCopy:
    """Copies everything below the directory ``source`` into the empty directory ``target`` (both descriptors).

    Every path is opened without following links, so that changes during the copy can omit files, but not add files
    from elsewhere. Sockets, FIFOs and devices are skipped, and listed in ``left_out``.

    Attributes:
        include: Which paths to copy.
        owner: The owner (uid, gid) of the copies.
        skip: A directory (device, inode) that is not copied.
        stop: Cancels the copy.
        max_bytes: The largest number of bytes to copy, without holes.
        tally: Counts what is copied.
    """

    source: int
    target: int
    include: PathFilter = lambda path, is_directory: True
    owner: tuple[int, int] | None = None
    skip: tuple[int, int] | None = None
    stop: Event = field(default_factory=Event)
    max_bytes: int | None = None
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """The kind of each skipped special file, by path."""
    tally: CopyTally = field(default_factory=CopyTally)
    _copier: Copier = field(init=False)

    def __post_init__(self) -> None:
        self._copier = Copier(self.stop)

    def run(self) -> None:
        """Copies the tree.

        Raises:
            CopyStopped: ``stop`` was set.
            SourceUnreadable: A file or directory of the source cannot be read.
            SourceTooLarge: The source has more than ``max_bytes``.
            OSError: An error of the target.
        """
        waiting: _Waiting = [("", None)]
        while waiting:
            path, found = waiting.pop()
            if found is not None:
                with closing_fd(beneath(self.target, path, _FOLDER, links=False)) as copied:
                    self._set_attributes(copied, found)
            else:
                with suppress(FileNotFoundError):
                    self._copy_folder(path, waiting)

    def _copy_folder(self, path: str, waiting: _Waiting) -> None:
        """Copies the files of one directory; its subdirectories are appended to ``waiting``."""
        with (
            closing_fd(_open(self.source, path, _FOLDER)) as source,
            closing_fd(beneath(self.target, path or ".", _FOLDER, links=False)) as target,
        ):
            for entry in _entries(source, path):
                if self.stop.is_set():
                    raise CopyStopped
                give_way()
                inner = f"{path}/{entry.name}" if path else entry.name
                if self.include(inner, entry.is_dir(follow_symlinks=False)):
                    self._copy_entry(entry, source, target, inner, waiting)

    def _copy_entry(self, entry: os.DirEntry[str], source: int, target: int, path: str, waiting: _Waiting) -> None:
        name = entry.name
        try:
            found = entry.stat(follow_symlinks=False)
            if modes.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                if self.owner:
                    os.chown(name, *self.owner, dir_fd=target, follow_symlinks=False)
                os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=target, follow_symlinks=False)
            elif modes.S_ISREG(found.st_mode):
                self._copy_file(name, source, target, path)
            elif not modes.S_ISDIR(found.st_mode):
                self.left_out[path] = kind_of_special(found.st_mode)
            elif (found.st_dev, found.st_ino) != self.skip:
                os.mkdir(name, 0o700, dir_fd=target)
                waiting += [(path, found), (path, None)]
        except FileNotFoundError:
            return  # replaced since the directory was listed
        except PermissionError as error:
            raise SourceUnreadable(path, error.strerror or "") from None

    def _set_attributes(self, fd: int, found: os.stat_result) -> None:
        """Sets owner, mode and times of a file or directory whose contents are complete."""
        if self.owner:
            os.fchown(fd, *self.owner)
        os.fchmod(fd, modes.S_IMODE(found.st_mode) & 0o777)  # set-uid bits were for the old owner
        os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _copy_file(self, name: str, source: int, target: int, path: str) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with closing_fd(_open(source, name, flags, path)) as inner:
            found = os.fstat(inner)
            if not modes.S_ISREG(found.st_mode):
                return
            self.tally.files += 1
            self.tally.bytes += min(found.st_size, found.st_blocks * _BLOCK)
            if self.max_bytes is not None and self.tally.bytes > self.max_bytes:
                raise SourceTooLarge(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with closing_fd(os.open(name, flags, 0o600, dir_fd=target)) as copy:
                try:
                    self._copier.copy(inner, copy)
                except OSError as error:
                    if error.errno in _TARGET_ERRORS:
                        raise
                    raise SourceUnreadable(path, error.strerror or "") from None
                self._set_attributes(copy, found)


def _entries(folder: int, path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise SourceUnreadable(path or ".", error.strerror or "") from None


def _open(folder: int, name: str, flags: int, path: str | None = None) -> int:
    try:
        return beneath(folder, name or ".", flags, links=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise FileNotFoundError from None  # replaced since the directory was listed
        if error.errno in _TARGET_ERRORS:
            raise
        raise SourceUnreadable(path or name or ".", error.strerror or "") from None


def kind_of_special(mode: int) -> str:
    """Returns what a special file with this ``st_mode`` is."""
    return _SPECIAL.get(modes.S_IFMT(mode), "a special file")


def special_sentences(kinds: Mapping[str, str], why: str) -> list[str]:
    """Returns sentences about special files: each is of its kind and ``why``."""
    shown = [f"{clip(printable_path(path), 300)} is {kind} and {why}" for path, kind in [*kinds.items()][:_MAX_NAMED]]
    more = len(kinds) - len(shown)
    return [*shown, *([f"{more} more special files are left out, too"] if more else [])]


T = TypeVar("T")
LONG_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


async def reported(
    copy: Awaitable[T], tally: CopyTally, source: str, report: Callable[[str], None], after: float = LONG_SECONDS
) -> T:
    """Awaits the copy. If it takes longer than ``after`` seconds, reports its progress, and its size at the end."""
    began = time.monotonic()
    reporting = asyncio.create_task(_report_progress(tally, source, report, after))
    try:
        done = await copy
    finally:
        reporting.cancel()
        await asyncio.wait({reporting})
    if (took := time.monotonic() - began) >= after and tally.files:
        report(f"copied {_amount(tally)} of {source} in {took:.1f} s")
    return done


async def _report_progress(tally: CopyTally, source: str, report: Callable[[str], None], after: float) -> None:
    await asyncio.sleep(after)
    while True:
        report(f"copying {source}: {_amount(tally)} so far")
        await asyncio.sleep(_REPEAT_SECONDS)


def _amount(tally: CopyTally) -> str:
    size = f"{tally.bytes / 1e6:,.0f} MB" if tally.bytes >= 1e6 else f"{tally.bytes:,} bytes"
    return f"{tally.files:,} files, {size}"
