"""Files that say what is expected, with other content of the same form."""

from __future__ import annotations

import pytest

from deputize.worker.verification.expected_files import altered


@pytest.mark.parametrize(
    ("path", "data", "other"),
    [
        ("a.json", b'{"total": 19}', b'{"total": 20}'),
        ("a.expected", b"food: 19\n", b"gppe: 20\n"),
        ("a.yml", b"name: x\n", b"name: x\n"),
        ("a.png", b"\x89PNG", b"\x89PNG"),
    ],
)
def test_other_content_has_the_same_form(path: str, data: bytes, other: bytes) -> None:
    assert altered(path, data) == other
