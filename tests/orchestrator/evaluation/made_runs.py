"""Results of runs, and tasks that have them, for figures."""

from __future__ import annotations

from deputize.orchestrator.evaluation.evaluation import TaskRuns
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult, Usage


def result(reason: str = "completed", cost: float | None = 0.5) -> ToolAgentResult:
    status = {"completed": Status.SUCCEEDED, "cancelled": Status.CANCELLED}.get(reason, Status.FAILED)
    fields = {"status": status, "termination_reason": TerminationReason(reason), "execution_time_ms": 2000}
    return ToolAgentResult.model_validate({"delegation_id": "dlg_1", **fields, "usage": Usage(cost_usd=cost)})


def task(number: int, successes: int, failures: int, *more: ToolAgentResult, title: str = "t") -> TaskRuns:
    runs = [*[result()] * successes, *[result("max_turns")] * failures, *more]
    return TaskRuns(number, title, runs)
