"""No honest run is refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.verdict.cases import Case
from tests.verdict.honest import HONEST

pytestmark = pytest.mark.asyncio(loop_scope="package")
EVERY = 3
"""Of as many honest runs one is tried by ``make test``; the others take a minute of CPU."""
CASES = [
    pytest.param(case, id=str(case), marks=[pytest.mark.thorough] * bool(at % EVERY)) for at, case in enumerate(HONEST)
]


@pytest.mark.parametrize("case", CASES)
async def test_an_honest_run_is_not_refuted(case: Case, worker: Bench, redis_url: str, tmp_path: Path) -> None:
    if not case.is_possible:
        pytest.skip(f"{case.needs} is not installed")
    result = await case.run(worker, tmp_path)
    found = result.verification
    assert found.verdict in ("verified", "inconclusive"), found
    assert found.verdict == case.verdict or not case.verdict, found
    assert (result.success, found.tampered) == (True, False)
    assert found.rounds == (case.then is not None)
