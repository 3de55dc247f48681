"""Snapshots of a run's files: one at its start, one after each step that changed some, one at its end.

A snapshot is a line of a log with the paths that differ from the one before, and refers to contents by their digest.
The start is the workspace's ``base``, and for git's own state, which that lacks, a first line. Contents beyond the
bounds are not kept: the line has no digest then, and the states that contain them cannot be restored.
"""

from __future__ import annotations

import io
import json
import stat as modes
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from ...shared.patch_format import printable_path
from ...shared.runs.record import FileTurns
from ..sandbox.full_disk import FullDisk
from ..threads import give_way
from .file_entries import is_private
from .manifest import (
    DIRECTORY,
    LINK,
    UNBOUNDED,
    Content,
    Deadline,
    Difference,
    StatEntry,
    differing,
    digest_of,
    git_folder,
    git_mode,
    is_refreshed,
    is_unknown,
    join_renames,
    open_file,
    read_link,
    scan,
    scan_with_size,
)
from .objects import MAX_FILE_BYTES, Objects

START = "start"
"""The step of the line with git's own state at the start."""
_MAX_START_FILES = 1000


class Kept(NamedTuple):
    """What a snapshot holds of a path: its mode (``st_mode``), digest (None: content not kept) and size in bytes."""

    mode: int
    sha256: str | None
    size: int

    @property
    def git_mode(self) -> str:
        return git_mode(self.mode)

    @property
    def content(self) -> Content:
        """As git records it, but a file with all of its permissions."""
        return Content(LINK if modes.S_ISLNK(self.mode) else f"{self.mode:o}", self.sha256)


State = dict[str, Kept | None]
"""The paths that may differ from the start; None for one that is gone."""


class Snapshot(NamedTuple):
    """What a step changed, in order; turn 0 for what the run began with."""

    turn: int
    step: str
    changed: Mapping[str, Kept | None]

    @property
    def line(self) -> str:
        """As it is appended to a log: a line that a crash cut spoils no other."""
        return "\n" + json.dumps(self)


def read_log(log: Path) -> Iterator[Snapshot]:
    """Yields the snapshots of a log."""
    with suppress(FileNotFoundError):
        for line in log.read_text("ascii").split("\n"):
            with suppress(ValueError):
                turn, step, changed = json.loads(line)
                yield Snapshot(turn, step, {path: kept and Kept(*kept) for path, kept in changed.items()})


class History:
    """What the snapshots until now amount to."""

    def __init__(self) -> None:
        self.state: State = {}
        self.order: dict[str, int] = {}
        """Paths in the order of their first change; a ``.git`` counts as one."""
        self.turns = FileTurns()
        self.step = ""
        self.replaced: State = {}
        """What the last step changed, as it was before, but for paths that were as at the start."""
        self.of_step: dict[str, None] = {}
        """All paths that it changed."""
        self.start: State | None = None
        """Git's own state at the start, once it is kept."""
        self._lacking: dict[str, None] = {}

    def add(self, snapshot: Snapshot) -> None:
        if snapshot.step == START:
            self.start = {**snapshot.changed}
        if snapshot.step != self.step or not snapshot.step:
            self.step, self.replaced, self.of_step = snapshot.step, {}, {}
        for path, kept in snapshot.changed.items():
            if path in self.state and path not in self.of_step:
                self.replaced[path] = self.state[path]
            self.of_step.setdefault(path)
            self.state[path] = kept
            self._lacking.pop(path, None)
            if kept and kept.sha256 is None:
                self._lacking[path] = None
            if snapshot.step != START:
                self.order.setdefault(git_folder(path) or path, len(self.order))
        self.turns = self.turns.changed(snapshot.turn, self.lacks)

    @property
    def lacks(self) -> str:
        """A path whose content is not kept; "" where all are."""
        return printable_path(next(iter(self._lacking), ""))

    @classmethod
    def before(cls, log: Path, turn: int | None) -> Self:
        """Returns the history before this turn, or the whole one."""
        history = cls()
        for snapshot in read_log(log):
            if turn is None or snapshot.turn < turn:
                history.add(snapshot)
        return history

    @property
    def changed(self) -> State:
        """What is not as at the start."""
        start = self.start or {}
        return {path: kept for path, kept in self.state.items() if path not in start or start[path] != kept}

    @property
    def summary(self) -> list[Snapshot]:
        """The fewest snapshots that amount to the same, for a run that begins with it."""
        start = [] if self.start is None else [Snapshot(0, START, self.start)]
        changed = sorted(self.changed.items(), key=lambda item: self.order[git_folder(item[0]) or item[0]])
        return [*start, Snapshot(0, "", dict(changed))]


class Snapshots:
    """The snapshots of the directory ``files``, whose copy from the run's start is ``base`` (both descriptors).

    ``start_file`` contains the status of ``files`` at the run's start, and is written if missing. Thread-safe.
    """

    def __init__(self, log: Path, start_file: Path, objects: Objects, files: int, base: int) -> None:
        self._log, self._objects, self._files, self._base = log, objects, files, base
        self._lock, self._disk = Lock(), FullDisk(log.parent)
        self.turn: Callable[[], int] = lambda: 0
        """The turn to which the next changes belong."""
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
        self.special: dict[str, str] = {}
        """The kind of each FIFO, socket and device that the last scan found, by path."""
        self._digests: dict[tuple[int, str, StatEntry], str | None] = {}
        self.now = self._start
        self.history = History()
        for snapshot in read_log(log):
            self.history.add(snapshot)
            for kept in snapshot.changed.values():
                if kept and kept.sha256:
                    objects.note(kept.sha256, kept.size)

    @property
    def size(self) -> int:
        """Bytes of all files at the last scan, with their holes."""
        return sum(entry.size for entry in self.now.values())

    @property
    def lacks_start(self) -> bool:
        """Whether git's own state is as at the start, and nothing of it is kept yet."""
        untouched = self.now is self._start and self.history.start is None and not self.history.turns.last
        return untouched and any(map(git_folder, self._start))

    def keep_start(self) -> None:
        """Keeps git's own state, but its objects, which never change; called before the first step with effects."""
        with self._lock:
            paths = [
                path for path in self._start if (git := git_folder(path)) and not path.startswith(f"{git}/objects/")
            ]
            kept = {path: self._keep(path, self._start[path], UNBOUNDED) for path in sorted(paths)[:_MAX_START_FILES]}
            self._append(Snapshot(0, START, {path: each for path, each in kept.items() if each.sha256}))

    def take(self, step: str = "", deadline: Deadline = UNBOUNDED) -> None:
        """Takes a snapshot, if anything changed since the last one. Contents that cannot be read are not kept."""
        with self._lock:
            unread, special = list[str](), dict[str, str]()
            now = scan(self._files, self.now, unread, special=special)
            found = differing(self.now, now)
            if self.now is self._start:  # an earlier attempt may have changed more than it recorded
                found |= self.history.state.keys()
            changed: State = {}
            if found:
                gone = sorted(path for path in found if path not in now)
                for path in (*gone, *sorted(found & now.keys(), key=lambda path: (now[path].ctime_ns, path))):
                    kept = self._keep(path, now[path], deadline) if path in now else None
                    if path not in self.history.state or self.history.state[path] != kept or (kept and not kept.sha256):
                        changed[path] = kept
            if changed:
                self._append(Snapshot(self.turn(), step, changed), deadline)
            self.now, self.unread = now, unread
            self.special = {path: kind for path, kind in special.items() if not is_private(path)}

    def _append(self, snapshot: Snapshot, deadline: Deadline = UNBOUNDED) -> None:
        self._disk.with_room_until(lambda: deadline.expired, self._write, snapshot.line)
        self.history.add(snapshot)

    def _write(self, line: str) -> None:
        with self._log.open("a", encoding="ascii") as file:
            file.write(line)

    def _keep(self, path: str, entry: StatEntry, deadline: Deadline) -> Kept:
        give_way()
        id: str | None = None
        if entry.size <= MAX_FILE_BYTES and not deadline.expired:
            with suppress(OSError):  # gone meanwhile, or the disk stays full
                if id := self._disk.with_room_until(lambda: deadline.expired, self._put, path, entry):
                    self._digests[self._files, path, entry] = id
        return Kept(entry.mode, id, entry.size)

    def _put(self, path: str, entry: StatEntry) -> str | None:
        if modes.S_ISLNK(entry.mode):
            return self._objects.put(io.BytesIO(read_link(self._files, path)))
        with open_file(self._files, path) as file:
            return self._objects.put(file)

    def differences(self, deadline: Deadline = UNBOUNDED) -> list[Difference]:
        """Returns every path whose content or mode differs, in order of first change; renames by equal content.

        A path whose content could not be read before the deadline counts as changed. A ``.git`` is one difference.
        """
        self.take(deadline=deadline)
        with self._lock:
            paths = [
                path
                for path in differing(self._start, self.now)
                if not is_private(path) and not is_refreshed(path, self._start.get(path), self.now.get(path))
            ]
            folders = {folder for path in paths if (folder := git_folder(path))}
            found = [
                Difference(
                    path,
                    self._content(self._base, path, self.base.get(path), deadline),
                    self._content(self._files, path, self.now.get(path), deadline),
                )
                for path in paths
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
            digest = digest_of(root, path, entry, deadline)
            if deadline.expired:
                return Content(entry.git_mode, digest)
            self._digests[key] = digest
        return Content(entry.git_mode, self._digests[key])

    def _rank(self, difference: Difference) -> tuple[int, str]:
        order = self.history.order
        ranks = [order[path] for path in (difference.path, difference.source) if path in order]
        return min(ranks, default=len(order)), difference.path
