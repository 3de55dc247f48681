"""No honest run is refuted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.sampling import sampled
from tests.verdict.cases import Case, proof_of
from tests.verdict.figures import judged
from tests.verdict.honest import LISTS

pytestmark = pytest.mark.asyncio(loop_scope="package")


# Of each list, so that ``make test`` tries something of all of them.
@pytest.mark.costly
@pytest.mark.parametrize("case", [each for cases in LISTS for each in sampled({str(case): case for case in cases}, 20)])
async def test_an_honest_run_is_not_refuted(
    case: Case, worker: Bench, redis_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not case.is_possible:
        pytest.skip(f"{case.needs} is not installed")
    result = await case.run(worker, tmp_path)
    found = result.verification
    record_property(*judged("honest", found.verdict))
    assert found.verdict != "refuted", found
    assert found.verdict == case.verdict or not case.verdict, found
    assert (result.success, found.tampered) == (found.is_met, False)
    assert found.rounds == (case.then is not None)
    proof = await proof_of(worker, result)
    assert (proof is not None) is (found.verdict == "verified" and result.success and not result.truncated)
    assert len(proof or "") <= 20_000
