"""The status and content of a workspace's files, read without following a link, and what differs between two states."""

from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from ...shared.libc import beneath, closing_fd
from ..threads import give_way
from .file_entries import is_being_written
from .tree_copy import kind_of_special

MAX_ENTRIES = 1_000_000
MAX_PATH_CHARS = 32_768
_MAX_SPECIAL = 10_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_CHUNK = 1 << 20
_BLOCK = 512
_TYPE, _TRACKED = 0o170000, (modes.S_IFREG, modes.S_IFLNK)
_DEPTH = 40
"""Directories in each other that are open at a time."""
_ENTRIES_AT_ONCE = 16
"""Entries that are read without giving way to other runs."""
LINK = "120000"
"""git's mode of a symbolic link."""
DIRECTORY = "040000"
"""git's mode of a directory."""


class Deadline:
    """A deadline in seconds from now, which another thread can move nearer."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline = clock() + seconds

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock() >= self._deadline

    def shorten(self, seconds: float) -> None:
        """Moves the deadline to at most so many seconds from now."""
        self._deadline = min(self._deadline, self._clock() + seconds)


UNBOUNDED = Deadline(float("inf"))


class Content(NamedTuple):
    """What git records of a path: its mode and the digest of its content (None if it cannot be read)."""

    git_mode: str
    sha256: str | None


class Difference(NamedTuple):
    """A changed path: ``old`` is None if it was created, ``new`` if it was deleted; ``source`` is set for a rename."""

    path: str
    old: Content | None
    new: Content | None
    source: str | None = None

    def apart(self) -> list[Difference]:
        """Returns a rename as a deletion and a creation, which may be at paths of different kinds."""
        if self.source is None:
            return [self]
        return [Difference(self.source, self.old, None), Difference(self.path, None, self.new)]


class StatEntry(NamedTuple):
    """The status of a file or link. No program can set ``ctime_ns``, so an equal status means an unchanged file."""

    mode: int
    size: int
    inode: int
    ctime_ns: int

    @property
    def git_mode(self) -> str:
        return git_mode(self.mode)


def git_mode(mode: int) -> str:
    """Returns git's mode of a file or link with that ``st_mode``."""
    if modes.S_ISLNK(mode):
        return LINK
    return "100755" if mode & modes.S_IXUSR else "100644"


def scan(
    root: int,
    before: Mapping[str, StatEntry] = MappingProxyType({}),
    unread: list[str] | None = None,
    blocks: dict[int, int] | None = None,
    special: dict[str, str] | None = None,
) -> dict[str, StatEntry]:
    """Returns every file and link below the directory, by path, without special files.

    Entries of unreadable directories, or above ``MAX_ENTRIES``, are taken from ``before``, and ``unread`` receives a
    sentence. The tree may change meanwhile. ``blocks`` receives what each inode takes on disk, directories included.
    ``special`` receives the kinds of special files by path, of 10,000 at most.
    """
    unread = [] if unread is None else unread
    scanned = _Scan(before, blocks, {} if special is None else special)
    while scanned.waiting:
        path = scanned.waiting.pop()
        try:
            with closing_fd(_open_folder(root, path)) as fd:
                scanned.add_folder(fd, path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                unread.append(f"{path[:200] or '.'}: {error.strerror}")
                scanned.found |= {name: entry for name, entry in before.items() if name.startswith(path + "/")}
        if len(scanned.found) > MAX_ENTRIES:
            unread.append(f"there are more than {MAX_ENTRIES} files")
            return {**before, **scanned.found}
    return scanned.found


@dataclass(slots=True)
class _Scan:
    """A scan under way. Written for speed: this is most of what a snapshot costs where nothing changed."""

    before: Mapping[str, StatEntry]
    blocks: dict[int, int] | None
    special: dict[str, str]
    found: dict[str, StatEntry] = field(default_factory=dict[str, StatEntry])
    waiting: list[str] = field(default_factory=lambda: [""])
    """Directories that remain to be opened by their path."""

    def add_folder(self, folder: int, path: str, depth: int = 0) -> None:
        """Adds what is below a directory; the directories that cannot be entered from it just so remain."""
        prefix = f"{path}/" if path else ""
        folders = list[str]()
        before, found, blocks = self.before, self.found, self.blocks
        with suppress(OSError), os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if not number % _ENTRIES_AT_ONCE:
                    give_way()
                name = entry.name
                if is_being_written(name):
                    continue
                try:
                    at = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if (kind := at.st_mode & _TYPE) in _TRACKED:
                    old = before.get(inner := prefix + name)
                    new = at.st_mode, at.st_size, at.st_ino, at.st_ctime_ns
                    found[inner] = old if old is not None and old == new else StatEntry(*new)
                elif kind == modes.S_IFDIR:
                    folders.append(name)
                else:
                    if len(self.special) < _MAX_SPECIAL:
                        self.special[prefix + name] = kind_of_special(at.st_mode)
                    continue
                if blocks is not None:
                    blocks[at.st_ino] = at.st_blocks
        for name in folders:
            self._enter(folder, name, prefix + name, depth + 1)

    def _enter(self, folder: int, name: str, path: str, depth: int) -> None:
        if depth > _DEPTH or len(self.found) > MAX_ENTRIES:
            self.waiting.append(path)
            return
        try:
            fd = os.open(name, _FOLDER | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            self.waiting.append(path)
            return
        with closing_fd(fd):
            if os.geteuid() and not os.access(".", os.X_OK, dir_fd=fd, effective_ids=True):
                self.waiting.append(path)
            else:
                self.add_folder(fd, path, depth)


def scan_with_size(root: int) -> tuple[dict[str, StatEntry], int | None]:
    """Returns what ``scan`` finds, and what all of it takes on disk, None where something could not be read."""
    unread, blocks = list[str](), {(top := os.fstat(root)).st_ino: top.st_blocks}
    found = scan(root, unread=unread, blocks=blocks)
    return found, None if unread else sum(blocks.values()) * _BLOCK


def _open_folder(root: int, path: str) -> int:
    if len(path) > MAX_PATH_CHARS:
        raise OSError(errno.ENAMETOOLONG, "nested too deep")
    fd = _open_closed(root, path or ".", _FOLDER, 0o700)
    if not os.access(".", os.X_OK, dir_fd=fd, effective_ids=True):  # its names can be read, but not what they are
        with closing_fd(fd):
            os.fchmod(fd, modes.S_IMODE(os.fstat(fd).st_mode) | 0o700)
            return os.open(".", _FOLDER | os.O_CLOEXEC, dir_fd=fd)
    return fd


def _open_closed(root: int, path: str, flags: int, mode: int) -> int:
    """Opens a file or directory, no part of its path a link; one that a command closed to its owner, who this process
    may be, gets the mode first.
    """
    try:
        return beneath(root, path, flags, links=False)
    except PermissionError:
        with closing_fd(beneath(root, path, os.O_PATH | os.O_NOFOLLOW, links=False)) as fd:
            Path(f"/proc/self/fd/{fd}").chmod(modes.S_IMODE(os.fstat(fd).st_mode) | mode)
        return beneath(root, path, flags, links=False)


def git_folder(path: str) -> str | None:
    """Returns the ``.git`` that the path is or is inside of, whose state a patch cannot contain; else None."""
    if ".git" not in path:
        return None
    names = path.split("/")
    return "/".join(names[: names.index(".git") + 1]) if ".git" in names else None


def differing(old: dict[str, StatEntry], new: dict[str, StatEntry]) -> set[str]:
    """Returns the paths whose status differs, in the one or in the other."""
    return {path for path, _ in old.items() ^ new.items()}


def is_refreshed(path: str, old: StatEntry | None, new: StatEntry | None) -> bool:
    """Whether the change is one that ``git status`` makes: git's index, and the times of its directories."""
    if old is None or new is None or (folder := git_folder(path)) is None:
        return False
    return path == f"{folder}/index" or (modes.S_ISDIR(old.mode) and modes.S_ISDIR(new.mode))


def read_content(root: int, path: str, entry: StatEntry, max_bytes: int) -> bytes | None:
    """Returns a file's content or a link's target; None if it is gone, unreadable or larger than ``max_bytes``."""
    with suppress(OSError):
        if modes.S_ISLNK(entry.mode):
            return read_link(root, path)
        with open_file(root, path) as file:
            data = file.read(max_bytes + 1)
            return data if len(data) <= max_bytes else None
    return None


def digest_of(root: int, path: str, entry: StatEntry, deadline: Deadline) -> str | None:
    with suppress(OSError):
        if modes.S_ISLNK(entry.mode):
            return hashlib.sha256(read_link(root, path)).hexdigest()
        with open_file(root, path) as file:
            digest = hashlib.sha256()
            while piece := file.read(_CHUNK):
                if deadline.expired:
                    return None
                give_way()
                digest.update(piece)
            return digest.hexdigest()
    return None


def read_link(root: int, path: str) -> bytes:
    with closing_fd(beneath(root, path, os.O_PATH | os.O_NOFOLLOW, links=False)) as fd:
        return os.readlink(b"", dir_fd=fd)


def open_file(root: int, path: str) -> FileIO:
    return FileIO(_open_closed(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, 0o400))


def is_unknown(each: Difference) -> bool:
    """Whether the file exists before and after, and it is unknown whether its content changed."""
    return each.old is not None and each.new is not None and None in (each.old.sha256, each.new.sha256)


def join_renames(found: list[Difference]) -> list[Difference]:
    """Joins each deleted file with a created one of the same content, if there is one, to a rename.

    Links are not joined: git cannot apply a patch that renames a link and creates a directory in its place.
    """
    deleted: dict[Content, list[Difference]] = {}
    for each in sorted(found):
        if each.new is None and each.old and each.old.sha256 and each.old.git_mode != LINK:
            deleted.setdefault(each.old, []).append(each)
    renamed: dict[str, Difference] = {}
    for each in sorted(found):
        if each.old is None and each.new and (sources := deleted.get(each.new)):
            name = PurePosixPath(each.path).name
            source = next((one for one in sources if PurePosixPath(one.path).name == name), sources[0])
            sources.remove(source)
            renamed[each.path] = each._replace(old=source.old, source=source.path)
    gone = {each.source for each in renamed.values()}
    return [renamed.get(each.path, each) for each in found if each.path not in gone]
