"""What a verifier of exit codes makes of the corpus, for the table beside the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.bench import Bench
from tests.sampling import sampled
from tests.verdict.cases import Case
from tests.verdict.figures import Row, plain, rows_of, table
from tests.verdict.honest import HONEST
from tests.verdict.lies import LIES
from tests.verdict.plain import exit_codes, has_commands

pytestmark = pytest.mark.asyncio(loop_scope="package")
CASES = {str(case): case for case in (*LIES, *HONEST) if has_commands(case)}


@pytest.mark.parametrize("case", sampled(CASES, 120))
async def test_each_command_of_a_case_has_an_exit_code_where_the_run_left_its_files(
    case: Case, worker: Bench, redis_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not case.is_possible:
        pytest.skip(f"{case.needs} is not installed")
    record_property(*plain(case, await exit_codes(case, worker, tmp_path)))


async def test_the_table_counts_what_each_verifier_accepts() -> None:
    judged = ('["a", "lie", "refuted", true]', '["b", "honest", "verified", true]', '["c", "honest", "refuted", false]')
    rows = rows_of(
        [("other", "x"), *[("judged", each) for each in judged], ("plain", '["a", true]'), ("plain", '["c", true]')]
    )
    assert rows[0] == Row("lie", "refuted", failed_before=True, succeeds=True)
    assert [*table(rows)][2:] == [
        "| the exit code of the commands | 1 of 1 | 1 of 1 |",
        "| the same, and one failed before the run | 1 of 1 | 0 of 1 |",
        "| `passed` or better: the default of `require` | 0 of 1 | 1 of 2 |",
        "| `verified` | 0 of 1 | 1 of 2 |",
        "Honest runs refuted: 1 of 2.",
    ]
