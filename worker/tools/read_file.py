"""``read_file``: one text file, or a part of it, with line numbers."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..contracts import FileAccess
from ..text.output import lines_hint_of
from ..threads import run_short
from ..workspace.files import named
from .base import (
    Availability,
    DisplayOptions,
    Kind,
    OutputLimit,
    Params,
    Tool,
    ToolContext,
    ToolResult,
)
from .missing_files import file_not_found_error
from .pages import (
    MOST_BYTES,
    PAGE_CHARS,
    PAGE_LINES,
    FileLines,
    format_page,
    format_remark_line,
    read_lines,
)
from .params import WorkspacePath


class ReadFileParams(Params):
    path: WorkspacePath = Field(min_length=1, description="The file, relative to the workspace.")
    offset: int = Field(
        default=1, description="The first line to read, counted from 1 as the output prints it. 0 or less means 1."
    )
    limit: int = Field(default=0, description="How many lines to read at most. 0 means all, in pages.")

    @model_validator(mode="before")
    @classmethod
    def _range(cls, given: Any) -> Any:
        """Takes ``view_range`` of other agents' tools: the first and the last line, -1 for the end."""
        match given:
            case {"view_range": [int(first), int(last)], **others}:
                return {**others, "offset": first, "limit": max(0, last - first + 1)}
            case _:
                return given


SMALL_BYTES = 16 * 1024
"""A file of this size on a local disk is read and numbered in less time than the hand-over to a thread takes."""


class ReadFile(Tool[ReadFileParams]):
    """Reads a text file of the workspace.

    Every line is shown behind its number, counted from 1, as in `     1|text`. The number and the bar are not part
    of the file: leave them out of old_string and new_string of edit_file.
    Without a limit up to 2000 lines are shown, as many as fit, and of each at most 2000 characters.
    Large files: read them in parts with offset and limit, or search them with grep first. Read a file before you edit
    it.
    Only text: images, archives and programs are refused. A directory: use list_directory or glob.
    """

    name = "read_file"
    availability = Availability("enable_file_tools")
    kind = Kind.READ
    display = DisplayOptions("read", OutputLimit(max_chars=128_000, max_tokens=32_000))
    aliases = ("read", "view", "cat", "Read")
    params = ReadFileParams

    def title(self, params: ReadFileParams) -> str:
        part = f" from line {params.offset}" if params.offset > 1 else ""
        return f"read {clip(params.path, 80)}{part}"

    async def run(self, ctx: ToolContext, params: ReadFileParams) -> ToolResult:
        files = ctx.reading(params.path)
        if files.is_local and (found := files.stat(params.path)) and found.kind == "file" and found.size <= SMALL_BYTES:
            try:
                return self._read(files, params, SMALL_BYTES)
            except ToolError as error:
                if error.type is not ErrorType.FILE_TOO_LARGE:  # written or replaced at this moment
                    raise
        return await run_short(self._find, files, params)

    def _find(self, files: FileAccess, params: ReadFileParams) -> ToolResult:
        found = files.stat(params.path)
        if found is None:
            raise file_not_found_error(files, params.path)
        if found.kind == "directory":
            raise ToolError(
                ErrorType.NOT_A_FILE,
                f"{params.path} is a directory. List it with list_directory, or search it with glob.",
            )
        return self._read(files, params, MOST_BYTES)

    def _read(self, files: FileAccess, params: ReadFileParams, max_bytes: int) -> ToolResult:
        most = params.limit if params.limit > 0 else PAGE_LINES
        content = read_lines(files, params.path, max(1, params.offset), most, PAGE_CHARS, max_bytes)
        return self._answer(files, params, content)

    def _answer(self, files: FileAccess, params: ReadFileParams, content: FileLines) -> ToolResult:
        first, total = content.first, content.total
        facts = {"path": named(files, files.relative(params.path)), "totalLines": total}
        title = self.title(params)
        if total == 0:
            return ToolResult(format_remark_line(content, "The file is empty."), title, metadata=facts)
        if not content.lines:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"offset {first} is past the end: {params.path} has {total} lines. Use an offset from 1 to {total}.",
            )
        text, shown = format_page(content.lines, first)
        last = first + shown - 1
        if remarks := format_remark_line(content):
            text = f"{text}\n{remarks}"
        rest = "" if last == total else self._rest(params, first, last, total)
        return ToolResult(text, title, metadata={**facts, "firstLine": first, "lastLine": last}, hint=rest)

    def _rest(self, params: ReadFileParams, first: int, last: int, total: int | None) -> str:
        """Returns the hint how to continue; it mentions omitted lines only if fewer than requested are shown."""
        of = f" of {total}" if total else ", and there are more"
        if params.limit > 0 and last - first + 1 == params.limit:
            return f"(Lines {first} to {last}{of}; go on with offset={last + 1}.)"
        then = f"Lines {first} to {last}{of} are shown. Go on with offset={last + 1}."
        return lines_hint_of(self.name, total and total - first + 1, last - first + 1, then)
