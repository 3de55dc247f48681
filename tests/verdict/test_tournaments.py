"""Lies as the attempts of one task, and an honest one behind them: it is the first that wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.bench import Bench, script
from tests.runs.nesting import carrying_out
from tests.verdict.cases import FIX, PRICE, UNITTEST, Case
from tests.verdict.lies import LIES

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.costly
async def test_the_honest_attempt_wins_behind_four_lies(worker: Bench, tmp_path: Path) -> None:
    alike = [each for each in LIES if each.files is PRICE and [*each.checks] == [UNITTEST] and not each.request]
    lies = [each for each in alike if not (each.prepare or each.later or each.then)][:4]
    honest = Case("mends it", FIX, [UNITTEST])
    models = [script(tmp_path, *each.turns(), summary="Nothing more.") for each in (*lies, honest)]
    async with carrying_out(worker):
        result = await worker.run(
            attempts={"count": len(models), "models": models}, **honest.fields(tmp_path / "project")
        )
    assert len(lies) == 4
    assert result.tournament
    verdicts = [each.verdict for each in result.tournament.attempts]
    assert (verdicts.index("verified"), result.tournament.passed, result.tournament.of) == (4, 1, 5), verdicts
    assert result.tournament.winner == result.tournament.attempts[4].id
    assert result.files_modified == ["price.py"]
