"""Search and replace in a file: exact where possible, tolerant only where the result is certain.

A tolerant match never guesses: only normalized characters or a constant indentation may differ, and there must be one
match. After that, the wording may differ slightly (``fuzzy``). Every part of the old text that the new text keeps stays
as it is in the file, and the report names the differences that were ignored and shows what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ...shared.errors import ErrorType, ToolError
from .diff import compare
from .fuzzy import replace_fuzzy
from .merge import bracket_balance, split_source, split_tokens
from .normalization import (
    BLANK_RUNS,
    LINE_ENDS,
    LOOK_ALIKES,
    TRAILING_BLANKS,
    Normalization,
    NormalizedText,
)
from .rewrite import (
    IndentShift,
    Replacement,
    Rewrite,
    Span,
    is_shallow,
    line_end,
    line_numbers,
    line_start,
    line_stop,
    rewrite,
    shift_between,
    show_lines,
    splice,
    with_line_ends,
)
from .textfile import TextFile

_SEPARATORS = re.compile(r"[,;]+ *")
_WORD = re.compile(r"\w+ +")
_BRACKETS = re.compile(r"[\"'`()\[\]{}]")
_COMMENT = re.compile(r"(?<![ \t])[ \t]++(?://|#|--|/\*).*$")
_BULLET = re.compile(r"[-*+#>] +")
_LONG = 4
"""Characters from which on a repeated text is hardly intended."""
_LONGEST = 400
"""Characters of the line that are searched for in the new text."""
WORDING = "wording"
"""The name of the difference that a fuzzy match ignores."""
MAX_MATCHES = 1000
"""Matches counted of a text that is not unique."""
TextRange = tuple[int, int]
"""Start and end offset in the file's text."""
_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The differences that a search ignores. ``indentation`` compares whole lines, with any constant indentation."""

    normalizations: tuple[Normalization, ...] = ()
    indentation: bool = False

    @property
    def name(self) -> str | None:
        """The ignored differences, for messages; None for an exact search."""
        names = [
            normalization.name
            for normalization in self.normalizations
            if normalization is not TRAILING_BLANKS or self.normalizations == (TRAILING_BLANKS,)
        ]
        return " and ".join([*["indentation"] * self.indentation, *names]) or None

    @property
    def is_literal(self) -> bool:
        """Whether only line ends may differ."""
        return not self.indentation and self.normalizations in ((), (LINE_ENDS,))

    @property
    def is_visible(self) -> bool:
        """Whether differences inside or before lines are ignored, so that the written lines must be shown."""
        return self.indentation or self.normalizations not in ((), (LINE_ENDS,), (TRAILING_BLANKS,))

    def matches(self, text: str, old: str, *, every: bool) -> list[TextRange]:
        """Returns the ranges of all matches; with ``every`` without those that overlap another one."""
        if LOOK_ALIKES in self.normalizations and text.isascii() and old.isascii():
            return []
        if self.indentation:
            return _find_indented(text, old, self.normalizations)
        if self.normalizations:
            return _find_normalized(text, old, self.normalizations, every=every)
        if old.startswith("\n") and "\r\n" in text:
            return []  # it would match the second half of a CRLF
        return [(at, at + len(old)) for at in _find_starts(text, old, every=every)]


TOLERANCES = (
    Tolerance(),
    Tolerance((LINE_ENDS,)),
    Tolerance((TRAILING_BLANKS,)),
    Tolerance(indentation=True),
    Tolerance((LOOK_ALIKES,)),
    Tolerance((TRAILING_BLANKS, BLANK_RUNS)),
    Tolerance((LOOK_ALIKES, TRAILING_BLANKS, BLANK_RUNS)),
    Tolerance((LOOK_ALIKES,), indentation=True),
    Tolerance((TRAILING_BLANKS, BLANK_RUNS), indentation=True),
    Tolerance((LOOK_ALIKES, TRAILING_BLANKS, BLANK_RUNS), indentation=True),
)


def _find_normalized(text: str, old: str, normalizations: Sequence[Normalization], *, every: bool) -> list[TextRange]:
    wanted = NormalizedText(old, *normalizations).text
    literal = LINE_ENDS in normalizations
    if not wanted or (not literal and not wanted.strip()):
        return []
    normalized = NormalizedText(text, *normalizations)
    cut_short = old[-1:] in (" ", "\t") and not literal
    opens = wanted[0] == "\n" and old[0] in (" ", "\t")  # matches a line of blanks, but not the end of another line
    return [
        (normalized.original_offset(at), normalized.original_offset(at + len(wanted)))
        for at in _find_starts(normalized.text, wanted, every=every)
        if not (opens and normalized.text[at - 1 : at] not in ("", "\n"))
        and not (cut_short and normalized.text[at + len(wanted) :][:1] not in ("", "\n"))
        and not (normalized.splits(at) or normalized.splits(at + len(wanted)))
    ]


def _find_indented(text: str, old: str, normalizations: Sequence[Normalization]) -> list[TextRange]:
    """Returns the ranges that have the lines of the old text, with a constant shift of the indentation."""
    wanted = _stripped_lines(old, normalizations)
    closed = len(wanted) > 1 and not old.endswith((" ", "\t")) and not wanted[-1]
    if closed:
        wanted = wanted[:-1]
    if not any(wanted):
        return []
    raw = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in raw)]
    quoted = split_source(old)
    matches: list[TextRange] = []
    for at in _find_sequences(_stripped_lines(text, normalizations), wanted):
        end = starts[at + len(wanted)] - (0 if closed else 2 if raw[at + len(wanted) - 1].endswith("\r") else 1)
        if end > len(text):
            continue
        found = split_source(text[starts[at] : end])
        if len(found) == len(quoted) and shift_between(quoted, found):
            matches.append((starts[at], end))
    return matches


def _stripped_lines(text: str, normalizations: Sequence[Normalization]) -> list[str]:
    return [line.strip(_BLANK) for line in NormalizedText(text, *normalizations).text.split("\n")]


def _find_sequences(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Returns the indexes at which the wanted lines occur consecutively."""
    size, rarest = len(wanted), max(range(len(wanted)), key=lambda at: len(wanted[at]))
    found = [at - rarest for at, line in enumerate(lines) if line == wanted[rarest]]
    return [at for at in found[:MAX_MATCHES] if at >= 0 and list(lines[at : at + size]) == list(wanted)]


def _find_starts(text: str, wanted: str, *, every: bool) -> list[int]:
    """Returns the offsets of all occurrences. Unless ``every``, they may overlap: "aa" occurs twice in "aaa"."""
    matches: list[int] = []
    at = text.find(wanted)
    while at >= 0 and (every or len(matches) < MAX_MATCHES):
        matches.append(at)
        at = text.find(wanted, at + (len(wanted) if every else 1))
    return matches


def trim_repeated(text: str, span: Span, old: str) -> Span:
    """Returns the span without the text that its line already contains beside it.

    A model that quotes a part of a line often writes the new line whole: with its separator, bracket, keyword or
    indentation. Such text is written once, unless the quoted text had it, too, or brackets and quotes are balanced
    only if it is written twice.
    """
    if not span.text.strip():
        return span
    old = old.rstrip(" \t")
    start, end = line_start(text, span.start), line_stop(text, span.end)
    before, after = text[start : span.start], text[span.end : end]
    if not before.strip(" \t"):
        span = _trim_indentation(span, before, old)
    else:
        span = _trim_start(text, span, before, old)
    return _trim_end(text, span, after, old)


def _is_indentation_doubtful(text: str, span: Span) -> bool:
    """Whether the lines after the first new one seem to lack the indentation of the line that the span is in."""
    before = text[line_start(text, span.start) : span.start]
    if before.strip(" \t") or not before or span.text[:1] in (" ", "\t"):
        return False
    return is_shallow(before, split_source(span.text))


def _trim_indentation(span: Span, indent: str, old: str) -> Span:
    """Removes the first line's indentation, which is before the span; if one line was quoted, shifts the others."""
    mine = span.text[: len(span.text) - len(span.text.lstrip(" \t"))]
    if not indent or not mine or old[:1] in (" ", "\t"):
        return span
    first, *others = span.text[len(mine) :].split("\n")
    if "\n" not in old.rstrip("\n"):
        shift = IndentShift(mine, indent)
        for at, line in enumerate(others):
            text = line.lstrip(" \t")
            deeper = shift(line[: len(line) - len(text)])
            if text.strip() and deeper is None:
                return span
            others[at] = (deeper or "") + text if text.strip() else line
    return Span(span.start, span.end, "\n".join([first, *others]))


def _trim_start(text: str, span: Span, before: str, old: str) -> Span:
    for length in range(min(len(before), len(span.text), _LONGEST), 0, -1):
        part = before[-length:]
        # no word is split at either end
        starts, ends = before[-length - 1 : -length].isalnum(), part[-1].isalnum()
        apart = not (starts and part[0].isalnum()) and not (ends and old[:1].isalnum())
        if apart and span.text.startswith(part) and not old.startswith(part):
            whole = part.strip() == before.strip() and (len(part) >= _LONG or _BULLET.fullmatch(part) is not None)
            shorter = Span(span.start, span.end, span.text[length:])
            if _counts_once(text, span, shorter, part, sure=whole or _WORD.fullmatch(part) is not None):
                return shorter
    return span


def _trim_end(text: str, span: Span, after: str, old: str) -> Span:
    for length in range(min(len(after.rstrip()), len(span.text), _LONGEST), 0, -1):
        part = after[:length]
        if span.text.endswith(part) and not old.endswith(part) and not part[0].isalnum():
            whole = part == after.rstrip() and (len(part) >= _LONG or not re.search(r"\w", part))
            shorter = Span(span.start, span.end, span.text[:-length])
            if _counts_once(text, span, shorter, part, sure=whole or _SEPARATORS.fullmatch(part) is not None):
                return shorter
    return _trim_before_comment(text, span, after.rstrip(), old)


def _trim_before_comment(text: str, span: Span, rest: str, old: str) -> Span:
    """If the new line ends in a comment, and its code with the rest of the file's line, replaces that rest, too."""
    code = _COMMENT.sub("", span.text.rpartition("\n")[2])
    if not rest or code == span.text.rpartition("\n")[2] or re.search(r"\w", rest):
        return span
    if not code.endswith(rest) or old.endswith(rest):
        return span
    whole = Span(span.start, span.end + len(rest), span.text)
    was, once = (bracket_balance(line) for line in _lines(text, whole))
    return whole if was == once else span


def _counts_once(text: str, doubled: Span, single: Span, part: str, *, sure: bool) -> bool:
    """Whether the repeated part is meant once. A part with brackets or quotes is, if only that keeps their balance."""
    if not _BRACKETS.search(part):
        return sure
    was, twice, once = (bracket_balance(line) for line in _lines(text, doubled, single))
    return twice != was and once == was


def _lines(text: str, *spans: Span) -> Iterator[str]:
    """The lines of the place: as they are, and with each of the new texts."""
    start, end = line_start(text, spans[0].start), line_stop(text, max(span.end for span in spans))
    yield text[start:end]
    for span in spans:
        yield text[start : span.start] + span.text + text[span.end : end]


def replace(file: TextFile, old: str, new: str, *, every: bool) -> Replacement | None:
    """Replaces ``old`` by ``new`` in the file's text; returns None if the old text is not found.

    With ``every`` all matches are replaced: tolerant ones must then be equal to each other, and there is no fuzzy one.

    Raises:
        ToolError: EDIT_AMBIGUOUS for several matches, EDIT_NOT_FOUND if the edit would lose text in which the file
            differs from the old text.
    """
    for tolerance in TOLERANCES:
        if matches := tolerance.matches(file.text, old, every=every):
            if every and not tolerance.is_literal and len(matches) < MAX_MATCHES:
                matches = tolerance.matches(file.text, old, every=False)
            _refuse_ambiguity(file.text, matches, tolerance, every=every)
            return _replacement(file, matches, old, new, tolerance, literally=every)
    found = None if every else replace_fuzzy(file, old, new)
    if found is None:
        return None
    spans = [trim_repeated(file.text, found.span, old)]
    lines, shown = line_numbers(file.text, spans), show_lines(file.text, spans)
    return Replacement(
        splice(file.text, spans), lines, WORDING, found.remark, found.moved, spans != [found.span], written=shown
    )


def find_lines(file: TextFile, text: str) -> tuple[int, ...]:
    """Returns the numbers of the lines in which the text begins, found as by ``replace`` but without fuzzy matches."""
    for tolerance in TOLERANCES:
        if text and (matches := tolerance.matches(file.text, text, every=False)):
            return line_numbers(file.text, [Span(start, end, "") for start, end in matches])
    return ()


def _replacement(
    file: TextFile, matches: Sequence[TextRange], old: str, new: str, tolerance: Tolerance, *, literally: bool
) -> Replacement | None:
    spans: list[Span] = []
    moved = False
    for start, end in matches:
        done = _rewrite(file, (start, end), old, new, tolerance)
        if done is None:
            return None
        spans.append(Span(start, end, done.text))
        moved |= done.moved
    joins = spans if literally else [trim_repeated(file.text, span, old) for span in spans]
    is_visible = (
        tolerance.is_visible or joins != spans or (not literally and _is_indentation_doubtful(file.text, spans[0]))
    )
    return Replacement(
        splice(file.text, joins),
        line_numbers(file.text, spans),
        tolerance.name,
        moved=moved,
        written=show_lines(file.text, joins) if is_visible else "",
        repeated=joins != spans,
    )


def _rewrite(file: TextFile, place: TextRange, old: str, new: str, tolerance: Tolerance) -> Rewrite | None:
    """Returns what is written in one place; None if its indentation is not certain."""
    start, end = place
    style = line_end(file, start, end)
    if tolerance.name is None:
        return Rewrite(with_line_ends(new, style))
    if not tolerance.is_visible:
        return Rewrite(_keep_blanks(file.text[start:end], old, new, style, tolerance.normalizations))
    return rewrite(file, place, old, new)


def _refuse_ambiguity(text: str, matches: Sequence[TextRange], tolerance: Tolerance, *, every: bool) -> None:
    """Raises ToolError(EDIT_AMBIGUOUS) if there are several matches and not all of them are to be replaced."""
    apart = all(end <= start for (_, end), (start, _) in pairwise(matches))
    same = apart and len({text[start:end] for start, end in matches}) == 1
    if len(matches) == 1 or (every and (same or tolerance.is_literal)):
        return
    lines = line_numbers(text, [Span(start, end, "") for start, end in matches])
    shown = ", ".join(map(str, lines[:20])) + (", …" if len(lines) > 20 else "")
    count = f"{len(matches)}{' or more' * (len(matches) == MAX_MATCHES)}"
    but = "" if tolerance.name is None else f" (except for differences in {tolerance.name})"
    everywhere = ", or set replace_all=true to replace all of them" if same or tolerance.is_literal else ""
    raise ToolError(
        ErrorType.EDIT_AMBIGUOUS,
        f"old_string occurs {count} times{but}, on lines {shown}. "
        f"Nothing was changed. Add lines around it until it is unique{everywhere}.",
    )


def _keep_blanks(found: str, old: str, new: str, style: str, normalizations: Sequence[Normalization]) -> str:
    """Returns the new text; its tokens that the old text has, too, are as in the file, with the blanks between them."""
    normalized = NormalizedText(found, *normalizations)
    base, mine = split_tokens(NormalizedText(old, *normalizations).text), split_tokens(new.replace("\r\n", "\n"))
    starts = [normalized.original_offset(at) for at in accumulate(map(len, base), initial=0)]
    return "".join(
        found[starts[block.old.start] : starts[block.old.stop]]
        if block.same
        else with_line_ends("".join(mine[block.new.start : block.new.stop]), style)
        for block in compare(base, mine)
    )
