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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from ...shared.errors import Conflict
from ...shared.libc import beneath
from ...shared.runs.record import FilesOf, files_gone
from ...shared.workspaces import generation_path, latest_generation
from ..sandbox.environment import owner
from .file_entries import TEMPORARY, closing_fd
from .manifest import StatEntry, git_folder, is_refreshed, read_content, scan
from .removal import in_use
from .source import KeptRules, open_folder, write_new
from .tree_copy import CopyTally, TreeCopy

_LEFTOVER = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_GIT_FILE = 4096


@dataclass(frozen=True, slots=True)
class Generation:
    """The files of one attempt, their state at the run's start, and the marks of its commands."""

    folder: Path
    number: int

    def _path(self, name: str) -> Path:
        return generation_path(self.folder, name, self.number)

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

    @classmethod
    def latest(cls, folder: Path) -> Generation | None:
        """Returns the newest complete generation, or None if there is no workspace."""
        number = latest_generation(folder)
        return None if number is None else cls(folder, number)

    def next(self, number: int) -> Generation:
        """Copies this generation for attempt ``number``. After a crash in between, this one is still the newest.

        The marks are copied before the files: a command that ends in between is in doubt, and not considered done
        while its effects are missing.
        """
        new = Generation(self.folder, number)
        for leftover in (new.files, new.status_folder):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(self.status_folder, new.status_folder)
        new.files.mkdir(mode=0o755)
        if uid_gid := owner():
            os.chown(new.files, *uid_gid)
        with open_folder(self.files) as old, open_folder(new.files) as copy:
            before = scan(old)
            TreeCopy(old, copy, _is_complete, owner=owner()).run()
            after = scan(copy)
        moved = _moved_start(json.loads(self.start.read_text("ascii")), before, after)
        temporary = self.folder / f"making.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(moved), "ascii")
        temporary.rename(new.start)
        return new


def _moved_start(
    start: Mapping[str, Sequence[int]], before: Mapping[str, StatEntry], after: Mapping[str, StatEntry]
) -> dict[str, Sequence[int]]:
    """Returns the state at the run's start for a copy of its files, in which unchanged files have new inodes.

    ``before`` is the state of the original, ``after`` that of the copy.
    """
    same = {path for path, entry in start.items() if path in after and tuple(before.get(path, ())) == tuple(entry)}
    return {path: after[path] if path in same else entry for path, entry in start.items()}


def _is_complete(path: str, is_directory: bool) -> bool:
    """Whether the path is not a temporary file of a write that a crash interrupted."""
    return is_directory or not _LEFTOVER.fullmatch(path.rpartition("/")[2])


def restore(root: Path, of: FilesOf, folder: Path, stop: Event, *, tally: CopyTally) -> None:
    """Fills the new workspace in ``folder``, whose directories are empty, from an earlier one below ``root``.

    Its changes are counted from the start of the earlier one, so that its patch has all of them. Raises ``Conflict``
    where the files are gone, or git's state at the start is.
    """
    earlier = root / of.id
    latest, new = Generation.latest(earlier), Generation(folder, 1)
    if latest is None:
        raise Conflict(files_gone(earlier.name))
    for beside in earlier.iterdir():
        if beside.is_file() and not beside.name.startswith(("start.json", "making.")):
            shutil.copyfile(beside, folder / beside.name)
    start = {path: StatEntry(*entry) for path, entry in json.loads(latest.start.read_text("ascii")).items()}
    with (
        in_use(earlier),
        open_folder(earlier / "base") as base,
        open_folder(latest.files) as files,
        open_folder(folder / "base") as new_base,
        open_folder(new.files) as new_files,
    ):
        TreeCopy(base, new_base, stop=stop).run()
        before = scan(files)
        if of.at_start:
            TreeCopy(base, new_files, owner=owner(), stop=stop, tally=tally).run()
            if of.for_merge:
                replace(KeptRules.read(folder), everything=True).write(folder)
            else:
                _copy_git(files, new_files, start, before, earlier.name)
            return
        TreeCopy(files, new_files, _is_complete, owner=owner(), stop=stop, tally=tally).run()
        new.start.write_text(json.dumps(_moved_start(start, before, scan(new_files))), "ascii")


def _copy_git(files: int, target: int, start: dict[str, StatEntry], now: dict[str, StatEntry], earlier: str) -> None:
    """Copies each ``.git``, which the copy from the start lacks."""
    for path in start.keys() | now.keys():
        old, new = start.get(path), now.get(path)
        if git_folder(path) and old != new and not is_refreshed(path, old, new):
            raise Conflict(
                f"the run of {earlier} changed the git repository in its files ({path[:200]}), and the state before "
                f"is not kept; `deputize retry {earlier}` starts from the beginning"
            )
    for path in sorted({folder for each in start if (folder := git_folder(each))}):
        above, _, name = path.rpartition("/")
        with closing_fd(beneath(target, above or ".", _FOLDER, links=False)) as parent:
            if path in start:  # a file that names a repository elsewhere
                write_new(parent, name, read_content(files, path, start[path], _MAX_GIT_FILE) or b"")
            else:
                _copy_folder(files, path, parent, name)


def _copy_folder(files: int, path: str, parent: int, name: str) -> None:
    os.mkdir(name, 0o755, dir_fd=parent)
    with (
        closing_fd(beneath(files, path, _FOLDER, links=False)) as source,
        closing_fd(beneath(parent, name, _FOLDER, links=False)) as target,
    ):
        if uid_gid := owner():
            os.fchown(target, *uid_gid)
        TreeCopy(source, target, owner=owner()).run()
