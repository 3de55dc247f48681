"""``glob``: finds files by a pattern of their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

from pydantic import Field

from ...shared.settings import Settings
from ...shared.text import clip, count
from ..contracts import FileAccess
from ..search.listing import folders_matching, list_files, matching
from ..search.ripgrep import SkippedPaths, is_installed
from ..text.output import one_line
from ..threads import run_in_thread
from ..workspace.files import named
from .base import Availability, DisplayOptions, Kind, P, Params, Tool, ToolContext, ToolResult
from .params import WorkspacePath

DEFAULT_LIMIT = 100
_EXAMPLES = 3
"""Files listed for a near miss of the pattern."""


class GlobParams(Params):
    pattern: str = Field(
        min_length=1,
        max_length=2000,
        description='Which paths below path, such as "**/*.ts", "src/*.{js,jsx}" or "test_?.py".',
    )
    path: WorkspacePath = Field(
        default=".", min_length=1, description="The directory to search, relative to the workspace."
    )
    ignore_case: bool = Field(default=False, description="True takes a and A for the same.")
    respect_gitignore: bool = Field(default=True, description="False also finds files that .gitignore names.")


class SearchTool(Tool[P]):
    """Base class of the tools that are offered where ripgrep is installed."""

    availability = Availability("enable_search")
    kind = Kind.SEARCH

    def __init__(self, has_ripgrep: Callable[[], bool] = is_installed) -> None:
        self._has_ripgrep = has_ripgrep

    def configured(self, settings: Settings) -> Self | None:
        return self if self._has_ripgrep() else None


class Glob(SearchTool[GlobParams]):
    """Finds files by the pattern of their paths, the most recently changed first, one path a line.

    `*` and `?` match inside one name, `**/` matches any directories, `{a,b}` and `[a-z]` choose: `*.py` finds files
    directly in path, `**/*.py` finds them at any depth. Brackets of real names, as in `app/[id]/page.tsx`, are found as
    they are spelled. Paths in the answer are relative to the workspace and can be
    given to the other tools as they are. Links and files that .gitignore names are left out, and at most 100 are
    shown, with the total. To search in the contents of files use grep.
    """

    name = "glob"
    display = DisplayOptions("glob")
    aliases = ("find_files", "Glob")
    params = GlobParams

    def title(self, params: GlobParams) -> str:
        where = "" if params.path == "." else f" in {clip(params.path, 40)}"
        return f"find {clip(params.pattern, 60)}{where}"

    async def run(self, ctx: ToolContext, params: GlobParams) -> ToolResult:
        files = ctx.reading(params.path)
        top = files.relative(params.path).rstrip("/")
        facts: dict[str, Any] = {"pattern": params.pattern, "searchPath": named(files, top)}
        ctx.metadata(f"Searching: {clip(params.pattern, 80)}", **facts, count=0)
        skipped = SkippedPaths(partial(named, files))
        listed = await list_files(files, ctx.sandbox, top, gitignore=params.respect_gitignore, skipped=skipped)
        found = await _matching(files, listed, params, top)
        shown = found[:DEFAULT_LIMIT]
        facts |= {"count": len(shown), "total": len(found), "truncated": len(found) > DEFAULT_LIMIT or bool(skipped)}
        lines = [one_line(named(files, path)) for path in shown]
        lines = lines or [await self._no_match(ctx, files, listed, params, top, complete=not skipped)]
        if len(found) > DEFAULT_LIMIT:
            lines.append(
                f"({DEFAULT_LIMIT} of {len(found)} files, the most recently changed ones. "
                "Use a narrower pattern or path to see the others.)"
            )
        title = f"Found {count(len(found), 'file')}"
        return ToolResult("\n".join([*lines, *skipped.sentences()]), title, metadata=facts)

    async def _no_match(
        self,
        ctx: ToolContext,
        files: FileAccess,
        listed: Sequence[str],
        params: GlobParams,
        top: str,
        *,
        complete: bool,
    ) -> str:
        text = f"No file below {named(files, top)} matches {params.pattern!r}"
        text += "." if complete else " among those that could be read."
        if folders := await run_in_thread(folders_matching, files, listed, params.pattern, top):
            inside = f"{params.pattern.rstrip('/')}/**"
            names = ", ".join(f"{one_line(named(files, path))}/" for path in folders[:_EXAMPLES])
            more = ", …" if len(folders) > _EXAMPLES else ""
            return f"{text} It matches directories: {names}{more}. {inside!r} has their files."
        for change, words in _near_misses(params):
            nearly = params.model_copy(update=change)
            if nearly.respect_gitignore != params.respect_gitignore:
                listed = await list_files(files, ctx.sandbox, top, gitignore=False, skipped=SkippedPaths())
            if near := await _matching(files, listed, nearly, top):
                names = ", ".join(one_line(named(files, path)) for path in near[:_EXAMPLES])
                more = ", …" if len(near) > _EXAMPLES else ""
                return f"{text} {len(near)} match {words}" + ("." if [*change] == ["pattern"] else f": {names}{more}.")
        return text


def _near_misses(params: GlobParams) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields variations of the request that may match, with their descriptions."""
    deeper = f"**/{params.pattern}"
    any_case = "case-insensitively (ignore_case: true)"
    if "/" not in params.pattern:
        yield {"pattern": deeper}, repr(deeper)
    if not params.ignore_case:
        yield {"ignore_case": True}, any_case
        if "/" not in params.pattern:
            yield {"pattern": deeper, "ignore_case": True}, f"{deeper!r} {any_case}"
    if "\\" in params.pattern:
        yield {"pattern": (slashes := params.pattern.replace("\\", "/"))}, repr(slashes)
    if params.respect_gitignore:
        yield {"respect_gitignore": False}, "among the files that .gitignore excludes (respect_gitignore: false)"


async def _matching(files: FileAccess, listed: Sequence[str], params: GlobParams, top: str) -> list[str]:
    return await run_in_thread(matching, files, listed, params.pattern, top, ignore_case=params.ignore_case)
