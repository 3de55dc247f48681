"""The benchmarks start, measure and report; what they measure is not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import cancelling, deliveries, times
from tests.benchmarks.number import Number, table


@pytest.mark.costly
@pytest.mark.system
def test_a_benchmark_measures_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "numbers.json"
    assert benchmarks.main(["dispatch", "startup", "--runs", "1", "--json", str(report)]) == 0
    numbers = json.loads(report.read_text())["numbers"]
    assert numbers[0]["target"] == "≥ 1,000"
    assert numbers[0]["median"] > 0
    assert {"deputize --help", "… that the API loads"} <= {each["name"] for each in numbers}


@pytest.mark.system
async def test_one_with_a_fleet_of_its_own_measures_too() -> None:
    """Not all fifty of its samples: each starts a sandbox."""
    numbers = {each.name: each for each in await cancelling.measure(runs=1, count=4)}
    assert [*numbers] == ["cancel → last process of the command dead, p95 of 4", "… p50", "… the longest"]
    assert all(0 < each.median < cancelling.PATIENCE_SECONDS * 1000 for each in numbers.values())


@pytest.mark.system
async def test_deliveries_through_kills_of_services_begin_each_one_thing() -> None:
    found = await deliveries.measure(runs=1, deliveries=60, kills=2)
    assert [each.verdict for each in found] == ["met", "met", "met", ""]


@pytest.mark.system
async def test_a_schedule_through_kills_of_services_leaves_no_time_out_and_repeats_none() -> None:
    found = await times.measure(runs=1, seconds=4, steps=(), kill_seconds=1.5)
    assert [each.verdict for each in found] == ["met", "met", "", "met", ""]
    assert found[-1].median >= 3


def test_a_missed_number_is_shown_as_missed() -> None:
    numbers = [
        Number("too slow", "ms", [4, 2, 9], at_most=3),
        Number("fast enough", "/s", [1200], at_least=1000),
        Number("only told", "ms", [1]),
    ]
    assert [(each.median, each.verdict) for each in numbers] == [(4, "missed"), (1200, "met"), (1, "")]
    assert "| too slow    | 4      | 2     | 9     | ms   | ≤ 3     | missed |" in table(numbers)
