"""``glob``: finds files by a pattern of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any

from pydantic import Field

from ...shared.text import clip, count
from ..search.walk import SkippedPaths, WalkEntry, find_files
from ..text.output import one_line
from ..threads import run_in_thread
from ..workspace.files import Files
from ..workspace.shown_files import named
from .base import Availability, DisplayOptions, Kind, Params, Tool, ToolContext, ToolResult
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
    respect_gitignore: bool = Field(default=True, description="False also finds what .gitignore leaves out.")


class Glob(Tool[GlobParams]):
    """Finds files by the pattern of their paths, the most recently changed first, one path a line.

    `*` and `?` match inside one name, `**/` matches any directories, `{a,b}` and `[a-z]` choose: `*.py` finds files
    directly in path, `**/*.py` finds them at any depth. Brackets of real names, as in `app/[id]/page.tsx`, are found as
    they are spelled. Paths in the answer are relative to the workspace and can be
    given to the other tools as they are. Files that .gitignore names are left out, and at most 100 are shown, with
    the total. To search in the contents of files use grep.
    """

    name = "glob"
    availability = Availability("enable_search")
    kind = Kind.SEARCH
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
        found = await run_in_thread(_find, files, params, top, Event(), skipped)
        shown = found[:DEFAULT_LIMIT]
        facts |= {"count": len(shown), "total": len(found), "truncated": len(found) > DEFAULT_LIMIT or bool(skipped)}
        lines = [one_line(named(files, seen.path)) for seen in shown]
        lines = lines or [await self._no_match(files, params, top, skipped)]
        if len(found) > DEFAULT_LIMIT:
            lines.append(
                f"({DEFAULT_LIMIT} of {len(found)} files, the most recently changed ones. "
                "Use a narrower pattern or path to see the others.)"
            )
        title = f"Found {count(len(found), 'file')}"
        return ToolResult("\n".join([*lines, *skipped.sentences()]), title, metadata=facts)

    async def _no_match(self, files: Files, params: GlobParams, top: str, skipped: SkippedPaths) -> str:
        """Returns the message for no match, with a hint if a similar pattern matches."""
        text = f"No file below {named(files, top)} matches {params.pattern!r}" + (
            " among those that could be read." if skipped else "."
        )
        for change, words in _near_misses(params):
            nearly = params.model_copy(update=change)
            if near := await run_in_thread(_find, files, nearly, top, Event(), SkippedPaths()):
                names = ", ".join(one_line(named(files, seen.path)) for seen in near[:_EXAMPLES])
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
    if params.respect_gitignore:
        yield {"respect_gitignore": False}, "among the files that .gitignore excludes (respect_gitignore: false)"


def _find(files: Files, params: GlobParams, top: str, stop: Event, skipped: SkippedPaths) -> list[WalkEntry]:
    ignore = params.respect_gitignore
    return find_files(
        files, params.pattern, top, gitignore=ignore, stop=stop, ignore_case=params.ignore_case, skipped=skipped
    )
