"""What one run adds to a disk that it shares with others and with the record's store, and its removal.

A command that fills the disk may end before anything has measured it, and what it wrote stays. So where a run has left
too little for others, what it wrote since it was last checked is removed, the largest files first.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .disk_room import Removed, Room, new_files, remove_new
from .usage import size

GROWTH = 1 << 20
"""Bytes on disk below which a run counts as not growing."""
_FEW_FILES = 1000
"""The same of a number of files."""
_CAUSE = 16
"""A disk's loss is not due to a run that has taken less than one part in so many of it."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A moment at which a run took no room of others: what was left, and what it had added."""

    at: float
    room: Room
    added: int = 0


class Growth:
    """The growth of one run. ``share`` is what all runs of the worker may have of the disk; ``of_all`` is theirs.

    ``measure`` returns what this run has added by now; it blocks.
    """

    def __init__(
        self, folder: Path, share: float, of_all: Callable[[], list[Growth]], measure: Callable[[], int]
    ) -> None:
        self.added = 0
        """Bytes added on disk, as far as was measured."""
        self.files = 0
        """How many files were made since the last check, measured only where the disk takes few more."""
        self.tolerated = 0
        """What was added when a command was last killed for the share of all runs."""
        self.room = Room.of(folder)
        """What is left on the disk."""
        self._folder, self._share, self._of_all, self._measure = folder, share, of_all, measure
        self._checked = _Checked(time.time(), self.room)
        self._clearing: asyncio.Task[None] | None = None
        self._cleared = ""

    def note(self, added: int, room: Room, files: int) -> None:
        """Takes a measurement."""
        self.added, self.room, self.files = added, room, files

    def count_files(self, room: Room) -> int:
        """Returns how many files were made since the last check, if the disk takes few more. Blocks."""
        return new_files(self._folder, self._checked.at) if room.has_few_files else 0

    @property
    def is_growing(self) -> bool:
        """Whether it has grown since a command was killed, and is a cause of what the disk has lost."""
        return self.added > self.tolerated + GROWTH and self._takes_space

    @property
    def _takes_space(self) -> bool:
        grown, lost = self.added - self._checked.added, self._checked.room.free - self.room.free
        return grown > GROWTH and grown * _CAUSE >= lost

    @property
    def makes_files(self) -> bool:
        """Whether it is a cause of the disk taking few files more."""
        lost = self._checked.room.files - self.room.files
        return self.files > _FEW_FILES and self.files * _CAUSE >= lost

    def surplus(self) -> float:
        """Returns by how many bytes all runs have added more than their share, by the last measurements."""
        added = sum(each.added for each in self._of_all())
        return added - self._share * (self.room.free + added)

    def begin_check(self) -> Room:
        """Begins to clear the disk if the run may have filled it. Returns what is left."""
        room = Room.of(self._folder)
        if not self._clearing and self._may_be_too_much(room):
            self._clearing = asyncio.get_running_loop().create_task(self._clear())
        return room

    async def cleared(self) -> None:
        """Waits for the end of what clears the disk: else a new command is killed for the files of another one."""
        if self._clearing:
            await asyncio.wait([self._clearing])

    async def check(self) -> str:
        """Clears the disk if the run has filled it. Returns a sentence about what was removed since the last call."""
        room = self.begin_check()
        if self._clearing:
            await self.cleared()
        else:
            self._checked = _Checked(time.time(), room, self.added)
        cleared, self._cleared = self._cleared, ""
        return cleared

    def close(self) -> None:
        if self._clearing:
            self._clearing.cancel()

    def _may_be_too_much(self, room: Room) -> bool:
        """Whether a measurement is needed: all that the disk has lost could be due to this run."""
        lost = max(self._checked.room.free - room.free, 0)
        added = sum(each.added for each in self._of_all()) + lost
        too_many = room.has_few_files and self._checked.room.files - room.files > _FEW_FILES
        return too_many or (lost > GROWTH and added > self._share * (room.free + added))

    async def _clear(self) -> None:
        loop, since = asyncio.get_running_loop(), self._checked.at
        try:
            while True:
                self.note(*await loop.run_in_executor(None, self._measured))
                is_largest = self.added == max(each.added for each in self._of_all())
                most = math.ceil(self.surplus()) if self._takes_space and is_largest else 0
                files = self.files if self.makes_files else 0
                if most <= 0 and not files:
                    break
                done = await loop.run_in_executor(None, remove_new, self._folder, since, max(most, 0), files)
                if not done.files:
                    break
                self._cleared = _sentence(done, few=files > 0)
        finally:
            self.tolerated = self.added
            self._checked = _Checked(time.time(), self.room, self.added)
            self._clearing = None

    def _measured(self) -> tuple[int, Room, int]:
        room = Room.of(self._folder)
        return self._measure(), room, self.count_files(room)


def _sentence(done: Removed, *, few: bool) -> str:
    why = "its disk takes few files more" if few else "less of the disk was left than sandbox.share leaves to others"
    return f"{why}, so the files that this run had written were removed: {done} ({size(done.bytes)})"
