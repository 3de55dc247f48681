"""What is stated of a verified result: SLSA provenance v1 of its patch, with the checks and how they ended.

The checks are in the same statement, so that no one can put those of another run beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from ..delegation import ToolAgentResult
from ..facts import Check
from ..request import DelegationRequest
from .envelope import STATEMENT

PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:deputize:agent-commit:v1"
BUILDER = "urn:deputize:worker:v1"


@dataclass(frozen=True, slots=True)
class Execution:
    """What the worker knows of the execution, and neither the request nor the result has."""

    started: datetime
    finished: datetime
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of the model's calls."""
    policy: str = ""
    """The policy in force, as text."""
    sandbox: str = ""
    """The profile of the sandbox, as text."""
    tools: Sequence[str] = ()
    hosts: Sequence[str] = ()
    """Those that were reached."""
    subagents: Sequence[str] = ()
    """Ids of the child delegations."""
    version: str = ""
    """Of this project."""


def why_none(result: ToolAgentResult, patch: str) -> str:
    """Returns why there is nothing to state of this result; "" where there is."""
    if result.verification.verdict != "verified" or not result.success:
        return f"the result is {result.headline}, and only verified ones are proved"
    if result.truncated:
        return "the patch is incomplete"
    return "" if patch else "the run changed no file"


def statement_of(
    request: DelegationRequest, result: ToolAgentResult, patch: str, execution: Execution
) -> dict[str, Any]:
    """Returns the statement. Raises ValueError where ``why_none`` has a reason."""
    if why := why_none(result, patch):
        raise ValueError(why)
    subject = [{"name": "patch", "digest": {"sha256": _digest(patch)}}]
    if result.git and result.git.commit:
        subject.append({"name": "commit", "digest": {"gitCommit": result.git.commit}})
    return {
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": _definition(request, result, execution),
            "runDetails": _details(result, execution),
        },
    }


def _definition(request: DelegationRequest, result: ToolAgentResult, execution: Execution) -> dict[str, Any]:
    base = [{"name": "base", "digest": {"gitCommit": result.git.base}}] if result.git else []
    asked = {"task": request.task, "context": request.context, "expectedOutcome": request.expected_outcome}
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {name: {"sha256": _digest(text)} for name, text in asked.items()},
        "internalParameters": {
            "model": execution.model,
            "parameters": dict(execution.parameters),
            "policy": {"sha256": _digest(execution.policy)},
            "sandbox": {"sha256": _digest(execution.sandbox)},
            "tools": sorted(execution.tools),
            "hosts": sorted(execution.hosts),
            "subagents": sorted(execution.subagents),
        },
        "resolvedDependencies": base,
    }


def _details(result: ToolAgentResult, execution: Execution) -> dict[str, Any]:
    found = result.verification
    return {
        "builder": {"id": BUILDER, "version": {"deputize": execution.version}},
        "metadata": {
            "invocationId": result.delegation_id,
            "startedOn": execution.started.isoformat(),
            "finishedOn": execution.finished.isoformat(),
        },
        # SLSA lets a builder add fields that begin with its name.
        "deputize_verification": {
            "verdict": found.verdict,
            "checks": [_check(each) for each in found.checks],
            "restored": sorted(found.restored),
            "released": sorted(found.released),
        },
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "item": check.item,
        "outcome": check.outcome,
        "base": check.base,
        "candidate": check.candidate,
        "canary": check.canary,
        "asLeft": check.as_left,
        "strength": check.strength,
        "tests": check.tests,
    }


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
