"""What a content search found, in the order and the form the model gets it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from shared.errors import ToolError
from shared.text import clip
from worker.workspace.files import Files

Mode = Literal["content", "files", "count"]
Hits = Mapping[str, Sequence[str]]
"""Each file's lines as ripgrep prints them: ``12:text`` matches, ``12-text`` is context. Or, in the other modes, how
many lines match. Only what is shown is taken apart: there may be a hundred thousand of them."""
LINE_CHARS = 500
_GAP = "[…]"
_MATCH = re.compile(r"\d+:")
_LINE = re.compile(r"(\d+)([:-])(.*)", re.DOTALL)
_FOLDER = os.O_PATH | os.O_DIRECTORY
_CUT = re.compile(r"(\d+):.*\[\.\.\. (?:\d+ more match(?:es)?|omitted end of long line)\]", re.DOTALL)
_PLACE = re.compile(rb"(\d+):(\d+):(\d+):")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MAX_FILES = 100
_MAX_LINES = 1000
_MARGIN = 4 * LINE_CHARS
"""Bytes read before and behind the match."""
Places = Mapping[str, Mapping[int, tuple[int, int]]]
"""By file and number of the line: the bytes before its first match in it, and before the line in the file."""


def parsed(output: bytes) -> Hits:
    """The hits in ripgrep's output with ``--null``. Lines without a NUL are remarks on binary files."""
    hits: dict[str, list[str]] = {}
    last = None
    block: list[str] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        path, nul, rest = line.partition("\0")
        if nul and path != last:
            block = hits.setdefault(path.removeprefix("./"), [])
            last = path
        if nul:
            block.append(rest)
    return hits


def newest_first(files: Files, hits: Hits) -> Hits:
    """The hits of recently changed files first, equally old ones by path."""
    changed = _changed(files, hits)
    return {path: hits[path] for path in sorted(sorted(hits), key=changed.__getitem__, reverse=True)}


def _changed(files: Files, paths: Iterable[str]) -> dict[str, int]:
    """When each file was changed, in nanoseconds, 0 for what is gone. A directory is opened once for all its files."""
    folders: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append((path, name))
    changed: dict[str, int] = {}
    for folder, inside in folders.items():
        try:
            fd = files.open_fd(folder or ".", _FOLDER)
        except ToolError:
            changed |= {path: 0 for path, _ in inside}
            continue
        try:
            for path, name in inside:
                changed[path] = _mtime(name, fd)
        finally:
            os.close(fd)
    return changed


def _mtime(name: str, folder: int) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except (OSError, ValueError):
        return 0


def capped(hits: Hits, per_file: int, *, context: int) -> tuple[Hits, list[str]]:
    """The hits with at most so many matches of each file, and the files that have more."""
    kept: dict[str, Sequence[str]] = {}
    more: list[str] = []
    for path, lines in hits.items():
        matches = [at for at, line in enumerate(lines) if _MATCH.match(line)] if context else range(len(lines))
        kept[path] = lines
        if len(matches) > per_file:
            more.append(path)
            last = matches[per_file - 1]
            kept[path] = [*lines[: last + 1], *_following(lines[last : matches[per_file]], context)]
    return kept, more


def _following(lines: Sequence[str], context: int) -> Iterator[str]:
    """The context after the first of these lines."""
    first = int(lines[0].partition(":")[0])
    for line in lines[1:]:
        if (found := _LINE.fullmatch(line)) and int(found[1]) <= first + context:
            yield line


def excerpt(line: str, at: int) -> str:
    """A part of a long line around a place in it; it is marked where something is left out."""
    if at < LINE_CHARS * 3 // 4:
        return line
    start = at - LINE_CHARS // 4
    part = line[start : start + LINE_CHARS - 2 * len(_GAP)]
    return f"{_GAP}{part}{_GAP if start + len(part) < len(line) else ''}"


def shown(hits: Hits, mode: Mode, most: int, *, context: int) -> tuple[str, int, int]:
    """The text of at most ``most`` matches, how many those are, and how many there are.

    ``context`` is how many lines around each match the hits hold, too.
    """
    if mode != "content":
        lines = [path if mode == "files" else f"{path}: {count}" for path, (count, *_) in hits.items()]
        return "\n".join(lines[:most]), min(most, len(lines)), len(lines)
    total = sum(map(len, hits.values()))
    if context:
        total = sum(1 for lines in hits.values() for line in lines if _MATCH.match(line))
    left = most
    blocks: list[str] = []
    for path, lines in hits.items():
        text, count = _block(lines, left, with_context=context > 0)
        if text:
            blocks += (path, text)
        left -= count
        if left == 0:
            break
    return "\n".join(blocks), most - left, total


def _block(hits: Iterable[str], most: int, *, with_context: bool) -> tuple[str, int]:
    """One file's lines up to so many matches, and how many those are; a gap between two stretches is marked."""
    lines: list[str] = []
    count = 0
    last = None
    for hit in hits:
        if not (found := _LINE.fullmatch(hit)):
            continue
        number, sign, text = int(found[1]), found[2], found[3].removesuffix("\r")
        if sign == ":" and count == most:
            break
        if with_context and last is not None and number > last + 1:
            lines.append("    --")
        last = number
        count += sign == ":"
        lines.append(f"{number:6d}{'|' if sign == ':' else '-'}{clip(text, LINE_CHARS)}")
    return "\n".join(lines), count


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
