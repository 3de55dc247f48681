"""Differences of two texts, line by line, and what a whole new content keeps of the old one's form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rapidfuzz.distance import LCSseq

from worker.text.textfile import TextFile, remarks_of

_CONTEXT = 3
_MAX_COMPARED = 5000
"""Lines compared by meaning, in a time that grows with the square; what is larger is compared more simply."""


def kept_form(file: TextFile, content: str) -> tuple[str, list[str]]:
    """The content with the line ends of the file that it replaces, and what was kept of the file's form.

    What comes with CRLF itself is left as it comes.
    """
    text = content.removeprefix("\ufeff") if file.mark else content
    crlf, breaks = file.text.count("\r\n"), file.text.count("\n")
    if not crlf or "\r\n" in text or "\n" not in text:
        return text, remarks_of(file.mark, 0, 0, invalid=False)
    ended = text.replace("\n", "\r\n") if crlf == breaks else _line_by_line(file, text)
    return ended, remarks_of(file.mark, breaks, crlf, invalid=False)


def _line_by_line(file: TextFile, text: str) -> str:
    """Lines that stay keep their ends; others get the one that most lines have."""
    old, new = file.text.split("\n"), text.split("\n")
    ends = [file.newline] * len(new)
    for step in compared([line.removesuffix("\r") for line in old], new):
        if step.same:
            for at, number in zip(step.old, step.new, strict=True):
                if at < len(old) - 1:
                    ends[number] = "\r\n" if old[at].endswith("\r") else "\n"
    ends[-1] = ""
    return "".join(line + end for line, end in zip(new, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Diff:
    text: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of lines: the same in both texts, or gone from the old, or new in the new, or both of these."""

    same: bool
    old: range
    new: range


def unified(before: str, after: str, path: str, *, created: bool = False) -> Diff:
    old, new = _lines(before), _lines(after)
    steps = list(compared(old, new))
    removed = sum(len(step.old) for step in steps if not step.same)
    added = sum(len(step.new) for step in steps if not step.same)
    if not removed and not added:
        return Diff("", 0, 0)
    out = [f"--- {'/dev/null' if created else 'a/' + path}", f"+++ b/{path}"]
    for hunk in _hunks(steps):
        out.append(f"@@ -{_place(hunk[0].old, hunk[-1].old)} +{_place(hunk[0].new, hunk[-1].new)} @@")
        for step in hunk:
            out += [_shown(" " if step.same else "-", old[at]) for at in step.old]
            out += [] if step.same else [_shown("+", new[at]) for at in step.new]
    return Diff("\n".join(out) + "\n", added, removed)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def compared(old: Sequence[str], new: Sequence[str]) -> Iterator[Step]:
    """Both texts from start to end, line by line (or word by word): what is the same, and what is not."""
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    if head:
        yield Step(True, range(head), range(head))
    yield from _middle(old[head:old_end], new[head:new_end], head)
    if tail:
        yield Step(True, range(old_end, len(old)), range(new_end, len(new)))


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    length = min(len(old), len(new))
    return next((at for at in range(length) if old[at] != new[at]), length)


def _middle(old: Sequence[str], new: Sequence[str], start: int) -> Iterator[Step]:
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
        yield Step(same, range(start + first[1], start + last[2]), range(start + first[3], start + last[4]))


def _hunks(steps: Sequence[Step]) -> list[list[Step]]:
    """Changes with the lines around them; those that stand close together in one hunk."""
    hunks: list[list[Step]] = [[]]
    for at, step in enumerate(steps):
        if not step.same:
            hunks[-1].append(step)
            continue
        after = _CONTEXT if at > 0 else 0
        before = _CONTEXT if at < len(steps) - 1 else 0
        if len(step.old) <= after + before:
            hunks[-1].append(step)
            continue
        if after:
            hunks[-1].append(Step(True, step.old[:after], step.new[:after]))
            hunks.append([])
        if before:
            hunks[-1].append(Step(True, step.old[-before:], step.new[-before:]))
    return [hunk for hunk in hunks if hunk]


def _place(first: range, last: range) -> str:
    start, length = first.start, last.stop - first.start
    return f"{start + 1 if length else start}" + (f",{length}" if length != 1 else "")


def _shown(sign: str, line: str) -> str:
    return sign + line[:-1] if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file"
