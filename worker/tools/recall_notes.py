"""``recall_notes``: reads the notes recorded earlier."""

from __future__ import annotations

from pydantic import Field

from ...shared.text import clip
from ..threads import run_in_thread
from ..workspace.notes import MEMORY_FILE, Notes, format_notes
from .base import Availability, Effect, Kind, OutputLimit, Params, Tool, ToolResult
from .context import ToolContext, Touches


class RecallNotesParams(Params):
    category: str | None = Field(default=None, description="Only notes of this category. Left out: all notes.")


class RecallNotes(Tool[RecallNotesParams]):
    """Recalls the notes that record_note has written down, in this work or in earlier work in the same files.

    Oldest first, each with its category and the time it was recorded. Worth a look at the start of a piece of work.
    """

    name = "recall_notes"
    availability = Availability("enable_note")
    kind = Kind.READ
    effect = Effect.PURE
    step_type = "read"
    aliases = ("recall_note", "read_memory")
    output = OutputLimit(max_chars=32_000, max_tokens=8_000)
    params = RecallNotesParams

    def title(self, params: RecallNotesParams) -> str:
        return "recall notes" + (f" of {clip(params.category, 60)}" if params.category is not None else "")

    def touches(self, params: RecallNotesParams) -> Touches:
        return Touches(paths=(MEMORY_FILE,))

    async def run(self, ctx: ToolContext, params: RecallNotesParams) -> ToolResult:
        notes = await run_in_thread(Notes(ctx.files).load)
        return ToolResult(format_notes(notes, params.category), self.title(params), metadata={"total": len(notes)})
