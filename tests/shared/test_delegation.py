"""Delegations and their results: what the values of the contract mean."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from deputize.shared.delegation import (
    DelegationFailed,
    FinalStatus,
    Status,
    Step,
    StepStatus,
    TerminationReason,
    ToolAgentResult,
    ToolAgentStep,
)
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now


def test_limits_and_budgets_are_told_from_other_ends() -> None:
    assert [reason for reason in TerminationReason if reason.is_limit] == [
        "max_turns",
        "max_tool_calls",
        "timeout",
        "budget",
    ]


def test_a_path_holds_no_nul_character() -> None:
    with pytest.raises(ValidationError, match="a path contains no NUL character"):
        DelegationRequest.model_validate({"task": "t", "workspace": {"kind": "directory", "path": "a\0b"}})


@pytest.mark.parametrize(("status", "logged"), [(StepStatus.COMPLETED, "success"), (StepStatus.FAILED, "failed")])
def test_a_finished_step_is_logged_by_the_parent_with_success_or_failure(status: StepStatus, logged: str) -> None:
    step = Step(
        id="1",
        type="grep",
        title="grep x",
        status=status,
        tool_name="grep",
        arguments={"pattern": "x"},
        turn_index=1,
        timestamp=now(),
        result="a:1",
    )
    kept = ToolAgentStep.of(step)
    assert (kept.status, kept.tool_name, kept.arguments, kept.result) == (logged, "grep", {"pattern": "x"}, "a:1")


def test_a_result_that_is_no_success_is_raised_on_demand_and_survives_a_pickle() -> None:
    def ended(status: FinalStatus, reason: TerminationReason) -> ToolAgentResult:
        return ToolAgentResult(delegation_id="dlg_1", status=status, termination_reason=reason, summary="half of it")

    done = ended(Status.SUCCEEDED, TerminationReason.COMPLETED)
    assert done.raise_for_status() is done
    cut = ended(Status.FAILED, TerminationReason.MAX_TURNS)
    with pytest.raises(DelegationFailed, match=r"dlg_1 failed \(max_turns\): half of it") as failed:
        cut.raise_for_status()
    again = pickle.loads(pickle.dumps(failed.value))
    assert (again.result, again.delegation_id) == (cut, "dlg_1")
