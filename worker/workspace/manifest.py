"""The files of a workspace at its start and now, and those that differ, in the order of their first change."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat as modes
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import NamedTuple

from ...shared.libc import beneath
from ..threads import give_way, leave_loop
from .file_entries import PRIVATE_DIR, closing_fd, is_being_written

MAX_ENTRIES = 1_000_000
MAX_PATH_CHARS = 32_768
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_CHUNK = 1 << 20
_BLOCK = 512
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


class StatEntry(NamedTuple):
    """The status of a file or link. No program can set ``ctime_ns``, so an equal status means an unchanged file."""

    mode: int
    size: int
    inode: int
    ctime_ns: int

    @property
    def git_mode(self) -> str:
        if modes.S_ISLNK(self.mode):
            return LINK
        return "100755" if self.mode & modes.S_IXUSR else "100644"


def scan(
    root: int,
    before: dict[str, StatEntry] | None = None,
    unread: list[str] | None = None,
    blocks: dict[int, int] | None = None,
) -> dict[str, StatEntry]:
    """Returns every file and link below the directory, by path, without special files and the worker's own.

    Entries of unreadable directories, or above ``MAX_ENTRIES``, are taken from ``before``, and ``unread`` receives a
    sentence. The tree may change meanwhile. ``blocks`` receives what each inode takes on disk, directories included.
    """
    found: dict[str, StatEntry] = {}
    unread = [] if unread is None else unread
    blocks = {} if blocks is None else blocks
    waiting = [""]
    while waiting:
        path = waiting.pop()
        try:
            fd = _open_folder(root, path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                unread.append(f"{path[:200] or '.'}: {error.strerror}")
                found |= {name: entry for name, entry in (before or {}).items() if name.startswith(path + "/")}
            continue
        try:
            for name, entry in _tracked_entries(fd, f"{path}/" if path else "", blocks):
                if modes.S_ISDIR(entry.mode):
                    waiting.append(name)
                else:
                    found[name] = entry
        finally:
            os.close(fd)
        if len(found) > MAX_ENTRIES:
            unread.append(f"there are more than {MAX_ENTRIES} files")
            return (before or {}) | found
    return found


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


def _tracked_entries(folder: int, prefix: str, blocks: dict[int, int]) -> Iterator[tuple[str, StatEntry]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            give_way()
            path = prefix + entry.name
            if path == PRIVATE_DIR or is_being_written(entry.name):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if modes.S_IFMT(found.st_mode) in (modes.S_IFREG, modes.S_IFLNK, modes.S_IFDIR):
                    blocks[found.st_ino] = found.st_blocks
                    yield path, StatEntry(found.st_mode, found.st_size, found.st_ino, found.st_ctime_ns)


def git_folder(path: str) -> str | None:
    """Returns the ``.git`` that the path is or is inside of, whose state a patch cannot contain; else None."""
    if ".git" not in path:
        return None
    names = path.split("/")
    return "/".join(names[: names.index(".git") + 1]) if ".git" in names else None


def _differing(old: dict[str, StatEntry], new: dict[str, StatEntry]) -> set[str]:
    differing = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    return {path for path in differing if not is_refreshed(path, old.get(path), new.get(path))}


def is_refreshed(path: str, old: StatEntry | None, new: StatEntry | None) -> bool:
    """Whether the change is one that ``git status`` makes: git's index, and the times of its directories."""
    if old is None or new is None or (folder := git_folder(path)) is None:
        return False
    return path == f"{folder}/index" or (modes.S_ISDIR(old.mode) and modes.S_ISDIR(new.mode))


def read_content(root: int, path: str, entry: StatEntry, max_bytes: int) -> bytes | None:
    """Returns a file's content or a link's target; None if it is gone, unreadable or larger than ``max_bytes``."""
    with suppress(OSError):
        if modes.S_ISLNK(entry.mode):
            return _read_link(root, path)
        with _open_file(root, path) as file:
            data = file.read(max_bytes + 1)
            return data if len(data) <= max_bytes else None
    return None


def _digest(root: int, path: str, entry: StatEntry, deadline: Deadline) -> str | None:
    with suppress(OSError):
        if modes.S_ISLNK(entry.mode):
            return hashlib.sha256(_read_link(root, path)).hexdigest()
        with _open_file(root, path) as file:
            digest = hashlib.sha256()
            while piece := file.read(_CHUNK):
                if deadline.expired:
                    return None
                give_way()
                digest.update(piece)
            return digest.hexdigest()
    return None


def _read_link(root: int, path: str) -> bytes:
    with closing_fd(beneath(root, path, os.O_PATH | os.O_NOFOLLOW, links=False)) as fd:
        return os.readlink(b"", dir_fd=fd)


def _open_file(root: int, path: str) -> FileIO:
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


class Manifest:
    """Compares the directory ``files`` with its copy ``base`` from the run's start (both descriptors).

    ``start_file`` contains the status of ``files`` at the run's start, and is written if missing; the order of changes
    is stored in ``folder``. Thread-safe.
    """

    def __init__(self, folder: Path, start_file: Path, files: int, base: int) -> None:
        self._files, self._base = files, base
        self._order_file = folder / "changed.jsonl"
        self._lock = Lock()
        self.taken: int | None = None
        """Bytes that the files take on disk, if ``start_file`` was missing and all of them could be read."""
        if start_file.exists():
            read = json.loads(start_file.read_text("ascii"))
            self._start = {path: StatEntry(*entry) for path, entry in read.items()}
        else:
            self._start, self.taken = scan_with_size(files)
            start_file.write_text(json.dumps(self._start), "ascii")
        self.base = scan(base)
        self.unread: list[str] = []
        """Sentences about what the last scan could not read."""
        self._order: dict[str, int] = {}
        if self._order_file.exists():
            lines = self._order_file.read_text("ascii").split("\n")
            self._remember(json.loads(line) for line in lines[:-1])  # a crash may have cut the last one
        self._digests: dict[tuple[int, str, StatEntry], str | None] = {}
        self.now = self._start

    def note(self) -> bool:
        """Scans the tree and records the paths that differ for the first time, oldest change first.

        Returns whether anything changed since the last time.
        """
        with self._lock:
            unread: list[str] = []
            before, self.now = self.now, scan(self._files, self.now, unread)
            self.unread = unread
            differing = {
                path for path in _differing(self._start, self.now) if (git_folder(path) or path) not in self._order
            }
            gone = [path for path in differing if path not in self.now]
            changed = sorted(differing & self.now.keys(), key=lambda path: (self.now[path].ctime_ns, path))
            new = list(dict.fromkeys(git_folder(path) or path for path in [*sorted(gone), *changed]))
            if new:
                with self._order_file.open("a", encoding="ascii") as file:
                    file.writelines(json.dumps(path) + "\n" for path in new)
                self._remember(new)
            return before != self.now and bool(_differing(before, self.now))

    @property
    def size(self) -> int:
        """Bytes of all files at the last scan, with their holes."""
        return sum(entry.size for entry in self.now.values())

    def differences(self, deadline: Deadline = UNBOUNDED) -> list[Difference]:
        """Returns every path whose content or mode differs, in order of first change; renames by equal content.

        A path whose content could not be read before the deadline counts as changed. A ``.git`` is one difference.
        """
        self.note()
        with self._lock:
            if differing := _differing(self._start, self.now):
                leave_loop()  # contents are read and compared
            folders = {folder for path in differing if (folder := git_folder(path))}
            found = [
                Difference(
                    path,
                    self._content(self._base, path, self.base.get(path), deadline),
                    self._content(self._files, path, self.now.get(path), deadline),
                )
                for path in differing
                if not git_folder(path)
            ]
            changed = join_renames([each for each in found if each.old != each.new or is_unknown(each)])
            return sorted([*changed, *map(self._git_difference, folders)], key=self._rank)

    def _git_difference(self, folder: str) -> Difference:
        def held(tree: dict[str, StatEntry]) -> Content | None:
            inside = any(path == folder or path.startswith(folder + "/") for path in tree)
            return Content(DIRECTORY, None) if inside else None

        return Difference(folder, held(self._start), held(self.now))

    def _content(self, root: int, path: str, entry: StatEntry | None, deadline: Deadline) -> Content | None:
        if entry is None:
            return None
        key = (root, path, entry)
        if key not in self._digests:
            digest = _digest(root, path, entry, deadline)
            if deadline.expired:
                return Content(entry.git_mode, digest)
            self._digests[key] = digest
        return Content(entry.git_mode, self._digests[key])

    def _remember(self, paths: Iterator[str] | list[str]) -> None:
        for path in paths:
            self._order.setdefault(path, len(self._order))

    def _rank(self, difference: Difference) -> tuple[int, str]:
        ranks = [self._order[path] for path in (difference.path, difference.source) if path in self._order]
        return min(ranks, default=len(self._order)), difference.path
