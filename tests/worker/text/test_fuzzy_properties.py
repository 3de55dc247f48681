"""Similar lines, for any text: against a slow obvious oracle, and that a merge overrules neither side."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.errors import ToolError
from deputize.worker.text.fuzzy import MIN_SIMILARITY, is_short, replace_fuzzy, significant_tokens
from deputize.worker.text.merge import Merge, split_source
from deputize.worker.text.textfile import TextFile

WORDS = ("apple", "banana", "cherry", "in 1 of", "in 2 of", "“quoted”", "a\\b", ";", "x", "long_name_of_something")
lines = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
blank = st.sampled_from(["", "", "", "", "", " "])


def common(first: str, second: str) -> int:
    """The oracle's oracle: characters in common, in order."""
    before = [0] * (len(second) + 1)
    for one in first:
        row = [0]
        for at, other in enumerate(second):
            row.append(before[at] + 1 if one == other else max(before[at + 1], row[at]))
        before = row
    return before[-1]


def oracle(file: Sequence[str], old: Sequence[str]) -> list[tuple[int, float]]:
    """Every place that counts, in numbers of filled lines, and how much it is alike: all tried, nothing left early."""
    found: list[tuple[int, float]] = []
    for first in range(len(file) - len(old) + 1):
        pairs = list(zip(old, file[first : first + len(old)], strict=True))
        sizes = [len(mine) + len(theirs) for mine, theirs in pairs]
        same = [2 * common(mine, theirs) for mine, theirs in pairs]
        if (
            all(each >= 0.75 * size for each, size in zip(same, sizes, strict=True))
            and all(significant_tokens(mine) == significant_tokens(theirs) for mine, theirs in pairs)
            and pairs[0][0][0] == pairs[0][1][0]
            and pairs[-1][0][-1] == pairs[-1][1][-1]
            and sum(same) >= 0.85 * sum(sizes)
        ):
            found.append((first, sum(same) / sum(sizes)))
    return found


@st.composite
def quotes(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Lines of a file, blank ones among them, and a stretch of the others as it is remembered."""
    file = draw(st.lists(st.one_of(lines, lines, lines, blank), min_size=4, max_size=14))
    filled = [line for line in file if line.strip()]
    first = draw(st.integers(0, max(0, len(filled) - 3)))
    old = filled[first : first + draw(st.integers(3, 6))]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(old) - 1)))
        if old and old[at]:
            place = draw(st.integers(0, len(old[at]) - 1))
            old[at] = (old[at][:place] + draw(st.sampled_from(["", "z", "-"])) + old[at][place + 1 :]).strip()
    again = draw(st.sampled_from([[], [], filled[first : first + 7]]))
    return file + again, [line for line in old if line]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(quotes())
def test_the_place_is_the_one_that_the_oracle_finds(quote: tuple[list[str], list[str]]) -> None:
    file, old = quote
    plain = [line.strip().replace("“", '"').replace("”", '"') for line in file if line.strip()]
    wanted = [line.replace("“", '"').replace("”", '"') for line in old]
    numbers = [number for number, line in enumerate(file) if line.strip()]
    if is_short(wanted):
        return
    places = oracle(plain, wanted)
    best = max((score for _, score in places), default=0.0)
    near = [first for first, score in places if score >= min(MIN_SIMILARITY, best - 0.05) - 1e-9]
    try:
        found = replace_fuzzy(TextFile("\n".join(file)), "\n".join(old), "NEW")
    except ToolError:
        assert len(near) > 1
        assert best >= MIN_SIMILARITY
        return
    if best < MIN_SIMILARITY:
        assert found is None
        return
    assert len(near) == 1
    assert found is not None
    start = numbers[near[0]]
    end = numbers[near[0] + len(old) - 1] + 1
    text = "\n".join(file)
    changed = text[: found.span.start] + found.span.text + text[found.span.end :]
    trailing = file[end - 1][len(file[end - 1].rstrip()) :]
    assert changed == "\n".join([*file[:start], "NEW" + trailing, *file[end:]])


@st.composite
def versions(draw: st.DrawFn) -> tuple[str, str]:
    """The same lines, one for one, in two wordings and with different blank lines between them."""
    first = second = ""
    for _ in range(draw(st.integers(1, 6))):
        indent = draw(st.sampled_from(["", "    "]))
        first += indent + draw(lines) + "\n" * draw(st.integers(1, 3))
        second += indent + draw(lines) + draw(st.sampled_from(["\n", "\n\n", " \n", "\r\n"]))
    return first, second


def merged(old: str, found: str, new: str) -> str | None:
    return Merge(split_source(old), split_source(found), split_source(new), "\n").text()


@settings(deadline=None, derandomize=True)
@given(versions(), versions())
def test_no_side_is_overruled_where_only_one_changed_anything(pair: tuple[str, str], other: tuple[str, str]) -> None:
    old, found = pair
    assert merged(old, found, old) == found
    assert merged(old, old, other[0]) == other[0]
    assert merged(old, found, "") == ""


@settings(deadline=None, derandomize=True)
@given(st.lists(st.one_of(lines, blank), max_size=8).map("\n".join), st.sampled_from(["\n", "\r\n", ""]))
def test_lines_are_put_together_again_as_they_were(text: str, end: str) -> None:
    whole = text.replace("\n", end or "\n") + end
    assert "".join(line.whole + line.gap for line in split_source(whole)) == whole
