"""Matches that lie far along a long line: ripgrep shows the beginning of such a line, and the match is not in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from shared.errors import ToolError
from worker.search.hits import LINE_CHARS, Hits, excerpt
from worker.workspace.files import Files

_CUT = re.compile(r"(\d+):.*\[\.\.\. (?:\d+ more match(?:es)?|omitted end of long line)\]", re.DOTALL)
_PLACE = re.compile(rb"(\d+):(\d+):(\d+):")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MAX_FILES = 100
_MAX_LINES = 1000
_MARGIN = 4 * LINE_CHARS
"""Bytes read before and behind the match."""

Places = Mapping[str, Mapping[int, tuple[int, int]]]
"""By file and number of the line: the bytes before its first match in it, and before the line in the file."""


def cut_lines(hits: Hits) -> dict[str, set[int]]:
    """The lines whose end ripgrep left out, by file: as many as are worth another look."""
    found: dict[str, set[int]] = {}
    left = _MAX_LINES
    for path, lines in hits.items():
        numbers = {int(cut[1]) for line in lines if len(line) > LINE_CHARS // 4 and (cut := _CUT.fullmatch(line))}
        if numbers:
            found[path] = numbers
            left -= len(numbers)
        if left <= 0 or len(found) == _MAX_FILES:
            break
    return found


def _places(output: bytes) -> Places:
    """Where the matches are, from ripgrep's output with ``--column --byte-offset --null``."""
    places: dict[str, dict[int, tuple[int, int]]] = {}
    for line in output.split(b"\n"):
        path, nul, rest = line.partition(b"\0")
        if nul and (found := _PLACE.match(rest)):
            number, column, offset = map(int, found.groups())
            name = path.decode("utf-8", "replace").removeprefix("./")
            places.setdefault(name, {})[number] = (column - 1, offset)
    return places


def with_matches(files: Files, hits: Hits, cut: Mapping[str, set[int]], output: bytes) -> Hits:
    """The hits with each cut line shown around its match where that lies far along it.

    ``output`` is what ripgrep says of where the matches are.
    """
    places = _places(output)
    return {path: _shown(files, path, lines, cut.get(path), places.get(path)) for path, lines in hits.items()}


def _shown(
    files: Files,
    path: str,
    lines: Sequence[str],
    cut: set[int] | None,
    places: Mapping[int, tuple[int, int]] | None,
) -> Sequence[str]:
    if not cut or not places:
        return lines
    try:
        fd = files.open_fd(path)
    except ToolError:
        return lines
    try:
        if os.pread(fd, 2, 0) in _UTF16:  # ripgrep counts the bytes of its translation
            return lines
        return [_line(fd, line, cut, places) for line in lines]
    finally:
        os.close(fd)


def _line(fd: int, line: str, cut: set[int], places: Mapping[int, tuple[int, int]]) -> str:
    number, colon, _ = line.partition(":")
    if not colon or not number.isdigit() or int(number) not in cut or int(number) not in places:
        return line
    before, offset = places[int(number)]
    if before < LINE_CHARS * 3 // 4:
        return line
    start = max(0, before - _MARGIN)
    data = os.pread(fd, before - start + _MARGIN, offset + start)
    text = data.decode("utf-8", "replace")
    at = len(data[: before - start].decode("utf-8", "replace"))
    end = text.find("\n", at)
    return f"{number}:{excerpt(text if end < 0 else text[:end], at)}"
