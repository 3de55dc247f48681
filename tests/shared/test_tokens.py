"""Token estimates: what is counted, and what happens when the encoder gives up."""

from __future__ import annotations

import pytest

from shared.tokens import PIECE, _ranks, _tokens, count, encoding_file  # pyright: ignore[reportPrivateUsage]


def test_a_text_of_several_pieces_is_counted_as_a_whole() -> None:
    assert count("word " * (PIECE // 5) * 3) == 3 * count("word " * (PIECE // 5))


def test_a_text_at_which_the_encoder_panics_counts_with_its_bytes() -> None:
    assert _tokens(" " * 1_000_000) == 1_000_000


def test_a_mistake_of_the_caller_is_not_taken_for_a_panic() -> None:
    with pytest.raises(TypeError):
        _tokens(7)  # pyright: ignore[reportArgumentType]


def test_a_damaged_encoding_is_not_used() -> None:
    with pytest.raises(RuntimeError, match="Install again"):
        _ranks(encoding_file()[:-1])
