"""``grep``: finds lines of files by a regular expression, with ripgrep in the sandbox."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field, field_validator

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..contracts import FileAccess
from ..search.grep import (
    GrepQuery,
    Hits,
    Mode,
    cap_per_file,
    format_hits,
    hits_by_mtime,
    search_content,
)
from ..search.ripgrep import SkippedPaths
from ..threads import run_in_thread
from ..workspace.file_entries import is_private
from ..workspace.files import named
from .base import DisplayOptions, Params, ToolContext, ToolResult
from .glob import SearchTool
from .missing_files import file_not_found_error
from .params import WorkspacePath


class GrepParams(Params):
    pattern: str = Field(
        min_length=1,
        max_length=10_000,
        description='The regular expression (ripgrep\'s syntax), such as "def \\w+\\(".',
    )
    path: WorkspacePath = Field(
        default=".", min_length=1, description="The file or directory, relative to the workspace."
    )
    glob: str | None = Field(default=None, description='Search only files like "*.py" or "src/**/*.{ts,tsx}".')
    exclude: str | None = Field(
        default=None, max_length=2000, description='Leave out files or directories like "*_test.py" or "docs/**".'
    )
    exclude_pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        description='Leave out lines that match this, too, such as "^\\s*#". With pattern "^" all others are shown.',
    )
    type: str | None = Field(default=None, description='Search only files of this type: "py", "js", "rust", …')
    ignore_case: bool = Field(default=False, description="True takes a and A for the same.")
    context: int = Field(default=0, ge=0, le=50, description="How many lines around each match to show.")
    output_mode: Mode = Field(
        default="content", description="content: the lines. files: only the paths. count: matching lines a file."
    )
    max_results: int = Field(default=100, ge=1, le=1000, description="How many lines, or files, to show at most.")
    max_per_file: int | None = Field(default=None, ge=1, description="How many lines of one file to show at most.")
    respect_gitignore: bool = Field(default=True, description="False also searches files that .gitignore names.")

    @field_validator("output_mode", mode="before")
    @classmethod
    def _mode(cls, mode: Any) -> Any:
        return "files" if mode == "files_with_matches" else mode


class Grep(SearchTool[GrepParams]):
    """Searches the contents of files for a regular expression, with ripgrep; recently changed files come first.

    Matching lines are shown below the path of their file and behind their number, as in `    12|text`; lines that
    context adds have a - for the bar. Number and bar are not part of the file. Escape what a regular expression
    would read as a sign: `foo\\(`. Of a long line the part with the match is shown. Of binary files only the names are
    given, and files that .gitignore names are left out.
    """

    name = "grep"
    display = DisplayOptions("grep")
    aliases = ("search", "search_file_content", "ripgrep", "Grep", "grep_search", "search_files")
    params = GrepParams

    def title(self, params: GrepParams) -> str:
        where = "" if params.path == "." else f" in {clip(params.path, 40)}"
        return f"grep {clip(params.pattern, 60)!r}{where}"

    async def run(self, ctx: ToolContext, params: GrepParams) -> ToolResult:
        files = ctx.reading(params.path)
        top = files.relative(params.path).rstrip("/")
        if files.stat(top) is None:
            raise file_not_found_error(files, params.path)
        query, skipped, top = _query(params, top), SkippedPaths(partial(named, files)), named(files, top)
        try:
            hits, complete = await search_content(files, ctx.sandbox, query, skipped)
        except ToolError as error:
            if error.type is ErrorType.INVALID_TOOL_PARAMS:
                from ..search.near_misses import explained

                error = await explained(files, ctx.sandbox, query, error)
            raise error from None
        text, count, total = await run_in_thread(_format, files, hits, query, params.max_results, skipped)
        cut = count < total or not complete or bool(skipped)
        if not total:
            text = f"Nothing matches {params.pattern!r} in {top}"
            text += ", as far as it could be searched." if skipped else "."
            from ..search.near_misses import near_miss_hint  # most searches find something

            text += await near_miss_hint(files, ctx.sandbox, query)
        parts = [text]
        if count < total or not complete:
            number = f"{total}" if complete else f"more than {total}"
            parts.append(f"({count} of {number} shown. Use a narrower pattern, path or glob to see the others.)")
        facts = {"pattern": params.pattern, "searchPath": top, "count": count, "total": total, "truncated": cut}
        what = ("match" if total == 1 else "matches") if query.mode == "content" else "file" if total == 1 else "files"
        return ToolResult("\n".join([*parts, *skipped.sentences()]), f"Found {total} {what}", metadata=facts)


def _format(files: FileAccess, hits: Hits, query: GrepQuery, most: int, skipped: SkippedPaths) -> tuple[str, int, int]:
    hits = {named(files, path): lines for path, lines in hits_by_mtime(files, hits).items()}
    if query.per_file and query.mode == "content":
        hits, more = cap_per_file(hits, query.per_file, context=query.context)
        if more:
            skipped.remarks.append(f"More than {query.per_file} lines match in: {clip(', '.join(more), 500)}")
    return format_hits(hits, query.mode, most, context=query.context)


def _query(params: GrepParams, top: str) -> GrepQuery:
    return GrepQuery(
        pattern=params.pattern,
        top=top,
        mode=params.output_mode,
        ignore_case=params.ignore_case,
        context=params.context,
        type=params.type,
        glob=params.glob,
        exclude=params.exclude and params.exclude.removeprefix("!"),
        exclude_pattern=params.exclude_pattern,
        per_file=params.max_per_file,
        gitignore=params.respect_gitignore and not is_private(top),
    )
