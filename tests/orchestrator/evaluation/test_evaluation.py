"""The figures of evaluations, and what two of them state together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deputize.orchestrator.evaluation.evaluation import Comparison, Evaluation
from deputize.orchestrator.evaluation.page import page
from deputize.shared.errors import Invalid
from tests.orchestrator.evaluation.made_runs import result, task


def of(*successes: int, runs: int = 4) -> Evaluation:
    return Evaluation.of([task(number, each, runs - each) for number, each in enumerate(successes, 1)])


def test_the_figures_of_all_tasks_are_means_over_tasks() -> None:
    found = of(4, 2, 0)
    assert [found.figure(name)[0] for name in ("pass@1", "pass@k", "pass^k")] == pytest.approx([0.5, 2 / 3, 1 / 3])
    assert (found.k, found.successes, len(found.results)) == (4, 6, 12)
    assert (found.cost_of_success, found.seconds_of_success) == (1.0, 4.0)
    assert found.ends == {"succeeded": 6, "max_turns": 6}
    low, high = found.figure("pass@1")[1]
    assert 0 <= low < 0.5 < high <= 1


def test_one_task_has_the_interval_of_wilson() -> None:
    low, high = of(4).figure("pass@1")[1]
    assert (low, high) == pytest.approx((0.5101, 1), abs=1e-3)


@pytest.mark.parametrize(
    ("successes", "runs", "figures"),
    [
        ([5], 5, [(0.566, 1), (0.985, 1), (0.058, 1)]),
        ([0], 5, [(0, 0.434), (0, 0.942), (0, 0.015)]),
        ([3], 5, [(0.231, 0.882), (0.731, 1), (0, 0.535)]),
        ([2, 2, 2], 2, [(0.438, 1)] * 3),
        ([0, 0], 2, [(0, 0.658)] * 3),
        ([1, 1], 2, [(0.095, 0.905), (0.342, 1), (0, 0.658)]),
    ],
)
def test_an_interval_has_a_width_where_all_runs_or_tasks_are_alike(
    successes: Sequence[int], runs: int, figures: Sequence[tuple[float, float]]
) -> None:
    found = of(*successes, runs=runs)
    for name, interval in zip(("pass@1", "pass@k", "pass^k"), figures, strict=True):
        value, (low, high) = found.figure(name)
        assert (low, high) == pytest.approx(interval, abs=1e-3), name
        assert low <= value <= high, name


@pytest.mark.parametrize(
    ("new", "former", "interval"),
    [
        ([1, 1], [1, 1], (-0.658, 0.658)),
        ([1] * 6, [0] * 6, (0.219, 1)),
        ([0] * 6, [1] * 6, (-1, -0.219)),
        ([1], [0], (-0.587, 1)),
    ],
)
def test_a_difference_that_is_the_same_in_all_tasks_has_an_interval_too(
    new: Sequence[int], former: Sequence[int], interval: tuple[float, float]
) -> None:
    compared = Comparison.of(of(*new, runs=1), of(*former, runs=1))
    assert compared.interval == pytest.approx(interval, abs=1e-3)


def test_what_was_cancelled_is_no_run_and_an_unknown_price_no_cost() -> None:
    found = Evaluation.of([task(1, 1, 1, result("cancelled")), task(2, 0, 0, result("cancelled"))])
    assert (found.k, len(found.tasks), found.cost_usd) == (2, 1, 1.5)
    assert Evaluation.of([task(1, 1, 0, result(cost=None))]).cost_of_success is None
    assert (of(0).cost_of_success, of(0).seconds_of_success) == (None, None)
    with pytest.raises(Invalid, match="nothing to evaluate"):
        Evaluation.of([task(1, 0, 0, result("cancelled"))])


@pytest.mark.parametrize(
    ("new", "former", "conclusion"),
    [
        ([1] * 5, [0] * 5, "5 of 5 tasks differ, which is too few for a conclusion: at least 6 have to"),
        ([1] * 6, [0] * 6, "the new one is better (p = 0.031)"),
        ([0] * 7, [1] * 7, "the new one is worse (p = 0.016)"),
        ([1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], "no difference is shown (p = 1)"),
    ],
)
def test_two_are_compared_task_by_task(new: Sequence[int], former: Sequence[int], conclusion: str) -> None:
    compared = Comparison.of(of(*new, runs=1), of(*former, runs=1))
    assert compared.conclusion == conclusion
    figures = compared.to_dict()
    assert figures["interval"][0] <= figures["difference"] <= figures["interval"][1]


def test_only_the_same_tasks_are_compared() -> None:
    one, other = of(1, 1), Evaluation.of([task(1, 1, 0, title="other")])
    with pytest.raises(Invalid, match="compare the same tasks"):
        Comparison.of(one, other)
    with pytest.raises(Invalid, match="no task in common"):
        Comparison.of(one, Evaluation.of([task(3, 1, 0)]))


def test_the_page_has_no_scripts_and_escapes_what_others_wrote() -> None:
    found = Evaluation.of([task(1, 1, 1, title="<script>alert(1)</script>"), task(2, 2, 0)])
    text = page(found, Comparison.of(found, found))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "too few for a conclusion" in text
    assert "http" not in text
