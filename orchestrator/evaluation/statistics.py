"""Estimates from few runs, with intervals of 95 %: Wilson's, bootstraps over tasks, and an exact paired test.

The sources: Wilson (1927) as in Newcombe (1998), pass@k of Chen et al. (2021), pass^k of Yao et al. (2024), and
McNemar's test by the binomial distribution.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import comb, sqrt
from statistics import NormalDist, fmean

Interval = tuple[float, float]
_Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 2000
"""Of a bootstrap: enough for two digits."""
LEVEL = 0.05
_EQUAL = 1e-9
"""Figures that differ by less are equal."""


def wilson(successes: float, runs: int) -> Interval:
    """Returns the interval of a rate: from 0 to 1 without runs."""
    if runs == 0:
        return 0.0, 1.0
    rate, square = successes / runs, _Z * _Z / runs
    middle, half = rate + square / 2, _Z * sqrt(rate * (1 - rate) / runs + square / (4 * runs))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return max(0.0, min(rate, low)), min(1.0, max(rate, high))  # rounding may exclude a rate of 0 or 1


def pass_at(k: int, successes: int, runs: int) -> float:
    """Returns the unbiased estimate that one of k runs succeeds; ``k`` is at most ``runs``."""
    return 1 - comb(runs - successes, k) / comb(runs, k)


def pass_all(k: int, successes: int, runs: int) -> float:
    """Returns the unbiased estimate that all of k runs succeed; ``k`` is at most ``runs``."""
    return comb(successes, k) / comb(runs, k)


def bootstrap(of_tasks: Sequence[float], seed: int = 0) -> Interval:
    """Returns the percentile interval of the mean over tasks, drawn again with replacement; the same each time."""
    draw = random.Random(seed)  # noqa: S311 - not for cryptography
    found = sorted(fmean(draw.choices(of_tasks, k=len(of_tasks))) for _ in range(RESAMPLES))
    return found[round(LEVEL / 2 * (RESAMPLES - 1))], found[round((1 - LEVEL / 2) * (RESAMPLES - 1))]


def over_tasks(figures: Sequence[float]) -> Interval:
    """Returns the interval of the mean over tasks: by a bootstrap, or, where all are equal, Wilson's of the tasks.

    A bootstrap of equal figures has no width, although further tasks may differ. The figures are from 0 to 1.
    """
    if max(figures) - min(figures) > _EQUAL:
        return bootstrap(figures)
    return wilson(sum(figures), len(figures))


def over_pairs(differences: Sequence[float]) -> Interval:
    """Returns the same for differences from -1 to 1: equal ones may have further ones in both directions."""
    if max(differences) - min(differences) > _EQUAL:
        return bootstrap(differences)
    number, sign = len(differences), -1 if differences[0] < 0 else 1
    low, high = wilson(abs(sum(differences)), number)
    one, other = sign * (low - wilson(0, number)[1]), sign * high
    return min(one, other), max(one, other)


def exact_paired(better: int, worse: int) -> float:
    """Returns the two-sided p value of McNemar's exact test, of pairs that differ in either direction."""
    differ, fewer = better + worse, min(better, worse)
    return min(1.0, 2 * sum(comb(differ, k) for k in range(fewer + 1)) / 2**differ)


def fewest_to_differ() -> int:
    """Returns how many pairs must differ, all in one direction, before the exact test can be significant."""
    return next(number for number in range(1, 64) if exact_paired(number, 0) < LEVEL)
