"""The search where ripgrep or the sandbox is missing: slower, in this process, and bounded in time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event

import regex

from shared.errors import ErrorType, ToolError
from worker.files import Files
from worker.search.globbing import Pattern
from worker.search.hits import Hits, Mode
from worker.search.searching import newest_first, searched
from worker.text.textfile import decode

_MAX_FILE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    pattern: str
    top: str
    mode: Mode
    ignore_case: bool = False
    context: int = 0
    glob: str | None = None
    gitignore: bool = True
    seconds: float = 30
    most: int = 10_000
    """Hits after which the search ends."""


def search(files: Files, question: Question, stop: Event) -> tuple[Hits, bool]:
    """The hits, and whether they are all. Raises ToolError for a wrong pattern or when the time is over."""
    try:
        wanted = regex.compile(question.pattern, regex.IGNORECASE if question.ignore_case else 0)
    except regex.error as error:
        raise ToolError(ErrorType.INVALID_TOOL_PARAMS, f"grep: regex parse error: {error}") from None
    deadline = time.monotonic() + question.seconds
    hits: dict[str, list[str]] = {}
    count = 0
    for path in _paths(files, question, stop):
        try:
            lines = decode(files.read(path, _MAX_FILE_BYTES), path).readable.split("\n")
        except ToolError:
            continue
        numbers = _matching(wanted, lines, deadline)
        if numbers:
            is_content = question.mode == "content"
            hits[path] = _with_context(lines, numbers, question.context) if is_content else [str(len(numbers))]
            count += len(hits[path])
        if count > question.most:
            return hits, False
    return hits, True


def _paths(files: Files, question: Question, stop: Event) -> Iterator[str]:
    found = files.stat(question.top)
    if found is not None and found.kind == "file":
        yield question.top
        return
    glob = question.glob or "**"
    place = Pattern(glob if "/" in glob else f"**/{glob}").at(question.top)
    found = searched(files, question.top, gitignore=question.gitignore, stop=stop, place=place)
    yield from (seen.path for seen in newest_first(found) if not seen.is_link)


def _matching(wanted: regex.Pattern[str], lines: Sequence[str], deadline: float) -> list[int]:
    """Indexes of the lines that match. ``regex`` can be stopped inside one match, which ``re`` cannot."""
    numbers: list[int] = []
    for number, line in enumerate(lines):
        if number == len(lines) - 1 and not line:
            break
        try:
            if wanted.search(line.removesuffix("\r"), timeout=max(0.001, deadline - time.monotonic()), concurrent=True):
                numbers.append(number)
        except TimeoutError:
            raise ToolError(
                ErrorType.TIMEOUT, "grep took too long. Search a smaller path or use a simpler pattern."
            ) from None
    return numbers


def _with_context(lines: Sequence[str], numbers: Sequence[int], context: int) -> list[str]:
    matching = set(numbers)
    near = sorted({at for number in numbers for at in range(max(0, number - context), number + context + 1)})
    last = len(lines) - (not lines[-1])
    return [f"{at + 1}{':' if at in matching else '-'}{lines[at]}" for at in near if at < last]
