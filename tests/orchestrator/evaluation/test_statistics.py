"""Estimates and intervals, compared with published values."""

from __future__ import annotations

import random
from itertools import combinations
from statistics import mean

import pytest

from deputize.orchestrator.evaluation.statistics import (
    bootstrap,
    exact_paired,
    fewest_to_differ,
    pass_all,
    pass_at,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "runs", "interval"),
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_the_interval_of_wilson_is_that_of_newcombe_1998(
    successes: int, runs: int, interval: tuple[float, float]
) -> None:
    assert wilson(successes, runs) == pytest.approx(interval, abs=5e-5)
    low, high = wilson(runs - successes, runs)
    assert (1 - high, 1 - low) == pytest.approx(interval, abs=5e-5)


def test_without_runs_nothing_is_known() -> None:
    assert wilson(0, 0) == (0, 1)


@pytest.mark.parametrize(("better", "worse", "p"), [(121, 59, 4.434e-6), (5, 0, 0.0625), (6, 0, 0.03125), (0, 0, 1.0)])
def test_the_paired_test_is_mcnemars_exact_one(better: int, worse: int, p: float) -> None:
    """The first row is the example of statsmodels and of R's ``exact2x2``, the others follow from the binomial."""
    assert exact_paired(better, worse) == exact_paired(worse, better) == pytest.approx(p, rel=1e-3)


def test_how_many_pairs_must_differ() -> None:
    assert fewest_to_differ() == 6
    assert exact_paired(5, 0) > 0.05 > exact_paired(6, 0)


@pytest.mark.parametrize(
    ("k", "successes", "runs"), [(1, 3, 10), (5, 3, 10), (5, 0, 5), (3, 5, 5), (2, 1, 4), (5, 8, 10)]
)
def test_of_k_runs_one_or_all_succeed_as_often_as_in_all_ways_to_draw_them(k: int, successes: int, runs: int) -> None:
    drawn = [*combinations([1] * successes + [0] * (runs - successes), k)]
    assert pass_at(k, successes, runs) == pytest.approx(mean(any(each) for each in drawn))
    assert pass_all(k, successes, runs) == pytest.approx(mean(all(each) for each in drawn))


def test_the_bootstrap_is_the_same_each_time_and_as_wide_as_the_normal_interval() -> None:
    draw = random.Random(1)
    values = [draw.gauss(0.5, 0.2) for _ in range(200)]
    low, high = bootstrap(values)
    assert (low, high) == bootstrap(values)
    half = 1.96 * (sum((each - mean(values)) ** 2 for each in values) / 199 / 200) ** 0.5
    assert (low, high) == pytest.approx((mean(values) - half, mean(values) + half), abs=0.1 * half)
    assert bootstrap([0.4] * 9) == (0.4, 0.4)


SCIPY = [
    ((0, 5), (0.0, 0.434482)),
    ((1, 5), (0.036224, 0.624465)),
    ((3, 5), (0.230724, 0.882379)),
    ((5, 5), (0.565518, 1.0)),
    ((7, 10), (0.396778, 0.892209)),
    ((999, 1000), (0.994357, 0.999823)),
]


@pytest.mark.parametrize(("counts", "interval"), SCIPY)
def test_the_interval_of_wilson_is_that_of_two_libraries(
    counts: tuple[int, int], interval: tuple[float, float]
) -> None:
    """Of ``proportion_confint(method="wilson")`` of statsmodels 0.15.0 and ``binomtest`` of scipy 1.17.1."""
    assert wilson(*counts) == pytest.approx(interval, abs=1e-6)


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        (9, 2, 0.065429688),
        (10, 10, 1.0),
        (1, 8, 0.0390625),
        (0, 7, 0.015625),
        (40, 20, 0.013489294),
        (3, 12, 0.03515625),
    ],
)
def test_the_paired_test_is_that_of_two_libraries(better: int, worse: int, p: float) -> None:
    """Of ``mcnemar(exact=True)`` of statsmodels 0.15.0 and ``binomtest`` of scipy 1.17.1."""
    assert exact_paired(better, worse) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize(
    ("k", "successes", "runs", "one", "all_of_them"),
    [
        (2, 3, 10, 0.533333333, 0.066666667),
        (5, 3, 10, 0.916666667, 0.0),
        (10, 1, 200, 0.05, 0.0),
        (2, 9, 10, 1.0, 0.8),
    ],
)
def test_of_k_runs_one_or_all_succeed_as_the_hypergeometric_distribution_has_it(
    k: int, successes: int, runs: int, one: float, all_of_them: float
) -> None:
    """Of ``hypergeom(runs, successes, k)`` of scipy 1.17.1: ``1 - pmf(0)`` and ``pmf(k)``."""
    assert (pass_at(k, successes, runs), pass_all(k, successes, runs)) == pytest.approx((one, all_of_them), abs=1e-9)


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ([0, 0.2, 0.2, 0.4, 0.6, 0.8, 1, 1, 0.5, 0.3, 0.9, 0.1], (0.308333, 0.691667)),
        ([0] * 6 + [1] * 14, (0.5, 0.9)),
    ],
)
def test_the_bootstrap_is_that_of_another_library_within_its_two_digits(
    values: list[float], interval: tuple[float, float]
) -> None:
    """Of ``bootstrap(method="percentile")`` of scipy 1.17.1 with 200,000 samples."""
    assert bootstrap(values) == pytest.approx(interval, abs=0.01)
