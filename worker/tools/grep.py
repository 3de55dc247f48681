"""``grep``: lines of files by a regular expression, through ripgrep in the sandbox."""

from __future__ import annotations

import re
from threading import Event

from pydantic import Field

from shared.errors import ErrorType, ToolError
from worker.files import Files
from worker.output import PRIVATE_DIR, clip, is_private
from worker.sandbox.base import Command, Completed
from worker.search.hits import LINE_CHARS, Hits, Mode, newest_first, parsed, shown
from worker.search.plain_grep import Question, search
from worker.text.not_found import no_such_file
from worker.threads import to_the_end
from worker.tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult, Touches

TIMEOUT_SECONDS = 30
MAX_OUTPUT_BYTES = 8 * 1024 * 1024


class GrepParams(Params):
    pattern: str = Field(
        min_length=1,
        max_length=10_000,
        description='The regular expression (ripgrep\'s syntax), such as "def \\w+\\(".',
    )
    path: str = Field(default=".", min_length=1, description="The file or directory, relative to the workspace.")
    glob: str | None = Field(default=None, description='Search only files like "*.py" or "src/**/*.{ts,tsx}".')
    type: str | None = Field(default=None, description='Search only files of this type: "py", "js", "rust", …')
    ignore_case: bool = Field(default=False, description="True takes a and A for the same.")
    context: int = Field(default=0, ge=0, le=50, description="How many lines around each match to show.")
    output_mode: Mode = Field(
        default="content", description="content: the lines. files: only the paths. count: matching lines a file."
    )
    max_results: int = Field(default=100, ge=1, le=1000, description="How many lines, or files, to show at most.")
    respect_gitignore: bool = Field(default=True, description="False also searches what .gitignore leaves out.")


class Grep(Tool[GrepParams]):
    """Searches the contents of files for a regular expression, with ripgrep; recently changed files come first.

    Matching lines are shown below the path of their file and behind their number, as in `    12|text`; lines that
    context adds have a - for the bar. Number and bar are not part of the file. Escape what a regular expression
    would read as a sign: `foo\\(`. Binary files and files that .gitignore names are left out.
    """

    name = "grep"
    switch = "enable_search"
    kind = Kind.SEARCH
    effect = Effect.PURE
    step_type = "grep"
    aliases = ("search", "search_file_content", "ripgrep")
    params = GrepParams

    def title(self, params: GrepParams) -> str:
        where = "" if params.path == "." else f" in {clip(params.path, 40)}"
        return f"grep {clip(params.pattern, 60)!r}{where}"

    def touches(self, params: GrepParams) -> Touches:
        return Touches(paths=(params.path,))

    async def run(self, ctx: ToolContext, params: GrepParams) -> ToolResult:
        top = ctx.files.relative(params.path).rstrip("/")
        if ctx.files.stat(top) is None:
            raise no_such_file(ctx.files, params.path)
        program = None if ctx.sandbox.broken else ctx.sandbox.program("rg")
        if program is None:
            hits, complete = await to_the_end(search, ctx.files, _question(params, top), Event())
        else:
            done = await _answered(ctx, _argv(program, params, top))
            hits, complete = await to_the_end(parsed, done.stdout), not done.dropped_bytes
        text, count, total = await to_the_end(_shown, ctx.files, hits, params)
        cut = count < total or not complete
        parts = [text] if total else [f"Nothing matches {params.pattern!r} in {top}."]
        if cut:
            number = f"{total}" if complete else f"more than {total}"
            parts.append(f"({count} of {number} shown. Use a narrower pattern, path or glob to see the others.)")
        facts = {"pattern": params.pattern, "searchPath": top, "count": count, "total": total, "truncated": cut}
        return ToolResult("\n".join(parts), _found(total, params.output_mode), metadata=facts)


async def _answered(ctx: ToolContext, argv: list[str]) -> Completed:
    """What ripgrep says. Sorting costs it all but one core, so it sorts only where not everything can be kept."""
    for order in ([], ["--sortr=modified"]):
        command = [argv[0], *order, *argv[1:]]
        done = await ctx.sandbox.run(Command(command, TIMEOUT_SECONDS, max_output=MAX_OUTPUT_BYTES, keep="head"))
        _refuse_failure(done)
        if not done.dropped_bytes:
            break
    return done


def _shown(files: Files, hits: Hits, params: GrepParams) -> tuple[str, int, int]:
    return shown(newest_first(files, hits), params.output_mode, params.max_results, context=params.context)


def _refuse_failure(done: Completed) -> None:
    """ripgrep's exit code is 2 for a wrong pattern, but also for one unreadable file among readable ones."""
    if done.timed_out:
        raise ToolError(
            ErrorType.TIMEOUT,
            f"grep was stopped after {TIMEOUT_SECONDS} seconds. Search a smaller path or use a simpler pattern.",
        )
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code > 1 and said and not done.stdout:
        # of a pattern that no engine takes, what the first engine said is enough
        found = re.search(r"regex parse error:.*?(?=\n~~~|\Z)", said, re.DOTALL)
        why = found[0] if found else said.removeprefix("rg: ")
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: {clip(why, 1000)}")


def _found(total: int, mode: Mode) -> str:
    what = ("match" if total == 1 else "matches") if mode == "content" else "file" if total == 1 else "files"
    return f"Found {total} {what}"


def _argv(program: str, params: GrepParams, top: str) -> list[str]:
    argv = [program, "--no-config", "--color=never", "--hidden", "--null", "--with-filename", "--no-heading"]
    argv += ["--line-number", "--no-context-separator", "--engine=auto", "--no-require-git"]
    argv += ["--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-messages"]
    argv += [f"--max-columns={LINE_CHARS}", "--max-columns-preview"]
    argv += ["--ignore-case" if params.ignore_case else "--case-sensitive"]
    argv += [f"--type={params.type}"] if params.type else []
    argv += [] if params.respect_gitignore and not is_private(top) else ["--no-ignore"]
    argv += [f"--glob={params.glob}"] if params.glob else []
    argv += ["--glob=!.git", f"--glob=!/{PRIVATE_DIR}"]  # the last glob that fits decides
    argv += [f"--context={params.context}"] if params.output_mode == "content" else ["--count"]
    return [*argv, "-e", params.pattern, "--", top]


def _question(params: GrepParams, top: str) -> Question:
    if params.type:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, "type needs ripgrep, which is missing here; use glob instead")
    return Question(
        pattern=params.pattern,
        top=top,
        mode=params.output_mode,
        ignore_case=params.ignore_case,
        context=params.context,
        glob=params.glob,
        gitignore=params.respect_gitignore and not is_private(top),
        seconds=TIMEOUT_SECONDS,
    )
