"""``write_file``: a new file, or a whole new content for one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from shared.errors import ErrorType, ToolError
from worker.display import FileDiff
from worker.output import clip
from worker.text.diff import unified
from worker.text.numbered import without_numbers
from worker.text.omission import refuse_placeholder
from worker.text.textfile import decode
from worker.threads import to_the_end
from worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult, Touches

MAX_COMPARED_BYTES = 1024 * 1024


class WriteFileParams(Params):
    other_names: ClassVar[Mapping[str, str]] = {"file_path": "path"}

    path: str = Field(min_length=1, description="The file, relative to the workspace.")
    content: str = Field(description="The complete content of the file.")


class WriteFile(Tool[WriteFileParams]):
    """Writes a file: creates it, with its directories, if it is not there, and replaces it completely if it is.

    For new files and complete rewrites. For local changes use edit_file: it is shorter and safer.
    Read a file before you replace it. The answer says how many characters and lines were written.
    """

    name = "write_file"
    switch = "enable_file_tools"
    kind = Kind.EDIT
    effect = Effect.IDEMPOTENT
    step_type = "write"
    aliases = ("write", "create_file")
    params = WriteFileParams

    def title(self, params: WriteFileParams) -> str:
        return f"write {clip(params.path, 80)}"

    def touches(self, params: WriteFileParams) -> Touches:
        return Touches(paths=(params.path,))

    async def run(self, ctx: ToolContext, params: WriteFileParams) -> ToolResult:
        return await to_the_end(self._write, ctx, params)

    def _write(self, ctx: ToolContext, params: WriteFileParams) -> ToolResult:
        path = ctx.files.relative(params.path)
        before = _content(ctx, path)
        if before:  # in a new file it stands for nothing that could be lost
            refuse_placeholder("content", params.content, before)
        created = ctx.files.write(path, params.content.encode())
        diff = None if before is None else unified(before, params.content, path, created=created)
        lines = params.content.count("\n") + (not params.content.endswith("\n") and bool(params.content))
        how = "created" if created else "replaced"
        size = f"{_counted(len(params.content), 'character')}, {_counted(lines, 'line')}"
        said = f"Successfully wrote to {path}: {how}, {size}."
        if lines > 1 and without_numbers(params.content, only_ours=True) is not None:
            said += " Note: every line begins with a line number, as read_file prints them; that is now in the file."
        return ToolResult(
            said,
            self.title(params),
            display=FileDiff(path, diff.text, diff.added, diff.removed) if diff else "",
            metadata={
                "path": path,
                "created": created,
                "characters": len(params.content),
                "lines": lines,
                "addedLines": diff.added if diff else lines,
                "removedLines": diff.removed if diff else 0,
            },
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _content(ctx: ToolContext, path: str) -> str | None:
    """What the file holds now, or None where it is no text or too large to be compared."""
    try:
        return decode(ctx.files.read(path, MAX_COMPARED_BYTES), path).text
    except ToolError as error:
        if error.type is ErrorType.FILE_NOT_FOUND:
            return ""
        if error.type in (ErrorType.NOT_TEXT, ErrorType.FILE_TOO_LARGE):
            return None
        raise
