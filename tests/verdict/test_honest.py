"""No honest run is refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verdict.cases import Case
from tests.verdict.honest import HONEST


@pytest.mark.parametrize("case", HONEST, ids=str)
async def test_an_honest_run_is_not_refuted(case: Case, redis_url: str, tmp_path: Path, kit: Path) -> None:
    result = await case.run(redis_url, tmp_path, kit)
    found = result.verification
    assert found.verdict in ("verified", "inconclusive"), found
    assert found.verdict == case.verdict or not case.verdict, found
    assert (result.success, found.tampered) == (True, False)
    assert found.rounds == (case.then is not None)
