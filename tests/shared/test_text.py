"""Text from outside: nothing in it acts on a terminal, and what is harmless stays as it is."""

from __future__ import annotations

import json
import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared import text as texts
from deputize.shared.text import clip, safe_cut, terminal_text, valid_json_unicode, visible, visible_block, visible_json
from tests.architecture.sources import ROOT
from tests.hostile.texts import ACTING, HOSTILE, assert_harmless

ANY = st.text(st.characters(codec=None, categories=None))
ACTING_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def acts(char: str) -> bool:
    return unicodedata.category(char) in ACTING_CATEGORIES or unicodedata.bidirectional(char) in DIRECTIONS


@given(ANY)
def test_a_line_holds_nothing_that_acts(text: str) -> None:
    assert not any(map(acts, visible(text)))


@given(ANY)
def test_a_block_keeps_its_line_ends_and_tabs_and_nothing_else_that_acts(text: str) -> None:
    shown = visible_block(text)
    assert not any(acts(char) for char in shown if char not in "\n\t")
    assert shown.count("\n") == text.count("\n")


@given(st.recursive(ANY | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(ANY, inner)))
def test_json_means_the_same_and_holds_nothing_that_acts(value: object) -> None:
    shown = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not any(map(acts, shown))


@pytest.mark.parametrize(
    "text",
    [
        "zażółć → ✓ 日本語",
        "👩\u200d👩\u200d👧 ❤️",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "שלום",
        "e\u0301",
        "1\ufe0f\u20e3 葛\U000e0100 \u182d\u180b 한글 ⠓",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == visible_block(text) == visible_json(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x9b\u202e\u2066", r"\x9b\u202e\u2066"),
        ("a\u200db", r"a\u200db"),
        ("\U000e0041\udcff", r"\U000e0041\udcff"),
        ("a\u3164b\u2800c\u115f\u1160\uffa0", r"a\u3164b\u2800c\u115f\u1160\uffa0"),
        ("r\u034fm\ufe0f 1\ufe0f2", r"r\u034fm\ufe0f 1\ufe0f2"),
        ("é\u034f\u17b4\U0001d173\U000e0fff\ufff0", r"é\u034f\u17b4\U0001d173\U000e0fff\ufff0"),
    ],
)
def test_an_escape_names_the_character(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_the_page_escapes_the_same_characters() -> None:
    script = (ROOT / "orchestrator/web/text.js").read_text("utf-8")
    for name, ours in (("HIDDEN", texts.HIDDEN), ("JOINER", texts.JOINER)):
        value = re.search(rf"const {name} = (.*?);\n", script, re.DOTALL)
        assert value
        theirs = "".join(json.loads(part) for part in re.findall(r'"[^"]*"', value[1]))
        as_python = re.sub(r"\\u\{(\w+)\}", lambda found: rf"\U{int(found[1], 16):08x}", theirs)
        mine, its = (re.compile(f"[{each}]" if name == "HIDDEN" else each) for each in (ours, as_python))
        every = [chr(code) for code in range(0x110000)]
        assert [char for char in every if bool(mine.search(char)) != bool(its.search(char))] == []


def test_the_hostile_texts_of_the_tests_are_hostile() -> None:
    for text in (ACTING, HOSTILE):
        with pytest.raises(AssertionError):
            assert_harmless(text)
    with pytest.raises(AssertionError):
        assert_harmless(visible_block(HOSTILE))
    assert_harmless(visible(HOSTILE))
    assert visible_block("a\r\nb") == "a\nb"


@pytest.mark.parametrize(
    ("text", "at", "before", "after"),
    [
        ("abc", 2, 2, 2),
        ("abc", -1, 0, 0),
        ("abc", 9, 3, 3),
        ("ae\u0301b", 2, 1, 3),
        ("e\u0301", 1, 0, 2),
        ("e" + "\u0301" * 200, 100, 100, 100),
    ],
)
def test_a_cut_moves_to_the_edge_of_a_character_unless_it_is_far(text: str, at: int, before: int, after: int) -> None:
    assert (safe_cut(text, at), safe_cut(text, at, forwards=True)) == (before, after)


def test_a_cut_is_marked_where_there_is_room_for_it() -> None:
    assert clip("x" * 200, 100) == "x" * 64 + "… [cut: 200 characters, 100 allowed]"
    assert [clip("abcdef", room) for room in (6, 3, 1, 0)] == ["abcdef", "ab…", "…", ""]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb'"plain"', "plain"),
        (b'"\xff"', "\ufffd"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\uD83D\uDE00 \udc00"', "\U0001f600 \ufffd"),
        (rb'"\\ud83d"', "\\ud83d"),
    ],
)
def test_json_with_half_a_surrogate_pair_is_mended(text: bytes, read: str) -> None:
    assert json.loads(valid_json_unicode(text)) == read


BARS = "".join(f"a {n}\nb {n}\nc {n}\n\x1b[3A" for n in range(4)) + "\x1b[3Bdone\n"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (BARS, "a 3\nb 3\nc 3\ndone\n"),
        ("one\ntwo\n\x1b[1A\x1b[2Knew\n", "one\nnew\n"),
        ("one\ntwo\n\x1b[2F\x1b[Jnew\n", "new\n"),
        ("\x1b[31mred\x1b[0m\nlonger\x1b[9Ashort\n", "short\nlonger"),
        ("one\n\x1b[A\x1b[3Ebelow", "one\n\n\nbelow"),
        ("no move \x1b[2J up", "no move  up"),
        ("50%\r100%\n\x1b[1Aover\n", "over\n"),
    ],
)
def test_what_a_program_overwrites_above_is_its_last_state(output: str, text: str) -> None:
    assert terminal_text(output) == text


@pytest.mark.parametrize("output", ["\x1b[A" + "\x1b[999B" * 20_000, "x" * 100_000 + "\x1b[A" + "y\x1b[A" * 20_000])
def test_moves_of_the_cursor_take_neither_more_room_nor_more_time_than_the_output(output: str) -> None:
    before = time.thread_time()
    assert len(terminal_text(output)) <= len(output) + 1000
    assert time.thread_time() - before < 2


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("abc\x1b[2Kd", "   d"), ("abc\x1b[2Kd\rX", "X  d"), ("abc\x1b[2Kd\r\x1b[Ke", "e"), ("abcd\b\b\x1b[KX", "abX")],
)
def test_what_is_written_after_an_erasure_stands_at_its_place(printed: str, shown: str) -> None:
    assert terminal_text(printed) == shown
