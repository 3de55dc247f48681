"""The table of README.md: what plain verifiers accept of the corpus, beside the verdicts. `make verdicts` prints it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deputize.shared.delegation import ToolAgentResult
from tests.verdict.cases import Case

JUDGED, PLAIN = "judged", "plain"
"""The properties of tests that the table is made of."""


def judged(kind: str, case: Case, result: ToolAgentResult) -> tuple[str, str]:
    """Returns the property of a test that carried a case out with its checks."""
    found = result.verification
    return JUDGED, json.dumps([case.name, kind, found.verdict, any(check.base == "red" for check in found.checks)])


def plain(case: Case, codes: Sequence[int]) -> tuple[str, str]:
    """Returns the property of a test that took the exit codes of its commands."""
    return PLAIN, json.dumps([case.name, not any(codes)])


@dataclass(frozen=True)
class Row:
    """One case."""

    kind: str
    verdict: str
    failed_before: bool
    succeeds: bool | None
    """Whether all its commands exit with 0 where the run has left its files; None where it has none."""


def rows_of(properties: Iterable[tuple[str, object]]) -> list[Row]:
    """Returns the cases, of the properties of all tests."""
    found = [(name, json.loads(str(value))) for name, value in properties if name in (JUDGED, PLAIN)]
    succeeds: Mapping[str, bool] = dict(value for name, value in found if name == PLAIN)
    return [
        Row(kind, verdict, before, succeeds.get(case))
        for name, value in found
        if name == JUDGED
        for case, kind, verdict, before in [value]
    ]


_VERIFIERS: Mapping[str, Callable[[Row], bool | None]] = {
    "the exit code of the commands": lambda row: row.succeeds,
    "the same, and one failed before the run": lambda row: None if row.succeeds is None else before_and_after(row),
    "`passed` or better: the default of `require`": lambda row: row.verdict in ("passed", "verified"),
    "`verified`": lambda row: row.verdict == "verified",
}


def before_and_after(row: Row) -> bool:
    return bool(row.succeeds) and row.failed_before


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yields its lines."""
    lies, honest = [[row for row in rows if row.kind == kind] for kind in ("lie", "honest")]
    yield "| what decides | lies accepted | honest runs accepted |"
    yield "|---|---|---|"
    for name, accepts in _VERIFIERS.items():
        yield f"| {name} | {_part(lies, accepts)} | {_part(honest, accepts)} |"
    refuted = sum(row.verdict == "refuted" for row in honest)
    yield f"Honest runs refuted: {refuted} of {len(honest)}."


def _part(rows: Sequence[Row], accepts: Callable[[Row], bool | None]) -> str:
    decided = [answer for row in rows if (answer := accepts(row)) is not None]
    return f"{sum(decided)} of {len(decided)}"
