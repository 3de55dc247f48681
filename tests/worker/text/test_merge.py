"""Two changes of one line, the file's and the model's: what is written is one of them, or both where they lie apart."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.text.replacement import WORDING, Replacement, replace
from deputize.worker.text.textfile import TextFile

ABOVE = "export function configure(options) {\n  const settings = defaults(options)\n  return {\n"
BELOW = "    retries: settings.retries,\n    timeout: settings.timeout,\n  }\n}\n"


def between(line: str) -> str:
    return f"{ABOVE}    {line}\n{BELOW}"


def edited(found: str, old: str, new: str) -> Replacement | None:
    """A line that was quoted among others which stand in the file as they were quoted."""
    return replace(TextFile(between(found)), between(old), between(new), every=False)


def line_of(done: Replacement) -> str:
    return done.text.removeprefix(ABOVE + "    ").removesuffix("\n" + BELOW)


@pytest.mark.parametrize(
    ("found", "old", "new", "after"),
    [
        # what the new line brings itself is not added again: separators, quotes, brackets, keywords
        ("enableFeature: true,", "enableFeature: true", "enableFeature: false,", "enableFeature: false,"),
        ("mode: 'strict',", "mode: strict,", "mode: 'loose',", "mode: 'loose',"),
        ('mode: "strict",', "mode: 'strict',", 'mode: "loose",', 'mode: "loose",'),
        ("name: `x-${id}`,", "name: x-${id},", "name: `y-${id}`,", "name: `y-${id}`,"),
        ("run: wrap(call(settings)),", "run: wrap(call(settings),", "run: wrap(exec(settings)),", None),
        ("const data = await load(url);", "const data = load(url)", "const data = await fetchAll(url);", None),
        ("const data = await load(url);", "const data = load(url)", "const data = (await load(url)).body;", None),
        ("return format(options.name);", "return format(options.name)", "return format(options.title);", None),
        ("return format(options.name);", "return format(options.name)", "return String(format(options.name));", None),
        ("export const limit = options.max;", "const limit = options.max;", "export let limit = options.max;", None),
        ("retry: attempts, // keep", "retry: attempts // keep", "retry: tries, // keep", "retry: tries, // keep"),
        # what the file has elsewhere in the line is kept
        ("const a = await load(url);", "const a = load(url);", "let a = load(url);", "let a = await load(url);"),
        ("const a = await load(url);", "const a = load(url);", "const a = load(uri);", "const a = await load(uri);"),
        ("return form(options.a);", "return form(options.a)", "return draw(options.a)", "return draw(options.a);"),
        ("call('left', it, up)", 'call("left", it, up)', 'call("left", it, down)', "call('left', it, down)"),
        ("const all = load(url);", "const al = load(url);", "let al = load(url);", "let all = load(url);"),
        # a word of which both think otherwise is the model's
        ("result: sum(prices),", "result: sum(price),", "result: sum(goods),", "result: sum(goods),"),
        ("result: sum(prices),", "result: sum(price),", "result: sum(price, tax),", "result: sum(price, tax),"),
    ],
)  # fmt: skip
def test_what_stands_twice_is_written_once(found: str, old: str, new: str, after: str | None) -> None:
    done = edited(found, old, new)
    assert done is not None
    assert done.tolerated == WORDING
    assert line_of(done) == (new if after is None else after)
    assert f"     4|    {line_of(done)}\n" in done.report("a.ts")


@pytest.mark.parametrize(
    ("found", "old", "new"),
    [
        # the new line lacks what only the file has, just where it changes something
        ("enableFeature: true,", "enableFeature: true", "enableFeature: false"),
        ("const data = await load(url);", "const data = load(url);", "const data = fetchAll(url);"),
        ("import { one, two, three } from 'x'", "import { one, two } from 'x'", "import { one, two, four } from 'x'"),
        ("total: int = settings.total", "total = settings.total", "sum = settings.total"),
        ("return compute(settings);", "return compute(settings)", "return compute(settings) // done;"),
        ("call(one, two)", "call(one two)", "call(one two, three)"),
        ("items: list(settings[name]),", "items: list(settings[name),", "items: list(settings[title),"),
    ],
)
def test_what_only_the_file_has_is_never_lost_without_a_word(found: str, old: str, new: str) -> None:
    with pytest.raises(ToolError) as caught:
        edited(found, old, new)
    assert caught.value.type is ErrorType.EDIT_NOT_FOUND
    assert f"line 4 of the file was {found!r}, not {old!r}" in caught.value.message
    assert "Nothing was changed." in caught.value.message


@pytest.mark.parametrize(
    ("found", "old", "new", "after"),
    [
        # a line comes behind one whose end the file has otherwise: the separator is the model's
        (['"a": one', '"last": two'], ['"a": one,', '"last": two'], ['"a": one,', '"more": x,', '"last": two'], 2),
        (['"first": one,', '"last": two'], ['"first": one', '"last": two'], ['"first": one'], None),
        (["if ready:", "    go()"], ["if ready", "    go()"], ["if ready", "    wait()", "    go()"], None),
        # one goes elsewhere, and it is unknown whether with or without its separator
        (["one: first,", "two: last"], ["one: first", "two: last"], ["two: last", "one: first"], None),
        # an open quote or bracket stays with its other half
        (
            ["'''first of all the words", "and the last of them'''"],
            ['"""first of all the words', 'and the last of them"""'],
            ['"""first of all the words', 'and the end of it"""'],
            None,
        ),
    ],
)  # fmt: skip
def test_lines_that_depend_on_each_other_are_written_together(
    found: list[str], old: list[str], new: list[str], after: int | None
) -> None:
    texts = ["\n    ".join(lines) for lines in (found, old, new)]
    if after is None:
        with pytest.raises(ToolError):
            edited(*texts)
        return
    done = edited(*texts)
    assert done is not None
    assert line_of(done) == texts[after]


TOKENS = tuple(re.findall(r"\S+", "alpha beta gamma delta await return const async , ; : . \" ' ` ( ) [ ] { } @ $ ?"))
line = st.lists(st.sampled_from(TOKENS), min_size=6, max_size=14, unique=True)
blanks = st.lists(st.sampled_from(["", " "]), min_size=30, max_size=30)
edits = st.tuples(st.integers(0, 12), st.integers(0, 1), st.lists(st.sampled_from(TOKENS), max_size=2))
places = st.lists(edits, min_size=1, max_size=2)
Edit = tuple[int, int, list[str]]


def written(tokens: list[str], edits: list[Edit], gaps: list[str]) -> str:
    """The tokens after the edits, each with the same blank before it as before; words never touch each other."""
    spaced = list(zip(gaps, tokens, strict=False))
    for at, size, new in sorted(edits, key=lambda edit: -edit[0]):
        spaced[at : at + size] = [(" " * (number == 0), token) for number, token in enumerate(new)]
    text = ""
    for gap, token in spaced:
        text += (gap or " " * (text[-1:].isalpha() and token.isalpha())) + token
    return text.strip()


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text))


def lie_apart(theirs: list[Edit], mine: list[Edit]) -> bool:
    """Whether a token that is in all three versions stands between all edits of both sides.

    A blank may be enough beside a token in the place of which the file has another one.
    """
    pairs = [(one, other) for one in theirs for other in mine if any(one[1:]) and any(other[1:])]
    near = [(a + m - bool(m and put), b, b + n, a + bool(m and put)) for (a, m, put), (b, n, _) in pairs]
    return all(end < first or last < start for end, first, last, start in near)


@settings(deadline=None, max_examples=200)
@given(line, places, places, blanks)
def test_each_line_is_the_files_or_the_models_or_both_where_they_lie_apart(
    tokens: list[str], theirs: list[Edit], mine: list[Edit], gaps: list[str]
) -> None:
    old, found, new = (written(tokens, edits, gaps) for edits in ([], theirs, mine))
    each = [(tokens[at : at + size], put) for at, size, put in [*theirs, *mine] if at + size <= len(tokens)]
    is_plain = len(each) == len([*theirs, *mine]) and not any(set(tokens) & set(put) for _, put in each)
    if not is_plain or not all((old, found, new)) or old in (new, found):
        return
    try:
        done = edited(found, old, new)
    except ToolError:
        return
    if done is None:
        return
    after = line_of(done)
    if after != new:
        assert lie_apart(theirs, mine)
        assert words(after) == words(found) + words(new) - words(old)
    assert all(count <= max(words(found)[each], words(new)[each]) for each, count in words(after).items())
    assert after.strip() in done.report("a.ts")
