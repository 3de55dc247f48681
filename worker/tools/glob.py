"""``glob``: files by the pattern of their paths."""

from __future__ import annotations

from threading import Event
from typing import Any

from pydantic import Field

from worker.files import Files
from worker.output import clip, one_line
from worker.search.searching import Seen, matching
from worker.threads import to_the_end
from worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult, Touches

DEFAULT_LIMIT = 100


class GlobParams(Params):
    pattern: str = Field(
        min_length=1,
        max_length=2000,
        description='Which paths below path, such as "**/*.ts", "src/*.{js,jsx}" or "test_?.py".',
    )
    path: str = Field(default=".", min_length=1, description="The directory to search, relative to the workspace.")
    respect_gitignore: bool = Field(default=True, description="False also finds what .gitignore leaves out.")


class Glob(Tool[GlobParams]):
    """Finds files by the pattern of their paths, the most recently changed first, one path a line.

    `*` and `?` match inside one name, `**/` matches any directories, `{a,b}` and `[a-z]` choose: `*.py` finds files
    directly in path, `**/*.py` finds them at any depth. Paths in the answer are relative to the workspace and can be
    given to the other tools as they are. Files that .gitignore names are left out, and at most 100 are shown, with
    the total. To search in the contents of files use grep.
    """

    name = "glob"
    switch = "enable_search"
    kind = Kind.SEARCH
    effect = Effect.PURE
    step_type = "glob"
    aliases = ("find_files",)
    params = GlobParams

    def title(self, params: GlobParams) -> str:
        where = "" if params.path == "." else f" in {clip(params.path, 40)}"
        return f"find {clip(params.pattern, 60)}{where}"

    def touches(self, params: GlobParams) -> Touches:
        return Touches(paths=(params.path,))

    async def run(self, ctx: ToolContext, params: GlobParams) -> ToolResult:
        top = ctx.files.relative(params.path).rstrip("/")
        facts: dict[str, Any] = {"pattern": params.pattern, "searchPath": top}
        ctx.metadata(f"Searching: {clip(params.pattern, 80)}", **facts, count=0)
        found = await to_the_end(_found, ctx.files, params.pattern, top, params, Event())
        shown = found[:DEFAULT_LIMIT]
        facts |= {"count": len(shown), "total": len(found), "truncated": len(found) > DEFAULT_LIMIT}
        title = f"Found {len(found)} file{'s' * (len(found) != 1)}"
        if not found:
            return ToolResult(await self._nothing(ctx, params, top), title, metadata=facts)
        lines = [one_line(seen.path) for seen in shown]
        if len(found) > DEFAULT_LIMIT:
            lines.append(
                f"({DEFAULT_LIMIT} of {len(found)} files, the most recently changed ones. "
                "Use a narrower pattern or path to see the others.)"
            )
        return ToolResult("\n".join(lines), title, metadata=facts)

    async def _nothing(self, ctx: ToolContext, params: GlobParams, top: str) -> str:
        """No file is a good answer too, but a pattern that misses for lack of ``**/`` is worth a word."""
        said = f"No file below {top} matches {params.pattern!r}."
        if "/" in params.pattern:
            return said
        deeper = await to_the_end(_found, ctx.files, f"**/{params.pattern}", top, params, Event())
        return said + (f" {len(deeper)} match '**/{params.pattern}'." if deeper else "")


def _found(files: Files, pattern: str, top: str, params: GlobParams, stop: Event) -> list[Seen]:
    return matching(files, pattern, top, gitignore=params.respect_gitignore, stop=stop)
