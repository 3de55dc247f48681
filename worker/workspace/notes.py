"""Notes of a run: one JSON list in the workspace, so they outlive turns, and sessions that share the files.

Every writer holds the lock; what cannot be understood is moved aside and never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from shared.errors import ErrorType, ToolError
from shared.wire import now
from worker.text.textfile import fingerprint
from worker.workspace.files import Files
from worker.workspace.locks import locked
from worker.workspace.private import private_path

MEMORY_FILE = ".agent_memory.json"
MAX_BYTES = 4 * 1024 * 1024
GENERAL = "general"
_LOCK = "notes.lock"

Stored = dict[str, Any]
"""A note as it stands in the file; other programs may have left fields out, or added some."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it is shown. ``timestamp`` is ISO 8601."""

    timestamp: str
    category: str
    content: str

    @classmethod
    def of(cls, stored: Stored) -> Note:
        texts = (stored.get("timestamp", "unknown time"), stored.get("category", GENERAL), stored.get("content", ""))
        return cls(*map(str, texts))


class Notes:
    """The notes of one workspace. Its methods block."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def stored(self) -> list[Stored]:
        """All notes, oldest first; none where there is no file. Raises ToolError where the file is none of ours."""
        data = self._data()
        return [] if data is None else _parsed(data)

    def add(self, content: str, category: str, stop: Event) -> str | None:
        """Appends a note. Gives the path to which a file that could not be understood was moved, or None.

        Raises ToolError: TIMEOUT where another worker writes for too long, FILE_TOO_LARGE where no more fits.
        """
        with locked(self._files, private_path(self._files, _LOCK), stop):
            aside = None
            try:
                notes = self.stored()
            except ToolError as error:
                if error.type is not ErrorType.NOT_TEXT:
                    raise
                notes, aside = [], self._moved_aside()
            note = {"timestamp": now().isoformat(timespec="seconds"), "category": category, "content": content}
            data = json.dumps([*notes, note], indent=2, ensure_ascii=False).encode("utf-8", "replace")
            if len(data) > MAX_BYTES:
                raise ToolError(
                    ErrorType.FILE_TOO_LARGE, f"{MEMORY_FILE} is full ({MAX_BYTES} bytes); shorten it first."
                )
            self._files.write(MEMORY_FILE, data)
        return aside

    def _data(self) -> bytes | None:
        if self._files.stat(MEMORY_FILE) is None:
            return None
        return self._files.read(MEMORY_FILE, MAX_BYTES)

    def _moved_aside(self) -> str:
        """The copy's name is made of its content: done again after a crash, it is the same."""
        data = self._data() or b""
        path = f"{MEMORY_FILE}.corrupt-{fingerprint(data)[:8]}"
        self._files.write(path, data)
        return path


def listing(notes: Sequence[Stored], category: str | None) -> str:
    """What the model reads of the notes."""
    if not notes:
        return "No notes recorded yet."
    chosen = [note for note in map(Note.of, notes) if category in (None, note.category)]
    if not chosen:
        return f"No notes found in category: {category}"
    lines = [
        f"{number}. [{note.category}] {note.content}\n   (recorded at {note.timestamp})"
        for number, note in enumerate(chosen, 1)
    ]
    return "\n".join(["Recorded Notes:", *lines])


def _parsed(data: bytes) -> list[Stored]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _corrupt(f"it is no JSON ({error})") from None
    if not isinstance(found, list) or not all(isinstance(note, dict) for note in found):
        raise _corrupt("it is no list of notes")
    return found


def _corrupt(why: str) -> ToolError:
    return ToolError(
        ErrorType.NOT_TEXT,
        f"{MEMORY_FILE} holds no notes: {why}. record_note moves it aside and begins a new one; "
        "read_file shows what is in it.",
    )
