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
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...shared.workspaces import generation_path, latest_generation
from ..sandbox.environment import owner
from .file_entries import TEMPORARY
from .manifest import StatEntry, scan
from .tree_copy import TreeCopy

_LEFTOVER = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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
        with closing(_OpenFolder(self.files)) as old, closing(_OpenFolder(new.files)) as copy:
            before = scan(old.fd)
            TreeCopy(old.fd, copy.fd, is_complete, owner=owner()).run()
            after = scan(copy.fd)
        moved = moved_start(json.loads(self.start.read_text("ascii")), before, after)
        temporary = self.folder / f"making.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(moved), "ascii")
        temporary.rename(new.start)
        return new


def moved_start(
    start: Mapping[str, Sequence[int]], before: Mapping[str, StatEntry], after: Mapping[str, StatEntry]
) -> dict[str, Sequence[int]]:
    """Returns the state at the run's start for a copy of its files, in which unchanged files have new inodes.

    ``before`` is the state of the original, ``after`` that of the copy.
    """
    same = {path for path, entry in start.items() if path in after and tuple(before.get(path, ())) == tuple(entry)}
    return {path: after[path] if path in same else entry for path, entry in start.items()}


def is_complete(path: str, is_directory: bool) -> bool:
    """Whether the path is not a temporary file of a write that a crash interrupted."""
    return is_directory or not _LEFTOVER.fullmatch(path.rpartition("/")[2])


class _OpenFolder:
    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, _FOLDER)

    def close(self) -> None:
        os.close(self.fd)
