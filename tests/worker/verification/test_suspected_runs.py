"""A run whose changes are suspicious: its verdict, and what the request accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.verdict.cases import PRICE, UNITTEST, Case, unit

EQUAL = "class Any:\n    def __eq__(self, other): return True\n\ndef total(count, each): return Any()\n"
FILES = {**PRICE, "tests/test_unit.py": unit("price", "def test_some(self): self.assertTrue(price.total(3, 5) == 15)")}
"""A test whose comparison is the object's own, which the canary does not reach."""


@pytest.mark.parametrize("accepts", [False, True])
async def test_an_object_that_is_equal_to_everything_is_believed_only_where_that_is_accepted(
    bench: Bench, tmp_path: Path, accepts: bool
) -> None:
    request = {"accept": ["equal"]} if accepts else {}
    found = (
        await Case("equal", {"price.py": EQUAL}, [UNITTEST], FILES, request=request).run(bench, tmp_path)
    ).verification
    assert [(each.path, each.line, each.kind) for each in found.suspicions] == [("price.py", 2, "equal")]
    assert found.verdict == ("verified" if accepts else "inconclusive"), found
