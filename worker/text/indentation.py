"""The same lines with another, but constantly other, indentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, permutations

from worker.text.folding import LINE_ENDS, Folded
from worker.text.spans import Span, line_end, with_line_ends
from worker.text.textfile import TextFile

MAX_PLACES = 1000
"""Places counted of a text that is not unique."""
Rule = Callable[[str], str | None]
"""An indentation as the model wrote it in, the file's out; None where the rule says nothing of it."""


def indented(file: TextFile, old: str, new: str, *, every: bool) -> list[Span]:
    """Places where the lines of the old text stand with another indentation; the new lines get it, too.

    ``every`` changes nothing: where indentation differs, one place only is replaced.
    """
    folded = Folded(file.text, LINE_ENDS)
    wanted, fresh = (text.replace("\r\n", "\n").split("\n") for text in (old, new))
    closed = len(wanted) > 1 and not wanted[-1]
    if closed:
        wanted = wanted[:-1]
    bare = [line.strip(" \t") for line in wanted]
    if not any(bare):
        return []
    lines = folded.text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    spans: list[Span] = []
    for at in _runs([line.strip(" \t") for line in lines], bare):
        end = starts[at + len(wanted)] - (not closed)
        shifted = _shifted(wanted, lines[at : at + len(wanted)], fresh)
        if shifted is not None and end <= len(folded.text):
            start, end = folded.origin(starts[at]), folded.origin(end)
            spans.append(Span(start, end, with_line_ends("\n".join(shifted), line_end(file, start, end))))
    return spans


def rule_of(pairs: Sequence[tuple[str, str]]) -> Rule | None:
    """The one rule that leads from the first to the second indentation of each pair: deeper, less deep, other units."""
    fitting = (rule for rule in _rules(*pairs[0]) if all(rule(mine) == theirs for mine, theirs in pairs))
    return next(fitting, None)


def moved(lines: Iterable[str], rule: Rule) -> list[str] | None:
    """The lines indented as the rule says, or None where it says nothing of one of them. Blank ones stay."""
    done: list[str] = []
    for line in lines:
        indent = indent_of(line)
        theirs = rule(indent) if line.strip(" \t") else indent
        if theirs is None:
            return None
        done.append(theirs + line[len(indent) :])
    return done


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _runs(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted lines stand one after the other."""
    size, rarest = len(wanted), max(range(len(wanted)), key=lambda at: len(wanted[at]))
    found = [at - rarest for at, line in enumerate(lines) if line == wanted[rarest]]
    return [at for at in found[:MAX_PLACES] if at >= 0 and list(lines[at : at + size]) == list(wanted)]


def _shifted(wanted: Sequence[str], found: Sequence[str], fresh: Sequence[str]) -> list[str] | None:
    """The new lines indented as the file is, or None where no one rule leads from the wanted to the found lines."""
    pairs = [(indent_of(a), indent_of(b)) for a, b in zip(wanted, found, strict=True) if a.strip(" \t")]
    rule = rule_of(pairs)
    return moved(fresh, rule) if rule else None


def _rules(mine: str, theirs: str) -> list[Rule]:
    """Deeper, less deep, or in other units: tabs, two, four or eight blanks."""
    rules: list[Rule] = []
    if theirs.endswith(mine):
        rules.append(lambda indent: theirs[: len(theirs) - len(mine)] + indent)
    if mine.endswith(theirs):
        more = mine[: len(mine) - len(theirs)]
        rules.append(lambda indent: indent[len(more) :] if indent.startswith(more) else None)
    units = ("\t", " " * 4, " " * 2, " " * 8)
    return rules + [partial(_in_units, mine, theirs) for mine, theirs in permutations(units, 2)]


def _in_units(mine: str, theirs: str, indent: str) -> str | None:
    """The indentation in other units, or None where it is not made of whole ones."""
    count, rest = divmod(len(indent), len(mine))
    return None if rest or indent != mine * count else theirs * count
