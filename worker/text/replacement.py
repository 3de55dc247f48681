"""Replacing one text by another inside a file: exactly where possible, tolerantly only where it is certain.

Tolerance never chooses: what differs must be one of the folds or a constant indentation, and there must be one place.
Only then the wording may differ, and but a little (``fuzzy``). Every part of the old text that the new text keeps is
kept as the file has it, and what was overlooked is always said, together with what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rapidfuzz.distance import Indel

from shared.errors import ErrorType, ToolError
from worker.text.folding import Fold, Folded
from worker.text.fuzzy import nearly
from worker.text.report import Replacement, written
from worker.text.rewriting import Rewritten, rewritten
from worker.text.seams import is_doubtful, joined
from worker.text.searches import MAX_PLACES, TOLERANCES, Place, Tolerance
from worker.text.spans import Span, line_end, line_numbers, spliced, with_line_ends
from worker.text.textfile import TextFile

_MAX_WOVEN = 5000
"""Characters up to which old and new text are compared character by character."""
WORDING = "wording"
"""What is said to be tolerated where the lines are only nearly the same."""


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
