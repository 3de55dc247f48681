"""Content search without ripgrep or the sandbox: slower, in this process, with a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

import regex

from ...shared.errors import ErrorType, ToolError
from ..text.textfile import decode
from ..threads import ComputeLimit
from ..workspace.files import Files
from .gitignore import GitIgnore
from .glob_pattern import GlobPattern, expand
from .hits import LINE_CHARS, Hits, Mode, excerpt
from .walk import SkippedPaths, entries_by_mtime, exists_in, walk

_MAX_FILE_BYTES = 8 * 1024 * 1024


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
    """A file type of ripgrep's; the search in this process supports none."""
    glob: str | None = None
    exclude: str | None = None
    exclude_pattern: str | None = None
    per_file: int | None = None
    """Matches per file after which the search of the file ends."""
    gitignore: bool = True
    seconds: float = 30
    """Computing time."""
    most: int = 10_000
    """Hits after which the search ends."""


def search(files: Files, query: GrepQuery, stop: Event, skipped: SkippedPaths | None = None) -> tuple[Hits, bool]:
    """Searches the contents of files.

    Args:
        files: The workspace.
        query: What to search for.
        stop: Ends the search.
        skipped: Receives the paths that could not be searched.

    Returns:
        The hits, and whether these are all.

    Raises:
        ToolError: INVALID_TOOL_PARAMS for an invalid pattern, TIMEOUT.
    """
    skipped = SkippedPaths() if skipped is None else skipped
    try:
        flags = regex.IGNORECASE if query.ignore_case else 0
        wanted = regex.compile(query.pattern, flags)
        unwanted = regex.compile(query.exclude_pattern, flags) if query.exclude_pattern else None
    except regex.error as error:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: regex parse error: {error}") from None
    limit = ComputeLimit(query.seconds)
    hits: dict[str, list[str]] = {}
    count = 0
    for path in _paths(files, query, stop, skipped):
        try:
            lines = decode(files.read(path, _MAX_FILE_BYTES), path).readable.split("\n")
        except ToolError as error:
            if error.type is not ErrorType.NOT_TEXT or path == query.top:
                skipped.add_error(path, error)
            continue
        if found := _match_lines(wanted, unwanted, lines, limit, query):
            is_content = query.mode == "content"
            hits[path] = _with_context(lines, found, query.context) if is_content else [str(len(found))]
            count += len(hits[path])
        if count > query.most:
            return hits, False
    return hits, True


def _paths(files: Files, query: GrepQuery, stop: Event, skipped: SkippedPaths) -> Iterator[str]:
    found = files.stat(query.top)
    if found is not None and found.kind == "file":
        yield query.top
        return
    glob = query.glob or "**"
    pattern = GlobPattern(glob, exists=exists_in(files, "."), anywhere="/" not in glob)
    state, is_excluded = pattern.at(query.top), _exclusion(files, query.exclude)
    found = walk(files, query.top, gitignore=query.gitignore, stop=stop, state=state, skipped=skipped)
    for entry in entries_by_mtime(found):
        if not entry.is_link and not is_excluded(entry.path):
            yield entry.path


def _exclusion(files: Files, exclude: str | None) -> Callable[[str], bool]:
    """Returns the predicate for excluded paths, with ripgrep's semantics of ``--glob=!…``."""
    exclude = exclude or ""
    before, after = "/" * ("/" in exclude.rstrip("/")), "/" * exclude.endswith("/")
    lines = expand(exclude, exists_in(files, ".")) if exclude else []
    rules = GitIgnore("\n".join(before + line + after for line in lines))

    def is_excluded(path: str) -> bool:
        names = path.split("/")
        return any(rules.decision(names[:end], directory=end < len(names)) for end in range(1, len(names) + 1))

    return is_excluded


def _match_lines(
    wanted: regex.Pattern[str],
    unwanted: regex.Pattern[str] | None,
    lines: Sequence[str],
    limit: ComputeLimit,
    query: GrepQuery,
) -> Mapping[int, int]:
    """Returns the offset of the first match by the index of its line."""
    most = query.per_file + 1 if query.per_file and query.mode == "content" else len(lines)
    matches: dict[int, int] = {}
    for number, line in enumerate(lines):
        if len(matches) == most or (number == len(lines) - 1 and not line):
            break
        try:
            text = line.removesuffix("\r")
            found = limit.search(wanted, text)
            if found and not (unwanted and limit.search(unwanted, text)):
                matches[number] = found.start()
        except TimeoutError:
            raise ToolError(
                ErrorType.TIMEOUT, "grep took too long. Search a smaller path or use a simpler pattern."
            ) from None
    return matches


def _with_context(lines: Sequence[str], matches: Mapping[int, int], context: int) -> list[str]:
    near = sorted({at for number in matches for at in range(max(0, number - context), number + context + 1)})
    last = len(lines) - (not lines[-1])
    return [_hit(at, lines[at], matches.get(at)) for at in near if at < last]


def _hit(at: int, line: str, match: int | None) -> str:
    text = line if match is None or len(line) <= LINE_CHARS else excerpt(line, match)
    return f"{at + 1}{'-' if match is None else ':'}{text}"
