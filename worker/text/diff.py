"""Line differences of two texts, unified diffs, and the line ends of a file whose whole content is replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rapidfuzz.distance import LCSseq

from .textfile import TextFile, format_remarks

_CONTEXT = 3
_MAX_COMPARED = 5000
"""Lines up to which the longest common subsequence is computed, which takes quadratic time."""


def preserve_format(file: TextFile, content: str) -> tuple[str, list[str]]:
    """Converts new content to the line ends of the file that it replaces.

    Content that contains CRLF itself is not converted.

    Returns:
        The content, and remarks that name what was preserved: the byte order mark, the line ends.
    """
    text = content.removeprefix("\ufeff") if file.encoding.bom else content
    crlf, breaks = file.text.count("\r\n"), file.text.count("\n")
    if not crlf or "\r\n" in text or "\n" not in text:
        return text, format_remarks(file.encoding, 0, 0, invalid=False)
    ended = text.replace("\n", "\r\n") if crlf == breaks else _line_ends_by_line(file, text)
    return ended, format_remarks(file.encoding, breaks, crlf, invalid=False)


def _line_ends_by_line(file: TextFile, text: str) -> str:
    """Unchanged lines keep their line ends; new ones get that of most lines of the file."""
    old, new = file.text.split("\n"), text.split("\n")
    ends = [file.newline] * len(new)
    for block in compare([line.removesuffix("\r") for line in old], new):
        if block.same:
            for at, number in zip(block.old, block.new, strict=True):
                if at < len(old) - 1:
                    ends[number] = "\r\n" if old[at].endswith("\r") else "\n"
    ends[-1] = ""
    return "".join(line + end for line, end in zip(new, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff, and how many lines it adds and removes."""

    text: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """Consecutive lines that are the same in both texts, or that were removed, inserted or replaced."""

    same: bool
    old: range
    new: range


def unified_diff(before: str, after: str, path: str, *, created: bool = False) -> Diff:
    """Returns the unified diff of two texts, with three lines of context; its text is empty where they are equal.

    ``created``: the header names ``/dev/null`` as the old file.
    """
    old, new = _lines(before), _lines(after)
    blocks = list(compare(old, new))
    removed = sum(len(block.old) for block in blocks if not block.same)
    added = sum(len(block.new) for block in blocks if not block.same)
    if not removed and not added:
        return Diff("", 0, 0)
    out = [f"--- {'/dev/null' if created else 'a/' + path}", f"+++ b/{path}"]
    for hunk in _hunks(blocks):
        out.append(f"@@ -{_hunk_range(hunk[0].old, hunk[-1].old)} +{_hunk_range(hunk[0].new, hunk[-1].new)} @@")
        for block in hunk:
            out += [_diff_line(" " if block.same else "-", old[at]) for at in block.old]
            out += [] if block.same else [_diff_line("+", new[at]) for at in block.new]
    return Diff("\n".join(out) + "\n", added, removed)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def compare(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffBlock]:
    """Yields blocks that cover both sequences, of lines or of words, from start to end."""
    head = _common_prefix(old, new)
    tail = _common_prefix(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    if head:
        yield DiffBlock(True, range(head), range(head))
    yield from _compare_middle(old[head:old_end], new[head:new_end], head)
    if tail:
        yield DiffBlock(True, range(old_end, len(old)), range(new_end, len(new)))


def _common_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    length = min(len(old), len(new))
    return next((at for at in range(length) if old[at] != new[at]), length)


def _compare_middle(old: Sequence[str], new: Sequence[str], start: int) -> Iterator[DiffBlock]:
    if len(old) <= _MAX_COMPARED and len(new) <= _MAX_COMPARED:
        codes = LCSseq.opcodes(old, new)
        pieces = [(code.tag == "equal", code.src_start, code.src_end, code.dest_start, code.dest_end) for code in codes]
    elif len(old) == len(new):
        pieces = [(old[at] == new[at], at, at + 1, at, at + 1) for at in range(len(old))]
    else:
        pieces = [(False, 0, len(old), 0, len(new))]
    for same, group in groupby(pieces, key=lambda piece: piece[0]):
        run = list(group)
        first, last = run[0], run[-1]
        yield DiffBlock(same, range(start + first[1], start + last[2]), range(start + first[3], start + last[4]))


def _hunks(blocks: Sequence[DiffBlock]) -> list[list[DiffBlock]]:
    """Groups changes and their context lines; changes near each other share a hunk."""
    hunks: list[list[DiffBlock]] = [[]]
    for at, block in enumerate(blocks):
        if not block.same:
            hunks[-1].append(block)
            continue
        after = _CONTEXT if at > 0 else 0
        before = _CONTEXT if at < len(blocks) - 1 else 0
        if len(block.old) <= after + before:
            hunks[-1].append(block)
            continue
        if after:
            hunks[-1].append(DiffBlock(True, block.old[:after], block.new[:after]))
            hunks.append([])
        if before:
            hunks[-1].append(DiffBlock(True, block.old[-before:], block.new[-before:]))
    return [hunk for hunk in hunks if hunk]


def _hunk_range(first: range, last: range) -> str:
    start, length = first.start, last.stop - first.start
    return f"{start + 1 if length else start}" + (f",{length}" if length != 1 else "")


def _diff_line(sign: str, line: str) -> str:
    return sign + line[:-1] if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file"
