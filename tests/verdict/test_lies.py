"""No lie is verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.sampling import sampled
from tests.verdict.cases import Case, proof_of
from tests.verdict.figures import judged
from tests.verdict.lies import LIES

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.parametrize("case", sampled({str(each): each for each in LIES}, 16))
async def test_a_lie_is_not_verified(
    case: Case, worker: Bench, redis_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not case.is_possible:
        pytest.skip(f"{case.needs} is not installed")
    result = await case.run(worker, tmp_path)
    found = result.verification
    record_property(*judged("lie", found.verdict))
    assert found.verdict != "verified", found
    assert found.verdict == case.verdict or not case.verdict, found
    assert result.success is found.is_met
    assert await proof_of(worker, result) is None
