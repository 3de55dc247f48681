"""Delegations that wait for others (``after``): what these decide when they end, and what of them is read afterwards.

Nothing polls: who waits is in a set beside each of its upstreams, and the script that writes the end of one makes it
due (``file.lua``). A janitor finds it, as it finds all that is due (``reap.lua``), and settles it. What a crash leaves
undone is due again, and every step is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..connection import Script
from ..delegation import MAX_CALL_ERRORS, Status, TerminationReason, ToolAgentResult
from ..request import After, DelegationRequest
from ..text import clip
from .cost import fields_of_records
from .keys import record_key
from .record import AFTER
from .store import QUEUED, RunStore

START = Script("queue", "start")
MAX_REPORT = 20_000
"""Characters of a summary, and of an output, that are read."""
MAX_REPORTS = 60_000
"""The same of all upstreams together."""
MAX_LISTED = 30


async def settle(store: RunStore, id: str) -> bool:
    """Lets a delegation start, or ends it, where those that it waits for have decided; returns whether it starts."""
    ((text, after),) = await fields_of_records(store.redis, [id], "request", AFTER)
    if not after:
        return False  # another janitor came first
    wanted = DelegationRequest.model_validate_json(text, extra="ignore").after
    found = await fields_of_records(store.redis, [each.id for each in wanted], "status", "title", "result")
    pairs = [
        (each, title or "", ToolAgentResult.model_validate_json(result) if result else None)
        for each, (status, title, result) in zip(wanted, found, strict=True)
        if status is None or Status(status).finished
    ]
    for each, _, result in pairs:
        if ended := in_vain(each, result):
            await store.end_waiting(id, ended)
            return False
    if len(pairs) < len(wanted):
        return False
    reports = reports_on([(title, result) for _, title, result in pairs if result])
    return bool(await START.run(store.redis, [record_key(id)], {"id": id, "upstreams": reports, **QUEUED}))


def in_vain(wanted: After, result: ToolAgentResult | None) -> Mapping[str, Any] | None:
    """Returns the result of a dependant whose upstream did not end as the dependant required; None if it did.

    The dependant is cancelled if the upstream was cancelled, and failed otherwise.
    """
    cancelled, more = False, list[str]()
    if result is None:
        why = f"the record of {wanted.id} is gone, so its end is not known"
    elif not result.success:
        cancelled = result.status is Status.CANCELLED
        reason = result.termination_reason
        failed = f"failed ({reason})" if result.attempts else "was not started"
        why = f"{wanted.id} " + (f"was {reason.replace('_', ' ')}" if cancelled else failed)
        if reason is TerminationReason.COMPLETED:
            why = f"{wanted.id} falls short of its requirement: {result.verification.shortfall()}"
        more = [] if result.attempts else result.errors  # why that one did not start
    elif wanted.require == "verified" and (verdict := result.verification.verdict) != "verified":
        why = f"the verdict on {wanted.id} is {verdict}, and verified is required"
    else:
        return None
    return {
        "status": Status.CANCELLED if cancelled else Status.FAILED,
        "termination_reason": TerminationReason.CANCELLED if cancelled else TerminationReason.REFUSED,
        "summary": f"Not started: {why}.",
        "errors": [why, *more][:MAX_CALL_ERRORS],
    }


def reports_on(results: Sequence[tuple[str, ToolAgentResult]]) -> str:
    """Returns what a run reads of its upstreams, by their titles: a list of objects, as JSON."""
    room = min(MAX_REPORT, MAX_REPORTS // max(1, len(results)))
    return json.dumps([_report(title, result, room) for title, result in results], ensure_ascii=False)


def _report(title: str, result: ToolAgentResult, room: int) -> dict[str, Any]:
    verdict, output = result.verification.verdict, json.dumps(result.output, ensure_ascii=False)
    parts = {
        "delegationId": result.delegation_id,
        "task": title,
        "verdict": "" if verdict == "unverified" else verdict,
        "taintedBy": result.trust.tainted_by,
        "filesModified": result.files_modified[:MAX_LISTED],
        "filesModifiedCount": len(result.files_modified),
        "refutedClaims": result.refuted_claims,
        "summary": clip(result.summary, room),
    }
    report: dict[str, Any] = {name: part for name, part in parts.items() if part}
    if result.output_status == "valid":
        report["output"] = result.output if len(output) <= room else clip(output, room)
    return report
