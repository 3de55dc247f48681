"""``write_file``: creates a file or replaces its whole content."""

from __future__ import annotations

from contextlib import suppress

from pydantic import Field

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip, count
from ..text.diff import preserve_format, unified_diff
from ..text.edit import refuse_placeholder
from ..text.formats import format_remark
from ..text.output import FileDiff
from ..text.textfile import TextFile, decode, strip_line_numbers
from ..threads import run_in_thread
from ..workspace.locks import edit_lock
from .base import Availability, DisplayOptions, Effect, Kind, Params, Tool, ToolContext, ToolResult
from .missing_files import refuse_foreign_form
from .params import WorkspacePath

MAX_COMPARED_BYTES = 1024 * 1024


class WriteFileParams(Params):
    path: WorkspacePath = Field(min_length=1, description="The file, relative to the workspace.")
    content: str = Field(description="The complete content of the file.")


class WriteFile(Tool[WriteFileParams]):
    """Writes a file: creates it, with its directories, if it is not there, and replaces it completely if it is.

    For new files and complete rewrites. For local changes use edit_file: it is shorter and safer.
    Read a file before you replace it. Line ends, encoding and byte order mark stay those of the file that was there.
    The answer has the number of characters and lines that were written.
    """

    name = "write_file"
    availability = Availability("enable_file_tools")
    kind = Kind.EDIT
    effect = Effect.IDEMPOTENT
    display = DisplayOptions("write")
    aliases = ("write", "create_file", "Write", "create", "write_to_file")
    params = WriteFileParams

    def title(self, params: WriteFileParams) -> str:
        return f"write {clip(params.path, 80)}"

    async def preview(self, ctx: ToolContext, params: WriteFileParams) -> str:
        path = ctx.files.relative(params.path)
        before, is_whole = await run_in_thread(_current_text, ctx, path)
        if not is_whole:
            return ""
        text = preserve_format(before, params.content)[0] if before else params.content
        return unified_diff(before.text if before else "", text, path, created=before is None).text

    async def run(self, ctx: ToolContext, params: WriteFileParams) -> ToolResult:
        return await run_in_thread(self._write, ctx, params)

    def _write(self, ctx: ToolContext, params: WriteFileParams) -> ToolResult:
        path = ctx.files.relative(params.path)
        with edit_lock(ctx.files, path):
            before, is_whole = _current_text(ctx, path)
            if ctx.files.stat(path, follow=False) is None:
                refuse_foreign_form(ctx.files, params.path)
            if before and is_whole:  # in a new file a placeholder replaces no existing lines
                refuse_placeholder("content", params.content, before.text)
            content, kept = preserve_format(before or TextFile(""), params.content)
            created = ctx.files.write(path, before.to_bytes(content) if before else content.encode())
        diff = unified_diff(before.text if before else "", content, path, created=created) if is_whole else None
        lines = params.content.count("\n") + (not params.content.endswith("\n") and bool(params.content))
        how = "created" if created else "replaced"
        size = f"{count(len(params.content), 'character')}, {count(lines, 'line')}"
        text = f"Successfully wrote to {path}: {how}, {size}."
        if kept:
            text += f" Preserved from the old file: {', '.join(kept)}."
        if lines > 1 and strip_line_numbers(params.content, only_ours=True) is not None:
            text += " Note: every line begins with a line number, as read_file prints them; they are now in the file."
        if is_whole:
            text += format_remark(path, before.text if before else None, content)
        facts = {
            "path": path,
            "created": created,
            "characters": len(params.content),
            "lines": lines,
            "addedLines": diff.added if diff else lines,
            "removedLines": diff.removed if diff else 0,
        }
        display = FileDiff(path, diff.text, diff.added, diff.removed) if diff else ""
        return ToolResult(text, self.title(params), display=display, metadata=facts)


def _current_text(ctx: ToolContext, path: str) -> tuple[TextFile | None, bool]:
    """Returns the current text, or None, and whether it is complete: large files are not compared."""
    try:
        return decode(ctx.files.read(path, MAX_COMPARED_BYTES), path), True
    except ToolError as error:
        if error.type is ErrorType.FILE_NOT_FOUND:
            return None, True
        if error.type is ErrorType.NOT_TEXT:
            return None, False
        if error.type is not ErrorType.FILE_TOO_LARGE:
            raise
    with suppress(ToolError):
        return decode(ctx.files.head(path, MAX_COMPARED_BYTES), path), False
    return None, False
