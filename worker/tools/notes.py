"""``record_note`` and ``recall_notes``: notes that are kept in the workspace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

from pydantic import Field, field_validator

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..text.textfile import fingerprint
from ..threads import run_in_thread
from ..workspace.notes import GENERAL, MEMORY_FILE, Note, Notes, StoredNote, format_notes
from .base import (
    Availability,
    DisplayOptions,
    Kind,
    OutputLimit,
    Params,
    Probed,
    Recoverable,
    Tool,
    ToolContext,
    ToolResult,
    Touches,
)


class RecordNoteParams(Params):
    content: str = Field(
        max_length=20_000, description="The note: one fact, decision or preference, in full sentences."
    )
    category: str = Field(
        default=GENERAL,
        min_length=1,
        max_length=100,
        description='What kind of note it is, such as "decision", "user_preference" or "project_info".',
    )

    @field_validator("content")
    @classmethod
    def _not_blank(cls, content: str) -> str:
        if not content.strip():
            raise ValueError("it is blank; write what to remember")
        return content


class RecordNote(Recoverable[RecordNoteParams]):
    """Records a note that later turns, and later work in the same files, can recall with recall_notes.

    For what would otherwise be lost and is needed again: decisions and their reasons, facts that took effort to
    find out, what the user prefers. Not for progress; that belongs into the todo list or the report.
    Notes are kept in .agent_memory.json in the workspace.
    """

    name = "record_note"
    availability = Availability("enable_note")
    kind = Kind.OTHER
    aliases = ("save_memory", "session_note")
    params = RecordNoteParams

    def title(self, params: RecordNoteParams) -> str:
        return f"note ({clip(params.category, 30)}): {clip(params.content.strip(), 60)}"

    def touches(self, params: RecordNoteParams) -> Touches:
        return Touches(paths=(MEMORY_FILE,))

    async def facts(self, ctx: ToolContext, params: RecordNoteParams) -> dict[str, Any]:
        before = await run_in_thread(_load_notes, ctx)
        return {"count": len(before), "digest": _digest(before)}

    async def probe(self, ctx: ToolContext, params: RecordNoteParams, facts: Mapping[str, Any]) -> Probed:
        """Searches the note among the later ones; the outcome is unknown if the older ones have changed."""
        notes = await run_in_thread(_load_notes, ctx)
        if _digest(notes[: facts["count"]]) != facts["digest"]:
            return None
        added = {(note.category, note.content) for note in map(Note.of, notes[facts["count"] :])}
        return (params.category, params.content) in added and self._recorded(params)

    async def run(self, ctx: ToolContext, params: RecordNoteParams) -> ToolResult:
        aside = await run_in_thread(Notes(ctx.files).add, params.content, params.category, Event())
        remark = f" {MEMORY_FILE} did not contain valid notes; it was moved to {aside}." if aside else ""
        return self._recorded(params, remark)

    def _recorded(self, params: RecordNoteParams, remark: str = "") -> ToolResult:
        text = f"Recorded note: {clip(params.content, 200)} (category: {params.category}).{remark}"
        return ToolResult(text, self.title(params), metadata={"category": params.category, "path": MEMORY_FILE})


def _load_notes(ctx: ToolContext) -> Sequence[StoredNote]:
    """Returns the notes; an invalid file, which will be moved aside, has none."""
    try:
        return Notes(ctx.files).load()
    except ToolError as error:
        if error.type is ErrorType.NOT_TEXT:
            return []
        raise


def _digest(notes: Sequence[StoredNote]) -> str:
    return fingerprint(json.dumps(notes, sort_keys=True).encode())


class RecallNotesParams(Params):
    category: str | None = Field(default=None, description="Only notes of this category. Left out: all notes.")


class RecallNotes(Tool[RecallNotesParams]):
    """Recalls the notes that record_note has written down, in this work or in earlier work in the same files.

    Oldest first, each with its category and the time it was recorded. Worth a look at the start of a piece of work.
    """

    name = "recall_notes"
    availability = Availability("enable_note")
    kind = Kind.READ
    display = DisplayOptions("read", OutputLimit(max_chars=32_000, max_tokens=8_000))
    aliases = ("recall_note", "read_memory")
    params = RecallNotesParams

    def title(self, params: RecallNotesParams) -> str:
        return "recall notes" + (f" of {clip(params.category, 60)}" if params.category is not None else "")

    def touches(self, params: RecallNotesParams) -> Touches:
        return Touches(paths=(MEMORY_FILE,))

    async def run(self, ctx: ToolContext, params: RecallNotesParams) -> ToolResult:
        notes = await run_in_thread(Notes(ctx.files).load)
        return ToolResult(format_notes(notes, params.category), self.title(params), metadata={"total": len(notes)})
