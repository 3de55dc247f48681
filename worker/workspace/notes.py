"""Notes of a run: a JSON list in a file of the workspace, which outlives turns and is shared by runs on the same files.

Writers hold a lock; an invalid file is moved aside and never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from ...shared.errors import ErrorType, ToolError
from ...shared.wire import now
from ..contracts import FileAccess
from ..text.textfile import fingerprint
from .locks import file_lock

MEMORY_FILE = ".agent_memory.json"
MAX_BYTES = 4 * 1024 * 1024
GENERAL = "general"
_LOCK = "notes.lock"

StoredNote = dict[str, Any]
"""A note as stored in the file; other programs may have omitted or added fields."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note with all fields. ``timestamp`` is in ISO 8601 format."""

    timestamp: str
    category: str
    content: str

    @classmethod
    def of(cls, stored: StoredNote) -> Note:
        """Converts a stored note, with defaults for missing fields."""
        texts = (stored.get("timestamp", "unknown time"), stored.get("category", GENERAL), stored.get("content", ""))
        return cls(*map(str, texts))


class Notes:
    """The notes of one workspace. The methods block."""

    def __init__(self, files: FileAccess) -> None:
        self._files = files

    def load(self) -> list[StoredNote]:
        """Returns all notes, oldest first. Raises ToolError(NOT_TEXT) if the file does not contain notes."""
        data = self._read()
        return [] if data is None else _parse(data)

    def add(self, content: str, category: str, stop: Event) -> str | None:
        """Appends a note.

        Returns:
            The path to which an invalid file was moved, or None.

        Raises:
            ToolError: TIMEOUT if another worker holds the lock for too long, FILE_TOO_LARGE if the file is full.
        """
        with file_lock(self._files, self._files.private_path(_LOCK), stop):
            aside = None
            try:
                notes = self.load()
            except ToolError as error:
                if error.type is not ErrorType.NOT_TEXT:
                    raise
                notes, aside = [], self._move_aside()
            note = {"timestamp": now().isoformat(timespec="seconds"), "category": category, "content": content}
            data = json.dumps([*notes, note], indent=2, ensure_ascii=False).encode("utf-8", "replace")
            if len(data) > MAX_BYTES:
                raise ToolError(
                    ErrorType.FILE_TOO_LARGE, f"{MEMORY_FILE} is full ({MAX_BYTES} bytes); shorten it first."
                )
            self._files.write(MEMORY_FILE, data)
        return aside

    def _read(self) -> bytes | None:
        if self._files.stat(MEMORY_FILE) is None:
            return None
        return self._files.read(MEMORY_FILE, MAX_BYTES)

    def _move_aside(self) -> str:
        """Copies the file under a name derived from its content, so that a retry after a crash uses the same one."""
        data = self._read() or b""
        path = f"{MEMORY_FILE}.corrupt-{fingerprint(data)[:8]}"
        self._files.write(path, data)
        return path


def format_notes(notes: Sequence[StoredNote], category: str | None) -> str:
    """Formats the notes of a category, or all, for the model."""
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


def _parse(data: bytes) -> list[StoredNote]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _corrupt_error(f"it is not valid JSON ({error})") from None
    if not isinstance(found, list) or not all(isinstance(note, dict) for note in found):
        raise _corrupt_error("it is not a list of notes")
    return found


def _corrupt_error(why: str) -> ToolError:
    return ToolError(
        ErrorType.NOT_TEXT,
        f"{MEMORY_FILE} does not contain notes: {why}. record_note moves it aside and starts a new one; "
        "read_file shows its content.",
    )
