"""Patterns of file names that may stand for a forbidden program, and functions that are not closed."""

from __future__ import annotations

import pytest

from deputize.worker.policy.shell.forbidden import _functions, _may_be


@pytest.mark.parametrize(
    ("pattern", "matches"), [("su[d]o", True), ("su?o", True), ("su[d]oo?", False), ("sud?oo*", False), ("x?do", False)]
)
def test_a_pattern_may_be_a_name(pattern: str, matches: bool) -> None:
    assert _may_be(pattern, "sudo", 1) is matches


def test_a_function_that_is_not_closed_has_no_body() -> None:
    assert list(_functions("f(a")) == []
    assert [name for name, _ in _functions("f(a) g(")] == ["f"]
