"""Generations of a workspace: every attempt works on its own files, so that a worker without its lease does no harm.

A suspended worker may resume in the middle of a command or a write. It then changes only the generation of its own
attempt; the next attempt continues in a copy made before.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from ...shared.errors import Conflict
from ...shared.libc import beneath, closing_fd
from ...shared.runs.record import FilesOf, files_gone
from ...shared.workspaces import generation_path, latest_generation
from ..sandbox.environment import owner
from .file_entries import TEMPORARY
from .manifest import Content, Difference, StatEntry, git_folder, scan
from .objects import FOLDER as OBJECTS
from .objects import Objects
from .removal import in_use
from .snapshots import History, State
from .source import KeptRules, open_folder, write_new
from .tree_changes import FILE, ContentDiffers, Stored, apply, give, parent_of
from .tree_copy import Copier, CopyTally, TreeCopy

_LEFTOVER = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GIT_FILE = 4096
_ANY = Content("", None)
"""Something at a path that is to be removed."""
PREPARED = "prepared"
"""Beside files that a parent has made, until the first attempt takes them."""


class NumberTaken(Exception):
    """Another attempt has files of this number: a failover of Redis has lost its claim, and both work for a moment."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The files of one attempt, their state at the run's start, and the marks of its commands."""

    folder: Path
    number: int

    def _path(self, name: str) -> Path:
        return generation_path(self.folder, name, self.number)

    @property
    def changes(self) -> Path:
        return self._path("changes")

    @property
    def services(self) -> Path:
        return self._path("services")

    @property
    def files(self) -> Path:
        return self._path("files")

    @property
    def start(self) -> Path:
        """The state of the files at the run's start, as inodes of this generation; written when it is complete."""
        return self._path("start.json")

    @property
    def status_folder(self) -> Path:
        """The progress of each command, one file per call; out of the reach of commands."""
        return self._path("marks")

    @property
    def log(self) -> Path:
        """The snapshots until now, which a worker without its lease cannot add to for a later attempt."""
        return self._path("snapshots.jsonl")

    @classmethod
    def latest(cls, folder: Path) -> Generation | None:
        """Returns the newest complete generation, or None if there is no workspace."""
        number = latest_generation(folder)
        return None if number is None else cls(folder, number)

    def next(self, number: int) -> Generation:
        """Copies this generation for attempt ``number``. After a crash in between, this one is still the newest.

        Raises ``NumberTaken``.
        """
        if number < self.number:
            raise NumberTaken
        if number == self.number:
            return self._taken()
        new = Generation(self.folder, number)
        try:
            new.status_folder.mkdir(mode=0o700)
        except FileExistsError:
            raise NumberTaken from None
        try:
            return self._copied_to(new)
        except BaseException:  # it may be made again, and what it takes is needed then
            for leftover in (new.files, new.status_folder):
                shutil.rmtree(leftover, ignore_errors=True)
            raise

    def _taken(self) -> Generation:
        try:
            (self.folder / PREPARED).unlink()
        except FileNotFoundError:
            raise NumberTaken from None
        return self

    def _copied_to(self, new: Generation) -> Generation:
        """Copies the marks before the files.

        A command that ends in between is in doubt, and not considered done while its effects are missing.
        """
        for mark in self.status_folder.iterdir():  # `shutil.copytree` would hide that the disk is full
            shutil.copy2(mark, new.status_folder)
        new.files.mkdir(mode=0o755)
        if uid_gid := owner():
            os.chown(new.files, *uid_gid)
        with open_folder(self.files) as old, open_folder(new.files) as copy:
            moved = _moved_start(self.read_start(), old, copy, TreeCopy(old, copy, _is_complete, owner=owner()))
        new.log.write_bytes(self.log.read_bytes() if self.log.exists() else b"")
        temporary = self.folder / f"making.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(moved), "ascii")
        temporary.rename(new.start)
        return new

    def read_start(self) -> dict[str, StatEntry]:
        return {path: StatEntry(*entry) for path, entry in json.loads(self.start.read_text("ascii")).items()}


def _moved_start(start: Mapping[str, StatEntry], old: int, new: int, copy: TreeCopy) -> dict[str, StatEntry]:
    """Copies the files ``old`` to ``new``, and returns the state at the run's start with the inodes of the copy."""
    before = scan(old)
    copy.run()
    after = scan(new)
    return {path: after.get(path, entry) if before.get(path) == entry else entry for path, entry in start.items()}


def _is_complete(path: str, is_directory: bool) -> bool:
    """Whether the path is not a temporary file of a write that a crash interrupted."""
    return is_directory or not _LEFTOVER.fullmatch(path.rpartition("/")[2])


def files_beside(folder: Path) -> list[Path]:
    """Returns the files that describe a workspace, but for those of one generation."""
    own = ("start.", "making.", "snapshots.jsonl", PREPARED)
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(own)]


def restore(root: Path, of: FilesOf, folder: Path, stop: Event, *, tally: CopyTally) -> None:
    """Fills the new workspace in ``folder``, whose directories are empty, from an earlier one below ``root``.

    They are as before the turn that ``of`` names, else as they are now. Its changes are counted from the start of the
    earlier one, so that its patch has all of them. Raises ``Conflict`` where the files, or some of them, are gone.
    """
    earlier = root / of.id
    latest, new = Generation.latest(earlier), Generation(folder, 1)
    if latest is None:
        raise Conflict(files_gone(earlier.name))
    for beside in files_beside(earlier):
        shutil.copyfile(beside, folder / beside.name)
    history = History.before(latest.log, of.before)
    with (
        in_use(earlier),
        open_folder(earlier / "base") as base,
        open_folder(latest.files) as files,
        open_folder(folder / "base") as new_base,
        open_folder(new.files) as new_files,
    ):
        TreeCopy(base, new_base, stop=stop).run()
        if of.before is not None:
            TreeCopy(base, new_files, owner=owner(), stop=stop, tally=tally).run()
        if of.for_merge:
            replace(KeptRules.read(folder), everything=True).write(folder)
            return
        Objects(folder).adopt(earlier, {kept.sha256 for kept in history.state.values() if kept and kept.sha256})
        if of.before is None:
            copy = TreeCopy(files, new_files, _is_complete, owner=owner(), stop=stop, tally=tally)
            moved = _moved_start(latest.read_start(), files, new_files, copy)
        else:
            moved = _restored(latest, history, files, new_files, Stored(folder / OBJECTS, Copier(stop)))
    with new.log.open("w", encoding="ascii") as log:
        log.writelines(each.line for each in history.summary)
    new.start.write_text(json.dumps(moved), "ascii")


def _restored(latest: Generation, history: History, files: int, target: int, contents: Stored) -> dict[str, StatEntry]:
    """Turns a copy of the start into the last state; returns the one at the start with the inodes of the copy."""
    start, now = latest.read_start(), scan(files)
    not_kept = {path for path in start if path not in history.state}
    for path in not_kept:
        if git_folder(path) and now.get(path) != start[path]:
            raise Conflict(
                f"the run of {latest.folder.name} changed {path[:200]!r}, git's own state, and what it was before is "
                f"not kept; `deputize retry {latest.folder.name}` starts from the beginning"
            )
    for folder in sorted({folder for path in start if (folder := git_folder(path))}):  # the copy of the start lacks it
        with suppress(FileNotFoundError, NotADirectoryError):
            _copy_git(files, folder, target, not_kept)
    apply_state(history.state, target, contents, latest.folder.name)
    after, changed = scan(target), history.changed
    return {path: entry if path in changed else after.get(path, entry) for path, entry in start.items()}


def apply_state(state: State, target: int, contents: Stored, id: str) -> None:
    """Turns files as at the start into those of a state of the run ``id``. Raises ``Conflict`` where that is lost."""
    changes = [Difference(path, _ANY, kept and kept.content) for path, kept in state.items()]
    try:
        if blocked := apply(target, changes, contents):
            raise Conflict(f"{blocked[0]} cannot be restored: something else is at its path")
    except (ContentDiffers, FileNotFoundError) as error:
        raise Conflict(f"the files of {id} cannot be restored: a content is lost ({error})") from None


def _copy_git(files: int, path: str, target: int, wanted: Set[str]) -> None:
    """Copies what is wanted of a ``.git``, a directory or a file that names one elsewhere."""
    name = path.rpartition("/")[2]
    with closing_fd(parent_of(target, path)) as parent:
        if path in wanted:
            with closing_fd(beneath(files, path, FILE, links=False)) as link:
                write_new(parent, name, os.read(link, _MAX_GIT_FILE))
            return
        with closing_fd(beneath(files, path, _FOLDER, links=False)) as source:
            os.mkdir(name, 0o755, dir_fd=parent)
            with closing_fd(beneath(parent, name, _FOLDER, links=False)) as inner:
                give(inner, 0o755)
                TreeCopy(source, inner, lambda each, is_folder: is_folder or f"{path}/{each}" in wanted, owner()).run()
