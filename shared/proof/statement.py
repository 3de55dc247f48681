"""What is stated of a verified result: SLSA provenance v1 of its patch, with the checks and how they ended.

The checks are in the same statement, so that no one can put those of another run beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from ..checks import CommandCheck, VerifyItem
from ..delegation import ToolAgentResult
from ..facts import Check, Verification
from ..fleet import own_version
from ..request import DelegationRequest

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:deputize:agent-commit:v1"
BUILDER = "urn:deputize:worker:v1"
FOUND = "deputize_verification"
"""SLSA lets a builder add fields that begin with its name."""
ASKED = ("task", "context", "expectedOutcome")
GROUNDS = ("base", "candidate", "canary", "asLeft")


def why_none(result: ToolAgentResult, patch: str) -> str:
    """Returns why there is nothing to state of this result; "" where there is."""
    if result.verification.verdict != "verified" or not result.success:
        return f"the result is {result.headline}, and only verified ones are proved"
    if result.truncated:
        return "the patch is incomplete"
    return "" if patch else "the run changed no file"


def statement_of(
    request: DelegationRequest, result: ToolAgentResult, patch: str, started: datetime, internal: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the statement. ``internal`` is what only the worker knows of the execution, texts by their digests."""
    git, finished = result.git, datetime.now(UTC)
    subject = [{"name": "patch", "digest": {"sha256": digest(patch)}}]
    subject += [{"name": "commit", "digest": {"gitCommit": git.commit}}] if git and git.commit else []
    asked = zip(ASKED, (request.task, request.context, request.expected_outcome), strict=True)
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            **{name: {"sha256": digest(text)} for name, text in asked},
            "protect": request.protect,
            "accept": request.accept,
            "verifyTimeoutSeconds": request.verify_timeout_seconds,
        },
        "internalParameters": internal,
        "resolvedDependencies": [{"name": "base", "digest": {"gitCommit": git.base}}] if git else [],
    }
    details = {
        "builder": {"id": BUILDER, "version": {"deputize": own_version()}},
        "metadata": {
            "invocationId": result.delegation_id,
            "startedOn": started.isoformat(),
            "finishedOn": finished.isoformat(),
        },
        FOUND: {**found_of(result.verification), "undelivered": git.left_out if git else []},
    }
    predicate = {"buildDefinition": definition, "runDetails": details}
    return {"_type": STATEMENT, "subject": subject, "predicateType": PROVENANCE, "predicate": predicate}


def found_of(verification: Verification) -> dict[str, Any]:
    """Returns what the checks found, as it is stated."""
    return {
        "verdict": verification.verdict,
        "checks": [_check(each) for each in verification.checks],
        "restored": sorted(verification.restored),
        "released": sorted(verification.released),
    }


def _check(check: Check) -> dict[str, Any]:
    hides = is_hidden(check.item)
    return {
        "item": stated_item(check.item),
        "outcome": check.outcome,
        **dict(zip(GROUNDS, (check.base, check.candidate, check.canary, check.as_left), strict=True)),
        "strength": check.strength,
        "tests": {kind: len(names) if hides else names for kind, names in check.tests.items()},
    }


def shown_item(item: VerifyItem) -> dict[str, Any]:
    """Returns a check as requested, with digests in the place of contents."""
    shown = item.to_dict()
    if isinstance(item, CommandCheck):
        shown["files"] = {path: digest(text) for path, text in item.files.items()}
        shown["canary"] = item.canary and digest(item.canary)
    return shown


def is_hidden(item: Mapping[str, Any]) -> bool:
    """Whether a check, as a result or a statement shows it, is one whose command is not shown to the run."""
    return CommandCheck.model_construct(hidden=item.get("hidden"), files=item.get("files") or {}).is_hidden


def stated_item(shown: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what is stated of a check: of a hidden one its digest alone."""
    if not is_hidden(shown):
        return shown
    return {"kind": "command", "hidden": True, "sha256": sha256(written(shown)).hexdigest()}


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def written(value: Any) -> bytes:
    """Returns the one form in which a value is signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
