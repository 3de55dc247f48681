"""The figures of an evaluation: of each task, of all tasks, and of two configurations compared task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from ...shared.delegation import Status, ToolAgentResult
from ...shared.errors import Invalid
from ...shared.lazy import lazy
from .statistics import (
    LEVEL,
    Interval,
    exact_paired,
    fewest_to_differ,
    over_pairs,
    over_tasks,
    pass_all,
    pass_at,
    wilson,
)

FIGURES = {"passAt1": "pass@1", "passAtK": "pass@k", "passAllK": "pass^k"}
"""The names of the figures of all tasks, as JSON and people have them."""


@dataclass(frozen=True)
class TaskRuns:
    """The runs of one task. Those that were cancelled do not count: they show nothing."""

    number: int
    """Of the task, from 1."""
    title: str
    results: Sequence[ToolAgentResult]

    @lazy
    def ended(self) -> Sequence[ToolAgentResult]:
        return [each for each in self.results if each.status is not Status.CANCELLED]

    @lazy
    def successes(self) -> int:
        return sum(each.success for each in self.ended)

    @property
    def rate(self) -> float:
        """The part of its runs that were a success; there is at least one."""
        return self.successes / len(self.ended)

    @property
    def interval(self) -> Interval:
        return wilson(self.successes, len(self.ended))

    @property
    def cost_usd(self) -> float | None:
        """US dollars of all its runs; None where the price of one is not known."""
        costs = [each.usage.cost_usd for each in self.results]
        return None if None in costs else sum(each for each in costs if each)

    @property
    def seconds(self) -> float:
        """The median time of a run."""
        return median(each.execution_time_ms for each in self.ended) / 1000

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "task": self.number,
            "title": self.title,
            "runs": len(self.ended),
            "successes": self.successes,
            "rate": self.rate,
            "interval": [low, high],
            "costUsd": self.cost_usd,
            "medianSeconds": self.seconds,
        }


@dataclass(frozen=True)
class Evaluation:
    """Tasks that were each run several times. ``k`` is the smallest number of runs that any of them has."""

    tasks: Sequence[TaskRuns]

    @classmethod
    def of(cls, tasks: Sequence[TaskRuns]) -> Evaluation:
        """Returns the evaluation of the tasks that have runs. Raises Invalid where none has any."""
        if not (found := [each for each in tasks if each.ended]):
            raise Invalid("no run has ended by itself, so there is nothing to evaluate")
        return cls(found)

    @lazy
    def results(self) -> Sequence[ToolAgentResult]:
        return [result for task in self.tasks for result in task.ended]

    @property
    def k(self) -> int:
        return min(len(each.ended) for each in self.tasks)

    def figure(self, of: str) -> tuple[float, Interval]:
        """Returns `pass@1`, `pass@k` or `pass^k`, and its interval: of one task by its rate, else over tasks."""
        k = 1 if of == "pass@1" else self.k
        estimate = pass_all if of == "pass^k" else pass_at
        values = [estimate(k, task.successes, len(task.ended)) for task in self.tasks]
        if len(values) > 1:
            return mean(values), over_tasks(values)
        low, high = (rate**k if of == "pass^k" else 1 - (1 - rate) ** k for rate in self.tasks[0].interval)
        return values[0], (min(low, values[0]), max(high, values[0]))

    @lazy
    def successes(self) -> int:
        return sum(each.success for each in self.results)

    @property
    def cost_usd(self) -> float | None:
        """US dollars of all runs, also of those that were cancelled."""
        costs = [each.cost_usd for each in self.tasks]
        return None if None in costs else sum(each for each in costs if each)

    @property
    def cost_of_success(self) -> float | None:
        """US dollars of all runs for each success; None without a success, or where a price is not known."""
        cost = self.cost_usd
        return None if cost is None or not self.successes else cost / self.successes

    @property
    def seconds_of_success(self) -> float | None:
        """Seconds of work of all runs for each success."""
        whole = sum(each.execution_time_ms for each in self.results) / 1000
        return whole / self.successes if self.successes else None

    @property
    def ends(self) -> Mapping[str, int]:
        """How many runs ended how: by their verdict, or the reason of another end."""
        completed = ((each.headline, each.termination_reason) for each in self.results)
        return dict(Counter(end if why == "completed" else why.value for end, why in completed).most_common())

    @property
    def refuted_claims(self) -> int:
        return sum(len(each.refuted_claims) for each in self.results)

    def to_dict(self) -> dict[str, Any]:
        figures = {key: self.figure(name) for key, name in FIGURES.items()}
        return {
            "tasks": len(self.tasks),
            "runs": len(self.results),
            "k": self.k,
            **{key: {"value": value, "interval": [*interval]} for key, (value, interval) in figures.items()},
            "successes": self.successes,
            "costUsd": self.cost_usd,
            "costOfSuccessUsd": self.cost_of_success,
            "secondsOfSuccess": self.seconds_of_success,
            "ends": self.ends,
            "refutedClaims": self.refuted_claims,
        }


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same tasks, compared task by task."""

    pairs: Sequence[tuple[TaskRuns, TaskRuns]]
    """Of each task, that of the new evaluation and that of the former one."""

    @classmethod
    def of(cls, new: Evaluation, former: Evaluation) -> Comparison:
        """Raises Invalid where a task of one is another one in the other, or they have none in common."""
        before = {each.number: each for each in former.tasks}
        pairs = [(each, before[each.number]) for each in new.tasks if each.number in before]
        if not pairs:
            raise Invalid("the two evaluations have no task in common")
        for one, other in pairs:
            if one.title != other.title:
                detail = f"task {one.number} is {one.title!r} here and {other.title!r} there: compare the same tasks"
                raise Invalid(detail)
        return cls(pairs)

    @lazy
    def differences(self) -> Sequence[float]:
        return [one.rate - other.rate for one, other in self.pairs]

    @property
    def better(self) -> int:
        return sum(each > 0 for each in self.differences)

    @property
    def worse(self) -> int:
        return sum(each < 0 for each in self.differences)

    @property
    def p_value(self) -> float:
        """Of tasks that got better or worse: with one run for each task it is McNemar's exact test."""
        return exact_paired(self.better, self.worse)

    @property
    def interval(self) -> Interval:
        """That of the mean difference."""
        return over_pairs(self.differences)

    @property
    def conclusion(self) -> str:
        """What follows, in a sentence; also that the tasks are too few for a conclusion."""
        differ, fewest = self.better + self.worse, fewest_to_differ()
        if differ < fewest:
            few = f"too few for a conclusion: at least {fewest} have to"
            return f"{differ} of {len(self.pairs)} tasks differ, which is {few}"
        if self.p_value >= LEVEL:
            return f"no difference is shown (p = {self.p_value:.2g})"
        return f"the new one is {'better' if self.better > self.worse else 'worse'} (p = {self.p_value:.2g})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "tasks": len(self.pairs),
            "difference": mean(self.differences),
            "interval": [*self.interval],
            "better": self.better,
            "worse": self.worse,
            "pValue": self.p_value,
            "conclusion": self.conclusion,
        }
