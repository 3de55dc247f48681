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
    Usage,
)
from deputize.shared.kept_step import ToolAgentStep
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now


def test_limits_and_budgets_are_distinguished_from_other_ends() -> None:
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


USAGE = Usage(
    input_tokens=100,
    output_tokens=5,
    cache_read_tokens=150,
    cache_write_tokens=50,
    cache_write_1h_tokens=20,
    cost_usd=0.5,
    cache_saved_usd=-0.25,
)


def test_a_usage_shows_the_share_of_its_prompts_that_was_read_from_the_cache() -> None:
    assert USAGE.to_dict() == {
        "inputTokens": 100,
        "outputTokens": 5,
        "cacheReadTokens": 150,
        "cacheWriteTokens": 50,
        "cacheWrite1hTokens": 20,
        "costUsd": 0.5,
        "cacheSavedUsd": -0.25,
        "cachedShare": 0.5,
    }
    assert Usage(input_tokens=2, cache_read_tokens=1).cached_share == 0.3333
    assert Usage(output_tokens=7).cached_share is None


def test_a_stored_usage_is_read_back_also_one_of_an_earlier_version() -> None:
    assert Usage.model_validate_json(USAGE.to_json()) == USAGE
    earlier = Usage.model_validate({"inputTokens": 7, "cacheWriteTokens": 3, "costUsd": None})
    assert (earlier.total, earlier.cache_write_1h_tokens, earlier.cost_usd) == (10, 0, None)


def test_usages_are_added_and_an_amount_that_is_not_known_stays_unknown() -> None:
    double = USAGE + USAGE
    assert double - USAGE == USAGE
    assert (double.total, double.cache_write_1h_tokens, double.cost_usd, double.cache_saved_usd) == (610, 40, 1, -0.5)
    for name, other in (("cost_usd", "cache_saved_usd"), ("cache_saved_usd", "cost_usd")):
        unknown = USAGE.model_copy(update={name: None})
        for summed in (USAGE + unknown, unknown + USAGE):
            assert (getattr(summed, name), getattr(summed, other)) == (None, getattr(double, other))
        assert getattr(double - unknown, name) is None
