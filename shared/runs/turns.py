"""Which turns of a run changed its files: what a retry from a turn can have of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from ..delegation import Delegation
from ..errors import Conflict, Invalid
from ..request import DelegationRequest
from .keys import record_key

FILE_TURNS = "file_turns"
"""The field of the record."""
ENDLESS = 1_000_000_000
Get = Callable[[str], Awaitable[Delegation]]


@dataclass(slots=True)
class FileTurns:
    """The first and the last turn in which files of the workspace changed; 0 where none did."""

    first: int = 0
    last: int = 0

    def note(self, turn: int, *, lasting: bool = False) -> None:
        """Notes that files changed in this turn; ``lasting``: and may change at any time until the run's end."""
        self.first = self.first or turn
        self.last = ENDLESS if lasting else max(self.last, turn)

    def before(self, turn: int) -> Literal["start", "end"] | None:
        """Returns when the files were as they were before this turn: at the run's start or end, or neither."""
        if self.last < turn:
            return "end"
        return "start" if turn <= self.first else None

    def choices(self, last: int) -> str:
        """Returns the turns with known files, in words, for a run that had ``last`` turns."""
        known = [f"1 to {self.first}"] if self.first > 1 else ["1"]
        if self.last + 1 < last:
            known.append(f"{self.last + 1} to {last}")
        elif self.last + 1 == last:
            known.append(str(last))
        return " and ".join(known)

    def to_json(self) -> str:
        return json.dumps([self.first, self.last])

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Returns None where nothing is recorded: an older version has run it."""
        return cls(*json.loads(text)) if text else None


@dataclass(frozen=True, slots=True)
class FilesOf:
    """The files of a delegation, as they were at its start or at its end."""

    id: str
    at_start: bool


async def first_files(redis: Any, request: DelegationRequest, get: Get) -> FilesOf | None:
    """Returns the files with which a request begins that builds on a delegation; else None.

    Where that one built on another itself, its start is that one's: a workspace keeps the start of a conversation.
    Raises as ``files_before``, and NotFound.
    """
    if request.builds_on is None:
        return None
    earlier = await get(request.builds_on)
    if not request.from_turn or await files_before(redis, earlier, request.from_turn) == "end":
        return FilesOf(earlier.id, at_start=False)
    return await first_files(redis, earlier.request, get) or FilesOf(earlier.id, at_start=True)


async def files_before(redis: Any, earlier: Delegation, turn: int) -> Literal["start", "end"]:
    """Returns when the files of an ended delegation were as before this turn: at its start or at its end.

    Raises ``Invalid`` for a turn that it did not have, and ``Conflict`` where these files are not kept.
    """
    id, last = earlier.id, earlier.result.turn_count if earlier.result else 0
    if turn > max(last, 1):
        detail = f"{id} had {last} turns; `deputize continue {id}` goes on after the last one"
        raise Invalid(f"/fromTurn: {detail}", [{"pointer": "/fromTurn", "detail": detail}])
    changed = FileTurns.from_json(await redis.hget(record_key(id), FILE_TURNS))
    if changed is None:
        raise Conflict(
            f"which turns of {id} changed files is not recorded; `deputize retry {id}` starts from the first"
        )
    if (when := changed.before(turn)) is None:
        raise Conflict(
            f"the files of {id} as they were before turn {turn} are not kept, only those from its start and its end. "
            f"Turns that can be chosen: {changed.choices(last)}; `deputize continue {id}` goes on after the last one"
        )
    return when
