"""What a workspace held at its start, what it holds now, and which files differ, in the order they first did."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat as modes
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import NamedTuple

from worker.linux.openat2 import beneath
from worker.threads import give_way
from worker.workspace.allowance import UNBOUNDED, Allowance
from worker.workspace.file_entries import is_being_written
from worker.workspace.private import PRIVATE_DIR

LINK = "120000"
"""git's mode of a symbolic link."""
DIRECTORY = "040000"
"""And of a directory."""
MAX_ENTRIES = 1_000_000
MAX_PATH_CHARS = 32_768
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PIECE = 1 << 20


class StatEntry(NamedTuple):
    """A file or link as one look at its inode shows it. No program can set ``ctime_ns``, so equal means unchanged."""

    mode: int
    size: int
    inode: int
    ctime_ns: int

    @property
    def git_mode(self) -> str:
        if modes.S_ISLNK(self.mode):
            return LINK
        return "100755" if self.mode & modes.S_IXUSR else "100644"


class Content(NamedTuple):
    """What git would record of a path: its mode and the digest of its bytes (None where they cannot be read)."""

    git_mode: str
    sha256: str | None


class Difference(NamedTuple):
    """One path that differs: ``old`` or ``new`` is None where nothing was or is, ``source`` is where a rename began."""

    path: str
    old: Content | None
    new: Content | None
    source: str | None = None


def scan(
    root: int, before: dict[str, StatEntry] | None = None, missed: list[str] | None = None
) -> dict[str, StatEntry]:
    """Every file and link below the directory, by path; not what git could not record, nor our own.

    What lies in directories that cannot be opened, or are more than we look at, is taken as ``before`` had it, and
    ``missed`` is told. The tree may change meanwhile.
    """
    found: dict[str, StatEntry] = {}
    missed = [] if missed is None else missed
    waiting = [""]
    while waiting:
        path = waiting.pop()
        try:
            fd = _folder(root, path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                missed.append(f"{path[:200] or '.'}: {error.strerror}")
                found |= {name: seen for name, seen in (before or {}).items() if name.startswith(path + "/")}
            continue
        try:
            for name, entry in _tracked(fd, f"{path}/" if path else ""):
                if modes.S_ISDIR(entry.mode):
                    waiting.append(name)
                else:
                    found[name] = entry
        finally:
            os.close(fd)
        if len(found) > MAX_ENTRIES:
            missed.append(f"there are more than {MAX_ENTRIES} files")
            return (before or {}) | found
    return found


def _folder(root: int, path: str) -> int:
    if len(path) > MAX_PATH_CHARS:
        raise OSError(errno.ENAMETOOLONG, "nested too deep")
    return beneath(root, path or ".", _FOLDER, links=False)


def _tracked(folder: int, prefix: str) -> Iterator[tuple[str, StatEntry]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            give_way()
            path = prefix + entry.name
            if path == PRIVATE_DIR or is_being_written(entry.name):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if modes.S_IFMT(found.st_mode) in (modes.S_IFREG, modes.S_IFLNK, modes.S_IFDIR):
                    yield path, StatEntry(found.st_mode, found.st_size, found.st_ino, found.st_ctime_ns)


def git_folder(path: str) -> str | None:
    """The ``.git`` that the path is or lies in; git keeps its own state there, which no patch carries."""
    if ".git" not in path:
        return None
    names = path.split("/")
    return "/".join(names[: names.index(".git") + 1]) if ".git" in names else None


def _is_refreshed(path: str, old: StatEntry | None, new: StatEntry | None) -> bool:
    """Whether this is what ``git status`` writes when it only looks: git's index, and the times of its folders."""
    if old is None or new is None or (folder := git_folder(path)) is None:
        return False
    return path == f"{folder}/index" or (modes.S_ISDIR(old.mode) and modes.S_ISDIR(new.mode))


def content_of(root: int, path: str, seen: StatEntry, max_bytes: int) -> bytes | None:
    """A file's bytes or a link's target; None where it is gone, unreadable or larger than ``max_bytes``."""
    with suppress(OSError):
        if modes.S_ISLNK(seen.mode):
            return _target(root, path)
        with _opened(root, path) as file:
            data = file.read(max_bytes + 1)
            return data if len(data) <= max_bytes else None
    return None


def _digest_of(root: int, path: str, seen: StatEntry, allowance: Allowance) -> str | None:
    with suppress(OSError):
        if modes.S_ISLNK(seen.mode):
            return hashlib.sha256(_target(root, path)).hexdigest()
        with _opened(root, path) as file:
            digest = hashlib.sha256()
            while piece := file.read(_PIECE):
                if allowance.over:
                    return None
                give_way()
                digest.update(piece)
            return digest.hexdigest()
    return None


def _target(root: int, path: str) -> bytes:
    fd = _beneath(root, path, os.O_PATH)
    try:
        return os.readlink(b"", dir_fd=fd)
    finally:
        os.close(fd)


def _opened(root: int, path: str) -> FileIO:
    return FileIO(_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK))


def _beneath(root: int, path: str, flags: int) -> int:
    """The file, or the link itself; no directory on the way may be a link."""
    above, _, name = path.rpartition("/")
    folder = beneath(root, above or ".", os.O_PATH | os.O_DIRECTORY, links=False)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


class Manifest:
    """Compares the directory ``files`` with its pristine copy ``base``; ``folder`` keeps what outlives the process.

    ``start_file`` holds what ``files`` was at the run's start; it is written where it is missing.

    Methods may be called from any thread, one at a time takes effect.
    """

    def __init__(self, folder: Path, start_file: Path, files: int, base: int) -> None:
        self._files, self._base = files, base
        self._order_file = folder / "changed.jsonl"
        self._lock = Lock()
        if start_file.exists():
            read = json.loads(start_file.read_text("ascii"))
            self._start = {path: StatEntry(*seen) for path, seen in read.items()}
        else:
            self._start = scan(files)
            start_file.write_text(json.dumps(self._start), "ascii")
        self.base = scan(base)
        self.missed: list[str] = []
        """What the last look at the tree could not see."""
        self._order: dict[str, int] = {}
        if self._order_file.exists():
            lines = self._order_file.read_text("ascii").split("\n")
            self._remember(json.loads(line) for line in lines[:-1])  # we may have died within the last one
        self._digests: dict[tuple[int, str, StatEntry], str | None] = {}
        self.now = self._start

    def note(self) -> None:
        """Looks at the tree and remembers which paths differ for the first time, oldest change first."""
        with self._lock:
            missed: list[str] = []
            self.now = scan(self._files, self.now, missed)
            self.missed = missed
            differing = {path for path in self._differing() if (git_folder(path) or path) not in self._order}
            gone = [path for path in differing if path not in self.now]
            changed = sorted(differing & self.now.keys(), key=lambda path: (self.now[path].ctime_ns, path))
            new = list(dict.fromkeys(git_folder(path) or path for path in [*sorted(gone), *changed]))
            if new:
                with self._order_file.open("a", encoding="ascii") as file:
                    file.writelines(json.dumps(path) + "\n" for path in new)
                self._remember(new)

    def differences(self, allowance: Allowance = UNBOUNDED) -> list[Difference]:
        """Every path whose content or mode differs now, renames found by equal content, in order of first change.

        A path whose content could not be read, also for lack of time, counts as changed. Of a ``.git`` only that
        something in it differs is said.
        """
        self.note()
        with self._lock:
            differing = self._differing()
            folders = {folder for path in differing if (folder := git_folder(path))}
            found = [self._compare(path, allowance) for path in differing if not git_folder(path)]
            changed = _renamed([each for each in found if each.old != each.new or _is_unread(each)])
            return sorted([*changed, *map(self._git_difference, folders)], key=self._rank)

    def _git_difference(self, folder: str) -> Difference:
        def held(tree: dict[str, StatEntry]) -> Content | None:
            inside = any(path == folder or path.startswith(folder + "/") for path in tree)
            return Content(DIRECTORY, None) if inside else None

        return Difference(folder, held(self._start), held(self.now))

    def _differing(self) -> set[str]:
        paths = self._start.keys() | self.now.keys()
        differing = {path for path in paths if self._start.get(path) != self.now.get(path)}
        return {path for path in differing if not _is_refreshed(path, self._start.get(path), self.now.get(path))}

    def _compare(self, path: str, allowance: Allowance) -> Difference:
        old, new = self.base.get(path), self.now.get(path)
        before = self._content(self._base, path, old, allowance)
        return Difference(path, before, self._content(self._files, path, new, allowance))

    def _content(self, root: int, path: str, seen: StatEntry | None, allowance: Allowance) -> Content | None:
        if seen is None:
            return None
        key = (root, path, seen)
        if key not in self._digests:
            digest = _digest_of(root, path, seen, allowance)
            if allowance.over:
                return Content(seen.git_mode, digest)
            self._digests[key] = digest
        return Content(seen.git_mode, self._digests[key])

    def _remember(self, paths: Iterator[str] | list[str]) -> None:
        for path in paths:
            self._order.setdefault(path, len(self._order))

    def _rank(self, difference: Difference) -> tuple[int, str]:
        ranks = [self._order[path] for path in (difference.path, difference.source) if path in self._order]
        return min(ranks, default=len(self._order)), difference.path


def _is_unread(each: Difference) -> bool:
    """Whether there is a file before and after, and nobody knows whether they are equal."""
    return each.old is not None and each.new is not None and None in (each.old.sha256, each.new.sha256)


def _renamed(found: list[Difference]) -> list[Difference]:
    """The same with each deleted file joined to a created one of the same content, if there is one.

    Not links: git cannot apply a patch that renames a link and puts a directory in its place.
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
