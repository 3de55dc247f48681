"""``read_many_files``: several text files in one answer."""

from __future__ import annotations

from threading import Event

from pydantic import Field

from ...shared.errors import ToolError
from ...shared.text import clip, count
from ..text.output import one_line
from ..threads import run_in_thread
from .base import Availability, DisplayOptions, Kind, OutputLimit, Params, Tool, ToolContext, ToolResult
from .pages import ManyFiles
from .params import WorkspacePath

MAX_FILES = 50


class ReadManyFilesParams(Params):
    paths: list[WorkspacePath] = Field(
        min_length=1,
        max_length=MAX_FILES,
        description='Files, or patterns such as "src/**/*.py", relative to the workspace.',
    )


class ReadManyFiles(Tool[ReadManyFilesParams]):
    """Reads several text files at once: files that belong together, or many for an overview.

    Each stands below a line `==> path <==`, with line numbers as read_file prints them. Patterns leave out what
    .gitignore names, and take the most recently changed files first. At most 50 files are read, and a large one is
    cut so that the others have room: the answer names what is missing, and read_file reads the rest.
    A file that cannot be read does not stop the others.
    """

    name = "read_many_files"
    availability = Availability("enable_file_tools")
    kind = Kind.READ
    display = DisplayOptions("read", OutputLimit(max_chars=128_000, max_tokens=32_000))
    aliases = ("read_many",)
    params = ReadManyFilesParams

    def title(self, params: ReadManyFilesParams) -> str:
        more = f" and {len(params.paths) - 1} more" if len(params.paths) > 1 else ""
        return f"read {clip(params.paths[0], 60)}{more}"

    async def run(self, ctx: ToolContext, params: ReadManyFilesParams) -> ToolResult:
        answer = ManyFiles(ctx.files)
        await answer.resolve(params.paths, ctx.sandbox)
        return await run_in_thread(self._read, answer, Event())

    def _read(self, answer: ManyFiles, stop: Event) -> ToolResult:
        answer.add(MAX_FILES, stop)
        title = f"Read {count(len(answer.read), 'file')}"
        facts = {
            "read": [clip(one_line(path), 100) for path in answer.read],
            "failed": len(answer.errors),
            "leftOut": len(answer.omitted),
        }
        if answer.errors and not answer.read:
            failure = ToolError(answer.errors[0].type, "none of the files could be read; see the error of each")
            return ToolResult.failed(failure, answer.text, title=title, metadata=facts)
        return ToolResult(answer.text, title, metadata=facts)
