"""The search where ripgrep or the sandbox is missing: slower, in this process, and bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

import regex

from shared.errors import ErrorType, ToolError
from worker.search.gitignore import GitIgnore
from worker.search.globbing import Pattern, spelled_out
from worker.search.hits import LINE_CHARS, Hits, Mode, excerpt
from worker.search.searching import Unsearched, exists_in, newest_first, searched
from worker.text.textfile import decode
from worker.workspace.files import Files

_MAX_FILE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    pattern: str
    top: str
    mode: Mode
    ignore_case: bool = False
    context: int = 0
    type: str | None = None
    """Of files, as ripgrep knows them; the search here knows none."""
    glob: str | None = None
    exclude: str | None = None
    per_file: int | None = None
    """Matches of one file after which the others of it are not looked for."""
    gitignore: bool = True
    seconds: float = 30
    most: int = 10_000
    """Hits after which the search ends."""


def search(files: Files, question: Question, stop: Event, unsearched: Unsearched | None = None) -> tuple[Hits, bool]:
    """The hits, and whether they are all. Raises ToolError for a wrong pattern or when the time is over.

    ``unsearched`` is told what could not be looked at.
    """
    unsearched = Unsearched() if unsearched is None else unsearched
    try:
        wanted = regex.compile(question.pattern, regex.IGNORECASE if question.ignore_case else 0)
    except regex.error as error:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: regex parse error: {error}") from None
    deadline = time.monotonic() + question.seconds
    hits: dict[str, list[str]] = {}
    count = 0
    for path in _paths(files, question, stop, unsearched):
        try:
            lines = decode(files.read(path, _MAX_FILE_BYTES), path).readable.split("\n")
        except ToolError as error:
            if error.type is not ErrorType.NOT_TEXT or path == question.top:
                unsearched.add_error(path, error)
            continue
        if found := _matching(wanted, lines, deadline, question):
            is_content = question.mode == "content"
            hits[path] = _with_context(lines, found, question.context) if is_content else [str(len(found))]
            count += len(hits[path])
        if count > question.most:
            return hits, False
    return hits, True


def _paths(files: Files, question: Question, stop: Event, unsearched: Unsearched) -> Iterator[str]:
    found = files.stat(question.top)
    if found is not None and found.kind == "file":
        yield question.top
        return
    glob = question.glob or "**"
    pattern = Pattern(glob, exists=exists_in(files, "."), anywhere="/" not in glob)
    place, is_excluded = pattern.at(question.top), _exclusion(files, question.exclude)
    found = searched(files, question.top, gitignore=question.gitignore, stop=stop, place=place, unsearched=unsearched)
    for seen in newest_first(found):
        if not seen.is_link and not is_excluded(seen.path):
            yield seen.path


def _exclusion(files: Files, exclude: str | None) -> Callable[[str], bool]:
    """Whether a path is left out: as ripgrep reads a glob, a name anywhere or a path from the top, and all inside."""
    exclude = exclude or ""
    before, after = "/" * ("/" in exclude.rstrip("/")), "/" * exclude.endswith("/")
    lines = spelled_out(exclude, exists_in(files, ".")) if exclude else []
    rules = GitIgnore("\n".join(before + line + after for line in lines))

    def is_excluded(path: str) -> bool:
        names = path.split("/")
        return any(rules.opinion(names[:end], directory=end < len(names)) for end in range(1, len(names) + 1))

    return is_excluded


def _matching(
    wanted: regex.Pattern[str], lines: Sequence[str], deadline: float, question: Question
) -> Mapping[int, int]:
    """Where in the lines that match, by their indexes. ``regex`` can be stopped inside one match, ``re`` cannot."""
    most = question.per_file + 1 if question.per_file and question.mode == "content" else len(lines)
    places: dict[int, int] = {}
    for number, line in enumerate(lines):
        if len(places) == most or (number == len(lines) - 1 and not line):
            break
        seconds = max(0.001, deadline - time.monotonic())
        try:
            if found := wanted.search(line.removesuffix("\r"), timeout=seconds, concurrent=True):
                places[number] = found.start()
        except TimeoutError:
            raise ToolError(
                ErrorType.TIMEOUT, "grep took too long. Search a smaller path or use a simpler pattern."
            ) from None
    return places


def _with_context(lines: Sequence[str], places: Mapping[int, int], context: int) -> list[str]:
    near = sorted({at for number in places for at in range(max(0, number - context), number + context + 1)})
    last = len(lines) - (not lines[-1])
    return [_hit(at, lines[at], places.get(at)) for at in near if at < last]


def _hit(at: int, line: str, place: int | None) -> str:
    text = line if place is None or len(line) <= LINE_CHARS else excerpt(line, place)
    return f"{at + 1}{'-' if place is None else ':'}{text}"
