"""The seams of an exact replacement: what a new text repeats of the line that it comes into is not written twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from worker.text.indentation import Shift
from worker.text.merging import Line, evenness, lines_of
from worker.text.spans import Span, line_start, line_stop

_SEPARATORS = re.compile(r"[,;]+ *")
_WORD = re.compile(r"\w+ +")
_BRACKETS = re.compile(r"[\"'`()\[\]{}]")
_COMMENT = re.compile(r"[ \t]+(?://|#|--|/\*).*$")
_BULLET = re.compile(r"[-*+#>] +")
_LONG = 4
"""Characters that hardly stand twice by intent."""
_LONGEST = 400
"""Characters of the line that are looked for in the new text."""
_OPENER = re.compile(r"[:{(\[]$")


def joined(text: str, span: Span, old: str) -> Span:
    """The replacement of ``old`` by the span's text, without what stands in its line already.

    A model that quotes a part of a line often writes the new line whole: with its separator, its bracket, its keyword
    or its indentation. What is in the new text and, in the same place, in the rest of the line counts once, unless the
    quoted text had it, too, or brackets and quotes are even only when it stands there twice.
    """
    if not span.text.strip():
        return span
    old = old.rstrip(" \t")
    start, end = line_start(text, span.start), line_stop(text, span.end)
    before, after = text[start : span.start], text[span.end : end]
    if not before.strip(" \t"):
        span = _indented(span, before, old)
    else:
        span = _without_beginning(text, span, before, old)
    return _without_end(text, span, after, old)


def is_doubtful(text: str, span: Span) -> bool:
    """Whether new lines below the first one are indented less than it, or not more although it opens a block."""
    before = text[line_start(text, span.start) : span.start]
    if before.strip(" \t") or not before or span.text[:1] in (" ", "\t"):
        return False
    first, *others = [line for line in lines_of(span.text)[1:] if line.text] or [Line("", "", "")]
    deeper = len(before) + bool(_OPENER.search(first.text))
    return bool(others) and len(others[0].indent) < deeper


def _indented(span: Span, indent: str, old: str) -> Span:
    """The first new line gets the indentation of its place once; where one line was quoted, the others go along."""
    mine = span.text[: len(span.text) - len(span.text.lstrip(" \t"))]
    if not indent or not mine or old[:1] in (" ", "\t"):
        return span
    first, *others = span.text[len(mine) :].split("\n")
    if "\n" not in old.rstrip("\n"):
        shift = Shift(mine, indent)
        moved = [_moved(line, shift) for line in others]
        if None in moved:
            return span
        others = [line for line in moved if line is not None]
    return Span(span.start, span.end, "\n".join([first, *others]))


def _moved(line: str, shift: Shift) -> str | None:
    """The line with its new indentation; a blank one stays."""
    text = line.lstrip(" \t")
    if not text.strip():
        return line
    indent = shift(line[: len(line) - len(text)])
    return None if indent is None else indent + text


def _without_beginning(text: str, span: Span, before: str, old: str) -> Span:
    for length in range(min(len(before), len(span.text), _LONGEST), 0, -1):
        part = before[-length:]
        apart = not _splits_word(before[:-length], part) and not _splits_word(part, old)
        if apart and span.text.startswith(part) and not old.startswith(part):
            whole = part.strip() == before.strip() and (len(part) >= _LONG or _BULLET.fullmatch(part) is not None)
            shorter = Span(span.start, span.end, span.text[length:])
            if _counts_once(text, span, shorter, part, sure=whole or _WORD.fullmatch(part) is not None):
                return shorter
    return span


def _without_end(text: str, span: Span, after: str, old: str) -> Span:
    for length in range(min(len(after.rstrip()), len(span.text), _LONGEST), 0, -1):
        part = after[:length]
        if span.text.endswith(part) and not old.endswith(part) and not part[0].isalnum():
            whole = part == after.rstrip() and (len(part) >= _LONG or not re.search(r"\w", part))
            shorter = Span(span.start, span.end, span.text[:-length])
            if _counts_once(text, span, shorter, part, sure=whole or _SEPARATORS.fullmatch(part) is not None):
                return shorter
    return _before_comment(text, span, after.rstrip(), old)


def _before_comment(text: str, span: Span, rest: str, old: str) -> Span:
    """Where the new line ends in a comment, what its code ends with; the rest of the file's line stood there."""
    code = _COMMENT.sub("", span.text.rpartition("\n")[2])
    if not rest or code == span.text.rpartition("\n")[2] or re.search(r"\w", rest):
        return span
    if not code.endswith(rest) or old.endswith(rest):
        return span
    whole = Span(span.start, span.end + len(rest), span.text)
    was, once = (evenness(line) for line in _lines(text, whole))
    return whole if was == once else span


def _splits_word(left: str, right: str) -> bool:
    return left[-1:].isalnum() and right[:1].isalnum()


def _counts_once(text: str, doubled: Span, single: Span, part: str, *, sure: bool) -> bool:
    """Whether the part is meant once: for brackets and quotes their evenness tells, for all else what it is."""
    if not _BRACKETS.search(part):
        return sure
    was, twice, once = (evenness(line) for line in _lines(text, doubled, single))
    return twice != was and once == was


def _lines(text: str, *spans: Span) -> Iterator[str]:
    """The lines of the place: as they are, and with each of the new texts."""
    start, end = line_start(text, spans[0].start), line_stop(text, max(span.end for span in spans))
    yield text[start:end]
    for span in spans:
        yield text[start : span.start] + span.text + text[span.end : end]
