"""Token estimates: what is counted, and that a damaged encoding counts nothing."""

from __future__ import annotations

import pytest

from deputize.shared.tokens import PIECE, _ranks, count, encoding_file


def test_a_text_of_several_pieces_is_counted_as_a_whole() -> None:
    assert count("word " * (PIECE // 5) * 3) == 3 * count("word " * (PIECE // 5))


def test_a_damaged_encoding_is_not_used() -> None:
    with pytest.raises(RuntimeError, match="Install again"):
        _ranks(encoding_file()[:-1])
