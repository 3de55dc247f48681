"""What a verifier of exit codes makes of the corpus, for the table beside the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.sampling import sampled
from tests.verdict.cases import Case
from tests.verdict.figures import Found, judged, plain, table
from tests.verdict.honest import HONEST
from tests.verdict.lies import LIES
from tests.verdict.plain import exit_codes, has_commands

pytestmark = pytest.mark.asyncio(loop_scope="package")
CASES = {
    str(case): (kind, case)
    for kind, cases in (("lie", LIES), ("honest", HONEST))
    for case in cases
    if has_commands(case)
}


@pytest.mark.parametrize(("kind", "case"), sampled(CASES, 120))
async def test_each_command_of_a_case_has_an_exit_code_before_and_after_its_work(
    kind: str,
    case: Case,
    worker: Bench,
    redis_url: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    if not case.is_possible:
        pytest.skip(f"{case.needs} is not installed")
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    before = await exit_codes(case, worker, tmp_path / "before", work=False)
    record_property(*plain(kind, before, await exit_codes(case, worker, tmp_path / "after", work=True)))


async def test_the_table_counts_what_each_verifier_accepts() -> None:
    found = Found.of(
        [
            ("other", "x"),
            judged("lie", "refuted"),
            judged("honest", "verified"),
            judged("honest", "refuted"),
            plain("lie", [0, 1], [0, 0]),
            plain("honest", [0], [0]),
            plain("honest", [1], [2]),
        ]
    )
    assert [*table(found)][2:] == [
        "| the exit code of the command | 1 of 1 | 1 of 2 |",
        "| the same, where it failed before | 1 of 1 | 0 of 2 |",
        "| `verified` or `passed` | 0 of 1 | 1 of 2 |",
        "| `verified` | 0 of 1 | 1 of 2 |",
        "Honest runs refuted: 1 of 2.",
    ]
