"""Text files as bytes and back: nothing is lost, and lines are numbered and un-numbered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.shared.errors import ToolError
from deputize.worker.text.textfile import decode, number_lines, strip_line_numbers

contents = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(str.encode),
    st.text(max_size=100).map(lambda text: ("\ufeff" + text).encode()),
    st.text(max_size=100).map(lambda text: ("\ufeff" + text).encode("utf-16-le")),
    st.text(max_size=100).map(lambda text: ("\ufeff" + text).encode("utf-16-be")),
)
lines = st.lists(st.text(alphabet="ab1| \t", max_size=8), min_size=1, max_size=8)


@given(contents)
def test_what_is_text_comes_back_byte_for_byte(data: bytes) -> None:
    try:
        file = decode(data, "a.txt")
    except ToolError:
        return
    assert file.to_bytes(file.text) == data
    file.readable.encode()


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=200))
def test_all_that_is_utf8_is_text(text: str) -> None:
    assert decode(text.encode(), "a.txt").text == text.removeprefix("\ufeff")


def test_an_old_encoding_is_text_with_bytes_that_cannot_be_read() -> None:
    data = "Fünf Gänse im Garten, größer als Käse\n".encode("latin-1")
    file = decode(data, "a.txt")
    assert file.readable.count("\ufffd") == 5
    assert file.to_bytes(file.text.replace("Garten", "Haus")) == data.replace(b"Garten", b"Haus")


@pytest.mark.parametrize(("text", "newline"), [("", "\n"), ("a\r\nb\r\nc\n", "\r\n"), ("a\r\nb\n", "\n"), ("a", "\n")])
def test_the_line_end_is_that_of_most_lines(text: str, newline: str) -> None:
    assert decode(text.encode(), "a.txt").newline == newline


@given(lines, st.integers(1, 2_000_000))
def test_numbers_come_off_as_they_went_on(given_lines: list[str], first: int) -> None:
    assert strip_line_numbers(number_lines(given_lines, first), only_ours=True) == "\n".join(given_lines)
    assert strip_line_numbers(number_lines(given_lines, first) + "\n") == "\n".join(given_lines) + "\n"


@pytest.mark.parametrize(
    "text", ["plain", "     1|a\nb", "     1|a\n     3|b", "", "\n", "12 apples", "-1|x", "     1|a\n\n     2|b"]
)
def test_what_is_not_numbered_throughout_is_left_alone(text: str) -> None:
    assert strip_line_numbers(text) is None


@pytest.mark.parametrize("text", ["1|a\n2|b", "1: a\n2: b", "1- a\n2- b", "12\tx"])
def test_other_forms_of_numbers_are_not_taken_for_ours(text: str) -> None:
    assert strip_line_numbers(text) is not None
    assert strip_line_numbers(text, only_ours=True) is None
