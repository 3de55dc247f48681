"""Content search with ripgrep in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...shared.errors import ToolError
from ..sandbox.bubblewrap import Sandbox
from ..threads import run_in_thread
from ..workspace.files import Files
from .glob_pattern import expand
from .hits import LINE_CHARS, Hits, Mode, parse_hits, truncated_lines, with_matches
from .listing import exists_in
from .ripgrep import SkippedPaths, add_binary, add_skipped, run_ripgrep, walk_options

_LINES = ("--with-filename", "--no-heading", "--line-number", "--engine=auto", "--max-columns-preview")


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """A content search: the regular expression, where to search, and what to return."""

    pattern: str
    """What to search for; ``exclude_pattern`` is what a line must not match besides."""
    top: str
    mode: Mode
    ignore_case: bool = False
    context: int = 0
    type: str | None = None
    """A file type of ripgrep's."""
    glob: str | None = None
    exclude: str | None = None
    exclude_pattern: str | None = None
    per_file: int | None = None
    """Matches per file after which the search of the file ends."""
    gitignore: bool = True


async def search_content(files: Files, sandbox: Sandbox, query: GrepQuery, skipped: SkippedPaths) -> tuple[Hits, bool]:
    """Searches the contents of files.

    Args:
        files: The workspace.
        sandbox: Where ripgrep runs.
        query: What to search for.
        skipped: Receives the paths that could not be searched.

    Returns:
        The hits, long lines as excerpts around their match, and whether these are all.

    Raises:
        ToolError: INVALID_TOOL_PARAMS for an invalid pattern; see ``run_ripgrep``.
    """
    done = await run_ripgrep(sandbox, _arguments(files, query), files.mount, query.top)
    hits = await run_in_thread(parse_hits, done.stdout)
    add_skipped(done, query.top, skipped)
    add_binary(done, query.top, skipped)
    with suppress(ToolError):  # without the offsets, long lines are shown from their start
        if truncated := await run_in_thread(truncated_lines, hits):
            again = await run_ripgrep(sandbox, _offset_arguments(query, [*truncated]), files.mount, query.top)
            hits = await run_in_thread(with_matches, files, hits, truncated, again.stdout)
    return hits, not done.dropped_bytes


async def matches_ignoring_case(files: Files, sandbox: Sandbox, query: GrepQuery) -> Sequence[str]:
    """Returns the files that a case-sensitive query without a hit matches case-insensitively."""
    if query.ignore_case or query.pattern.swapcase() == query.pattern:
        return ()
    with suppress(ToolError):  # only a hint
        hits, _ = await search_content(files, sandbox, replace(query, ignore_case=True, mode="files"), SkippedPaths())
        return [*hits]
    return ()


def _arguments(files: Files, query: GrepQuery) -> list[str]:
    """Returns the command line of a query."""
    globs = [*_globs(files, query.glob)] if query.glob else []
    globs += [f"!{each}" for each in _globs(files, query.exclude)] if query.exclude else []
    argv = [*walk_options(gitignore=query.gitignore, globs=globs), *_LINES]
    argv += ["--no-context-separator", f"--max-columns={LINE_CHARS}", _case(query)]
    argv += [f"--type={query.type}"] if query.type else []
    if query.mode == "content":
        argv += [f"--context={query.context}"]
        argv += [f"--max-count={query.per_file + 1}"] if query.per_file else []
    else:
        argv += ["--count"]
    return [*argv, "-e", _expression(query), "--", query.top]


def _offset_arguments(query: GrepQuery, paths: Sequence[str]) -> list[str]:
    """Returns the command line that prints the offsets of the matches in these files, without their lines."""
    argv = [*_LINES, "--column", "--byte-offset", "--no-ignore", "--max-columns=1", _case(query)]
    return [*argv, "-e", _expression(query), "--", *paths]


def _case(query: GrepQuery) -> str:
    return "--ignore-case" if query.ignore_case else "--case-sensitive"


def _expression(query: GrepQuery) -> str:
    """Returns one expression for ripgrep, which cannot leave out lines of others; the match begins after ``\\K``."""
    without = query.exclude_pattern
    return f"^(?!.*(?:{without})).*?\\K(?:{query.pattern})" if without else query.pattern


def _globs(files: Files, glob: str) -> Iterator[str]:
    """Yields the glob with its braces expanded, and with the brackets of existing names escaped."""
    anchor = "/" if glob.startswith("/") else ""
    for each in expand(glob, exists_in(files, ".")):
        yield anchor + each + "/" * glob.endswith("/")
