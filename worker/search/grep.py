"""Content search: with ripgrep in the sandbox, or in this process where the sandbox or ripgrep is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event

from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..sandbox.base import Sandbox
from ..sandbox.command import Command, Completed
from ..sandbox.environment import MOUNT
from ..threads import run_in_thread
from ..workspace.file_entries import PRIVATE_DIR
from ..workspace.files import Files
from .glob_pattern import expand
from .hits import LINE_CHARS, Hits, parse_hits, truncated_lines, with_matches
from .plain_grep import GrepQuery, search
from .walk import SkippedPaths, exists_in

MAX_OUTPUT_BYTES = 8 * 1024 * 1024
_NO_MATCH, _FAILED = 1, 2
_GONE = "(os error 2)"
_BINARY = re.compile(
    r"(?:(?P<path>.+?): )?(?:WARNING: (?P<stopped>stopped searching )?)?binary file (?:matches|after).*"
)


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
        ToolError: INVALID_TOOL_PARAMS for an invalid pattern, TIMEOUT, EXECUTION_FAILED.
    """
    program = None if sandbox.broken else sandbox.program("rg")
    if program is None:
        if query.type:
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, "type needs ripgrep, which is missing here; use glob instead"
            )
        return await run_in_thread(search, files, query, Event(), skipped)
    cwd = _relative(files.mount)
    done = await _run(sandbox, _arguments(program, files, query), query, cwd)
    hits = await run_in_thread(parse_hits, done.stdout)
    _add_skipped(done, query.top, skipped)
    with suppress(ToolError):  # without the offsets, long lines are shown from their start
        if truncated := await run_in_thread(truncated_lines, hits):
            again = await _run(sandbox, _offset_arguments(program, query, [*truncated]), query, cwd)
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


def _relative(folder: str) -> str:
    """Returns a directory of the sandbox as commands start there."""
    return os.path.relpath(folder, MOUNT)


async def _run(sandbox: Sandbox, argv: list[str], query: GrepQuery, cwd: str) -> Completed:
    """Runs ripgrep. It sorts only if its output is too long to keep, because sorting limits it to one core.

    Raises ToolError if it failed or was stopped.
    """
    for order in ([], ["--sortr=modified"]):
        command = [argv[0], *order, *argv[1:]]
        seconds = int(query.seconds)
        done = await sandbox.run(Command(command, seconds, cwd=cwd, max_output=MAX_OUTPUT_BYTES, keep="head"))
        _refuse_failure(done, query)
        if not done.dropped_bytes:
            break
    return done


def _arguments(program: str, files: Files, query: GrepQuery) -> list[str]:
    """Returns the command line of a query."""
    argv = [program, "--no-config", "--color=never", "--hidden", "--null", "--with-filename", "--no-heading"]
    argv += ["--line-number", "--no-context-separator", "--engine=auto", "--no-require-git"]
    argv += ["--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-messages"]
    argv += [f"--max-columns={LINE_CHARS}", "--max-columns-preview"]
    argv += ["--ignore-case" if query.ignore_case else "--case-sensitive"]
    argv += [f"--type={query.type}"] if query.type else []
    argv += [] if query.gitignore else ["--no-ignore"]
    argv += [f"--glob={each}" for each in _globs(files, query.glob)] if query.glob else []
    argv += [f"--glob=!{each}" for each in _globs(files, query.exclude)] if query.exclude else []
    argv += ["--glob=!.git", f"--glob=!/{PRIVATE_DIR}"]  # the last matching glob decides
    if query.mode == "content":
        argv += [f"--context={query.context}"]
        argv += [f"--max-count={query.per_file + 1}"] if query.per_file else []
    else:
        argv += ["--count"]
    return [*argv, "-e", _expression(query), "--", query.top]


def _offset_arguments(program: str, query: GrepQuery, paths: Sequence[str]) -> list[str]:
    """Returns the command line that prints the offsets of the matches in these files, without their lines."""
    argv = [program, "--no-config", "--color=never", "--null", "--with-filename", "--no-heading", "--line-number"]
    argv += ["--column", "--byte-offset", "--engine=auto", "--no-ignore", "--max-columns=1", "--max-columns-preview"]
    argv += ["--ignore-case" if query.ignore_case else "--case-sensitive"]
    return [*argv, "-e", _expression(query), "--", *paths]


def _expression(query: GrepQuery) -> str:
    """Returns one expression for ripgrep, which cannot leave out lines of others; the match begins after ``\\K``."""
    without = query.exclude_pattern
    return f"^(?!.*(?:{without})).*?\\K(?:{query.pattern})" if without else query.pattern


def _add_skipped(done: Completed, top: str, skipped: SkippedPaths) -> None:
    """Adds the paths that ripgrep could not search completely; it reports them on both streams."""
    for path, why in _file_errors(done.stderr, top):
        if not why.endswith(_GONE):
            skipped.add(path.removeprefix("./"), _plain_reason(why))
    for line in done.stdout.split(b"\n"):
        if line and b"\0" not in line and (found := _BINARY.fullmatch(line.decode("utf-8", "replace"))):
            whole = found["stopped"] is None
            why = "it is binary, and the pattern matches in it" if whole else "only up to its first NUL"
            skipped.add((found["path"] or top).removeprefix("./"), why)


def _globs(files: Files, glob: str) -> Iterator[str]:
    """Yields the glob with its braces expanded, and with the brackets of existing names escaped."""
    anchor = "/" if glob.startswith("/") else ""
    for each in expand(glob, exists_in(files, ".")):
        yield anchor + each + "/" * glob.endswith("/")


def _file_errors(stderr: bytes, top: str) -> Iterator[tuple[str, str]]:
    """Yields path and reason of ripgrep's errors about single files; paths begin with the searched one."""
    begin = "./" if top == "." else top
    for line in stderr.decode("utf-8", "replace").split("\n"):
        message = line.removeprefix("rg: ")
        if message.startswith(begin) and ": " in message:
            path, _, why = message.partition(": ")
            yield path, why


def _plain_reason(why: str) -> str:
    if "match limit" in why or "PCRE2" in why:
        return "the pattern takes too long there; use a simpler one"
    return re.sub(r" \(os error \d+\)", "", why)


def _refuse_failure(done: Completed, query: GrepQuery) -> None:
    """Raises ToolError if ripgrep failed as a whole. Its exit code is also 2 if only one file is unreadable."""
    if done.timed_out:
        raise ToolError(
            ErrorType.TIMEOUT,
            f"grep was stopped after {query.seconds:g} seconds. Search a smaller path or use a simpler pattern.",
        )
    message = done.stderr.decode("utf-8", "replace").strip()
    if done.exit_code in (0, _NO_MATCH) or done.stdout or any(_file_errors(done.stderr, query.top)):
        return
    if done.exit_code == _FAILED and message:
        # if both regex engines reject a pattern, the first one's message is enough
        found = re.search(r"regex parse error:.*?(?=\n~~~|\Z)", message, re.DOTALL)
        why = found[0] if found else message.removeprefix("rg: ")
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: {clip(why, 1000)}")
    raise ToolError(
        ErrorType.EXECUTION_FAILED,
        f"the search ended before it was complete (exit code {done.exit_code}). Search a smaller path. "
        + clip(message, 500),
    )
