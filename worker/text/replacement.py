"""Replacing one text by another inside a file: exactly where possible, tolerantly only where it is certain.

Tolerance never chooses: what differs must be one of the folds or a constant indentation, and there must be one place.
Only then the wording may differ, and but a little (``fuzzy``). Every part of the old text that the new text keeps is
kept as the file has it, and what was overlooked is always said, together with what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.text.folding import Fold, Folded
from worker.text.fuzzy import nearly
from worker.text.indentation import Shift
from worker.text.merging import Line, evenness, lines_of
from worker.text.rewriting import (
    Replacement,
    Rewritten,
    Span,
    line_end,
    line_numbers,
    line_start,
    line_stop,
    rewritten,
    spliced,
    with_line_ends,
    written,
)
from worker.text.searches import MAX_PLACES, TOLERANCES, Place, Tolerance
from worker.text.textfile import TextFile

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
_MAX_WOVEN = 5000
"""Characters up to which old and new text are compared character by character."""
WORDING = "wording"
"""What is said to be tolerated where the lines are only nearly the same."""


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


def replace(file: TextFile, old: str, new: str, *, every: bool) -> Replacement | None:
    """The replacement, or None where the old text is nowhere.

    ``every`` replaces all places that are the same. Those that only a tolerant search finds must be the same among
    themselves, and their wording must not differ. Raises ToolError: EDIT_AMBIGUOUS where there is more than one way to
    read it, EDIT_NOT_FOUND where the change would lose what the file has otherwise.
    """
    for tolerance in TOLERANCES:
        if places := tolerance.places(file.text, old, every=every):
            if every and not tolerance.is_literal and len(places) < MAX_PLACES:
                places = tolerance.places(file.text, old, every=False)
            _refuse_choice(file.text, places, tolerance, every=every)
            return _replacement(file, places, old, new, tolerance, literally=every)
    found = None if every else nearly(file, old, new)
    if found is None:
        return None
    spans = [joined(file.text, found.span, old)]
    lines, shown = line_numbers(file.text, spans), written(file.text, spans)
    return Replacement(
        spliced(file.text, spans), lines, WORDING, found.remark, found.moved, spans != [found.span], written=shown
    )


def find(file: TextFile, text: str) -> tuple[int, ...]:
    """The lines where the text begins, found the same way but for its wording; empty where it is nowhere."""
    for tolerance in TOLERANCES:
        if text and (places := tolerance.places(file.text, text, every=False)):
            return line_numbers(file.text, [Span(start, end, "") for start, end in places])
    return ()


def _replacement(
    file: TextFile, places: Sequence[Place], old: str, new: str, tolerance: Tolerance, *, literally: bool
) -> Replacement | None:
    rewritten = [_rewritten(file, place, old, new, tolerance) for place in places]
    done = [each for each in rewritten if each]
    if len(done) < len(places):
        return None
    spans = [Span(start, end, each.text) for (start, end), each in zip(places, done, strict=True)]
    joins = spans if literally else [joined(file.text, span, old) for span in spans]
    shows = tolerance.shows or joins != spans or (not literally and is_doubtful(file.text, spans[0]))
    return Replacement(
        spliced(file.text, joins),
        line_numbers(file.text, spans),
        tolerance.name,
        moved=any(each.moved for each in done),
        written=written(file.text, joins) if shows else "",
        repeated=joins != spans,
    )


def _rewritten(file: TextFile, place: Place, old: str, new: str, tolerance: Tolerance) -> Rewritten | None:
    """What comes into one place; None where it cannot be indented as it has to be."""
    start, end = place
    style = line_end(file, start, end)
    if tolerance.name is None:
        return Rewritten(with_line_ends(new, style))
    if not tolerance.shows:
        return Rewritten(_woven(file.text[start:end], old, new.replace("\r\n", "\n"), style, tolerance.folds))
    return rewritten(file, place, old, new)


def _refuse_choice(text: str, places: Sequence[Place], tolerance: Tolerance, *, every: bool) -> None:
    """Raises ToolError(EDIT_AMBIGUOUS) where there is more than one way to read what was asked for."""
    apart = all(end <= start for (_, end), (start, _) in pairwise(places))
    same = apart and len({text[start:end] for start, end in places}) == 1
    if len(places) == 1 or (every and (same or tolerance.is_literal)):
        return
    lines = line_numbers(text, [Span(start, end, "") for start, end in places])
    shown = ", ".join(map(str, lines[:20])) + (", …" if len(lines) > 20 else "")
    count = f"{len(places)}{' or more' * (len(places) == MAX_PLACES)}"
    but = "" if tolerance.name is None else f" (not exactly, but apart from {tolerance.name})"
    everywhere = ", or set replace_all=true to replace all of them" if same or tolerance.is_literal else ""
    raise ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string occurs {count} times{but}, on lines {shown}. "
        f"Nothing was changed. Add lines around it until it is unique{everywhere}.",
    )


def _woven(found: str, old: str, new: str, style: str, folds: Sequence[Fold]) -> str:
    """The new text, in which all that it shares with the old one stays as it stands in the file."""
    folded = Folded(found, *folds)
    parts = [
        found[folded.origin(first) : folded.origin(last)] if same else with_line_ends(new[new_first:new_last], style)
        for same, first, last, new_first, new_last in _shared(Folded(old, *folds).text, new)
    ]
    return "".join(parts)


def _shared(old: str, new: str) -> list[tuple[bool, int, int, int, int]]:
    """Which stretches of old and new are the same."""
    if len(old) <= _MAX_WOVEN and len(new) <= _MAX_WOVEN:
        return [
            (step.tag == "equal", step.src_start, step.src_end, step.dest_start, step.dest_end)
            for step in Indel.opcodes(old, new)
        ]
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    return [
        (True, 0, head, 0, head),
        (False, head, len(old) - tail, head, len(new) - tail),
        (True, len(old) - tail, len(old), len(new) - tail, len(new)),
    ]


def _common(first: str, second: str) -> int:
    length = min(len(first), len(second))
    return next((at for at in range(length) if first[at] != second[at]), length)
