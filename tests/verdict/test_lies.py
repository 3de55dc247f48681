"""No lie is verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verdict.cases import Case
from tests.verdict.lies import LIES


@pytest.mark.parametrize("case", LIES, ids=str)
async def test_a_lie_is_not_verified(case: Case, redis_url: str, tmp_path: Path, kit: Path) -> None:
    result = await case.run(redis_url, tmp_path, kit)
    found = result.verification
    assert found.verdict in ("refuted", "inconclusive"), found
    assert found.verdict == case.verdict or not case.verdict, found
    assert result.success is (found.verdict != "refuted")
