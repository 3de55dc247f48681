"""``edit_file``: replaces one text of a file by another."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..text.diff import unified_diff
from ..text.edit import apply_edit, refuse_empty
from ..text.formats import format_remark
from ..text.output import FileDiff
from ..text.replacement import Replacement
from ..text.textfile import TextFile, decode, fingerprint
from ..threads import run_in_thread
from ..workspace.locks import edit_lock
from .base import Availability, DisplayOptions, Kind, Params, Probed, Recoverable, ToolContext, ToolResult
from .missing_files import file_not_found_error
from .params import WorkspacePath

MAX_BYTES = 8 * 1024 * 1024
"""An edit keeps several copies of the text, and searching it takes time."""


class EditFileParams(Params):
    path: WorkspacePath = Field(min_length=1, description="The file, relative to the workspace.")
    old_string: str = Field(
        description="The text to replace, exactly as it stands in the file, without line numbers, and long enough "
        "to stand there only once."
    )
    new_string: str = Field(description="The text that comes in its place.")
    replace_all: bool = Field(default=False, description="True replaces every place instead of exactly one.")


class EditFile(Recoverable[EditFileParams]):
    """Replaces a text in a file by another one.

    old_string must stand in the file exactly once, otherwise nothing is changed and the error names the places;
    add the lines around it until it is unique, or set replace_all to replace every place.
    Read the file first and copy old_string from it exactly, blanks and indentation included, but without the line
    numbers (`     1|`) that read_file puts in front. It never creates a file: use write_file for that.
    """

    name = "edit_file"
    availability = Availability("enable_file_tools")
    kind = Kind.EDIT
    display = DisplayOptions("edit")
    aliases = ("edit", "replace", "str_replace", "Edit", "replace_string_in_file")
    params = EditFileParams

    def title(self, params: EditFileParams) -> str:
        return f"edit {clip(params.path, 80)}"

    async def facts(self, ctx: ToolContext, params: EditFileParams) -> dict[str, str]:
        """Returns the file's fingerprint before and after; empty if the edit is not possible."""
        try:
            _, file, done = await run_in_thread(_plan, ctx, params)
        except ToolError:
            return {}
        return {"before": fingerprint(file.to_bytes(file.text)), "after": fingerprint(file.to_bytes(done.text))}

    async def probe(self, ctx: ToolContext, params: EditFileParams, facts: Mapping[str, str]) -> Probed:
        """Compares the file with both fingerprints; another one means that something else has changed it since."""
        if not facts:
            return False
        now = fingerprint(await run_in_thread(ctx.files.read, params.path, MAX_BYTES))
        if now == facts["after"]:
            return ToolResult(f"Successfully edited {params.path}, before the run was interrupted.", self.title(params))
        return False if now == facts["before"] else None

    async def preview(self, ctx: ToolContext, params: EditFileParams) -> str:
        path, file, done = await run_in_thread(_plan, ctx, params)
        return unified_diff(file.text, done.text, path).text

    async def run(self, ctx: ToolContext, params: EditFileParams) -> ToolResult:
        return await run_in_thread(self._edit, ctx, params)

    def _edit(self, ctx: ToolContext, params: EditFileParams) -> ToolResult:
        with edit_lock(ctx.files, params.path):
            path, file, done = _plan(ctx, params)
            ctx.files.write(path, file.to_bytes(done.text))
        diff = unified_diff(file.text, done.text, path)
        display = FileDiff(path, diff.text, diff.added, diff.removed)
        facts = {
            "path": path,
            "replacements": len(done.lines),
            "lines": list(done.lines[:100]),
            "addedLines": diff.added,
            "removedLines": diff.removed,
            "tolerated": done.tolerated,
        }
        report = done.report(path) + format_remark(path, file.text, done.text)
        return ToolResult(report, self.title(params), display=display, metadata=facts)


def _plan(ctx: ToolContext, params: EditFileParams) -> tuple[str, TextFile, Replacement]:
    """Returns the planned edit, without writing it. Raises ToolError if it is not possible."""
    old, new = params.old_string, params.new_string
    refuse_empty(old, new, "write_file to create a file or to replace all of it")
    path = params.path
    try:
        file = decode(ctx.files.read(path, MAX_BYTES), path)
    except ToolError as error:
        if error.type is ErrorType.FILE_TOO_LARGE:
            raise ToolError(
                error.type,
                f"File too large to be edited: {path} has more than {MAX_BYTES // 1024 // 1024} MiB. "
                "Nothing was changed. Change it with a command through bash, for example sed or a short script.",
            ) from None
        if error.type is ErrorType.FILE_NOT_FOUND:
            missing = file_not_found_error(ctx.files, path).message.rstrip(".")
            raise ToolError(error.type, f"{missing}. edit_file creates no files: use write_file for that.") from None
        raise
    return ctx.files.relative(path), file, apply_edit(file, path, old, new, every=params.replace_all)
