"""Generations of a workspace: every attempt works on files of its own, so a worker that lost its lease harms nobody.

A frozen worker may wake up in the middle of a command or a write. What it still does, it does to the generation of
its own attempt; the next attempt has copied that one before, and goes on in the copy.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from worker.sandbox.environment import owner
from worker.workspace.file_entries import TEMPORARY
from worker.workspace.manifest import scan
from worker.workspace.treecopy import TreeCopy

_LEFTOVER = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Generation:
    """The files of one attempt, how they were at the run's start, and the marks of its commands."""

    folder: Path
    number: int

    def _named(self, name: str) -> Path:
        return self.folder / (name if self.number == 1 else f"{name}.{self.number}")

    @property
    def files(self) -> Path:
        return self._named("files")

    @property
    def start(self) -> Path:
        """What the files were at the run's start, as inodes of this generation; there when the generation is whole."""
        return self._named("start.json")

    @property
    def marks(self) -> Path:
        """How far each command came, one file a call; outside of what commands can reach."""
        return self._named("marks")

    @classmethod
    def latest(cls, folder: Path) -> Generation | None:
        """The newest whole generation, or None where there is no workspace yet."""
        first = cls(folder, 1)
        if not first.start.exists():
            return None
        numbers = (
            int(path.name.rpartition(".")[2]) for path in folder.glob("start.json.*") if path.suffix[1:].isdigit()
        )
        return cls(folder, max(numbers, default=1))

    def next(self, number: int) -> Generation:
        """A copy of this generation for attempt ``number``. Dying in the middle leaves this one the newest.

        The marks are copied before the files: a command that ends in between is then in doubt, and never taken for
        done while its effects are missing.
        """
        new = Generation(self.folder, number)
        for leftover in (new.files, new.marks):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(self.marks, new.marks)
        new.files.mkdir(mode=0o755)
        if whose := owner():
            os.chown(new.files, *whose)
        with closing(_Folder(self.files)) as old, closing(_Folder(new.files)) as copy:
            before = scan(old.fd)
            TreeCopy(old.fd, copy.fd, _is_no_leftover, owner=owner()).run()
            after = scan(copy.fd)
        start = json.loads(self.start.read_text("ascii"))
        same = {path for path, seen in start.items() if path in after and tuple(before.get(path, ())) == tuple(seen)}
        moved = {path: after[path] if path in same else seen for path, seen in start.items()}
        making = self.folder / f"making.{secrets.token_hex(4)}"
        making.write_text(json.dumps(moved), "ascii")
        making.rename(new.start)
        return new


def _is_no_leftover(path: str, is_directory: bool) -> bool:
    """False for what a worker was writing when it died; such a file never had its name yet."""
    return is_directory or not _LEFTOVER.fullmatch(path.rpartition("/")[2])


class _Folder:
    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, _FOLDER)

    def close(self) -> None:
        os.close(self.fd)
