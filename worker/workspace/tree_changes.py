"""Changes of files by content, applied to another tree: from a run's files, or from what its snapshots keep."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...shared.libc import beneath, closing_fd
from ...shared.patch_format import printable_path
from ..sandbox.environment import owner
from ..threads import give_way
from .manifest import LINK, Difference, read_link
from .tree_copy import Copier

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_READABLE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CHUNK = 1 << 20


class ContentDiffers(Exception):
    """The content at a path, which is the message, is not the one that the change names."""


class Contents(Protocol):
    """Where the new contents are."""

    def link(self, each: Difference) -> bytes:
        """Returns where the link leads."""
        ...

    def copy(self, each: Difference, target: int) -> None:
        """Writes a file's content into the empty file."""
        ...


@dataclass(frozen=True, slots=True)
class Live:
    """Contents of a run's files (a descriptor), which may change meanwhile."""

    files: int
    copier: Copier

    def link(self, each: Difference) -> bytes:
        return read_link(self.files, each.path)

    def copy(self, each: Difference, target: int) -> None:
        with closing_fd(beneath(self.files, each.path, FILE, links=False)) as source:
            self.copier.copy(source, target)


@dataclass(frozen=True, slots=True)
class Stored:
    """Contents by their digest, in a folder that only the worker can reach."""

    folder: Path
    copier: Copier

    def link(self, each: Difference) -> bytes:
        return self._path(each).read_bytes()

    def copy(self, each: Difference, target: int) -> None:
        with self._path(each).open("rb") as source:
            self.copier.copy(source.fileno(), target)

    def _path(self, each: Difference) -> Path:
        return self.folder / str(each.new and each.new.sha256)


def apply(target: int, changes: Sequence[Difference], contents: Contents) -> list[str]:
    """Applies the changes to the tree; returns those that cannot be, because something else is in their way.

    The mode of a change may have all permissions, or be git's. Raises ``ContentDiffers`` and OSError.
    """
    kept = list[str]()
    for each in changes:
        if each.old:
            remove(target, each.path)
    for each in changes:
        give_way()
        if each.new is None:
            continue
        try:
            with closing_fd(parent_of(target, each.path)) as parent:
                _place(parent, each, contents)
        except (FileExistsError, NotADirectoryError):
            kept.append(printable_path(each.path))
    return kept


def _place(parent: int, each: Difference, contents: Contents) -> None:
    assert each.new
    name = each.path.rpartition("/")[2]
    digest = hashlib.sha256()
    if each.new.git_mode == LINK:
        leads = contents.link(each)
        os.symlink(leads, name, dir_fd=parent)
        digest.update(leads)
        if uid_gid := owner():
            os.chown(name, *uid_gid, dir_fd=parent, follow_symlinks=False)
    else:
        with closing_fd(os.open(name, _NEW_READABLE, 0o600, dir_fd=parent)) as copy:
            contents.copy(each, copy)
            os.lseek(copy, 0, os.SEEK_SET)
            while piece := os.read(copy, _CHUNK):
                digest.update(piece)
            give(copy, int(each.new.git_mode[-3:], 8))
    if digest.hexdigest() != each.new.sha256:
        raise ContentDiffers(printable_path(each.path))


def remove(target: int, path: str) -> None:
    """Removes the file or link at a path, if there is one, and the directories that are empty then."""
    while path:
        folder, _, name = path.rpartition("/")
        try:
            with closing_fd(beneath(target, folder or ".", _FOLDER, links=False)) as parent:
                try:
                    os.unlink(name, dir_fd=parent)
                except (IsADirectoryError, PermissionError):
                    os.rmdir(name, dir_fd=parent)
        except OSError:
            return
        path = folder


def parent_of(target: int, path: str) -> int:
    """Returns the directory of a path, with those on the way made where they are missing.

    Raises NotADirectoryError where one of them is something else, also a link.
    """
    done = "."
    try:
        for name in path.split("/")[:-1]:
            with closing_fd(beneath(target, done, _FOLDER, links=False)) as parent, suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
                with closing_fd(beneath(parent, name, _FOLDER, links=False)) as made:
                    give(made, 0o755)
            done = f"{done}/{name}"
        return beneath(target, done, _FOLDER, links=False)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotADirectoryError(error.errno, error.strerror, path) from None
        raise


def give(fd: int, mode: int) -> None:
    """Sets the mode of a file, and makes it that of the sandbox's user."""
    os.fchmod(fd, mode)
    if uid_gid := owner():
        os.fchown(fd, *uid_gid)
