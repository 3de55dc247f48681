"""What a command printed, as the model reads it."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputize.worker.text.printed import shown_text

NOISE = random.Random(1).randbytes(300)
ELF = b"\x7fELF" + NOISE
JAPANESE = "日本語のテキスト です\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"plain\ntext\n", "plain\ntext\n"),
        (b"a\0b\0c\n", "a\u2400b\u2400c\n"),
        (b"bell\a and \x1b[31mred\x1b[0m", "bell\a and \x1b[31mred\x1b[0m"),
        ("café\n".encode("latin-1"), "caf\ufffd\n"),
        (ELF, "[304 bytes of an ELF program or library are not shown]"),
        (b"before\n" + ELF + b"\nafter\n", "before\n[304 bytes of an ELF program or library are not shown]\nafter\n"),
        (ELF + b"\ntext\n" + NOISE, "[610 bytes of an ELF program or library are not shown]"),
        (
            JAPANESE.encode("cp932") * 2,
            JAPANESE * 2 + "[the lines above were printed in another encoding: probably Shift_JIS encoding]\n",
        ),
        (
            "\ufeffone line\n".encode("utf-16-le"),
            "one line\n[the lines above were printed in another encoding: UTF-16 encoding]",
        ),
        (ELF[:2] + b"\0\1\2\n" * 100_001, "[400006 bytes of binary data are not shown]"),
    ],
)
def test_binary_data_is_summed_up_and_text_is_shown(data: bytes, text: str) -> None:
    assert shown_text(data) == text


def test_texts_between_binary_data_are_shown_where_they_are_the_greater_part() -> None:
    packed = gzip.compress(NOISE)
    lines = b"a line of words\n" * 99
    kind = "of a gzip archive are not shown]"
    shown = shown_text(packed + b"\n" + lines + packed).split("\n")
    assert shown[0] == f"[{len(packed)} bytes {kind}"
    assert shown[1:-1] == ["a line of words"] * 99
    assert shown[-1] == f"[{len(packed)} bytes {kind}"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=300))
def test_text_is_shown_as_it_is(text: str) -> None:
    assert shown_text(text.encode()) == text


@given(st.binary(max_size=400))
def test_whatever_is_printed_has_no_nul_and_can_be_sent(data: bytes) -> None:
    assert "\0" not in shown_text(data)
    shown_text(data).encode()
