"""Many patterns are searched for at once, and what the engine cannot read counts as found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.masking import search_for_any, search_for_pattern

LITERALS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), max_size=6)


@given(LITERALS, st.text(st.characters(codec="utf-8"), max_size=40), st.booleans())
def test_it_finds_what_python_finds(literals: list[str], text: str, within: bool) -> None:
    text = text + "".join(literals[:1]) + text if within else text
    assert search_for_any(literals)(text) == any(literal in text for literal in literals)


@pytest.mark.parametrize("literal", [r"a.b", r"[x]", "(", "\\", "a|b", "$", "\n", "\0", "é", "#", " ", "<>"])
def test_a_literal_is_no_expression(literal: str) -> None:
    assert search_for_any([literal])(f"-{literal}-")
    assert not search_for_any([literal])("axb")


def test_half_characters_count_as_found_and_may_be_searched_for() -> None:
    assert search_for_pattern("abc")("é\ud800")
    assert not search_for_pattern("abc")("é")
    assert search_for_any(["\ud800x", "y"])("\ud800x")
    assert not search_for_any(["\ud800x", "y"])("abc")


def test_more_than_the_engine_holds_is_found_all_the_same() -> None:
    many = [f"{number:x}" * 400 for number in range(300)]
    search = search_for_any(many)
    assert search(f"x{many[17]}x")
    assert not search("none of them")
