"""Requests that follow finished delegations: that continue one, repeat it, or merge several."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..shared.compound_requests import MergeRequest
from ..shared.delegation import Delegation
from ..shared.errors import Conflict, Invalid
from ..shared.limits import Limits
from ..shared.patch_format import printable_path
from ..shared.patches.directory import Directory
from ..shared.patches.siblings import Side, left_out_of, merged, results_of
from ..shared.request import DelegationRequest
from ..shared.runs.record import files_before, files_gone, nothing_to_continue
from ..shared.runs.store import RunStore
from ..shared.settings import Settings
from ..shared.workspaces import BASE
from .operations import MergeReport

_OF_CONVERSATION = ("model", "tool_call_style")
_OF_TASK = ("task", "context", "expected_outcome", "system_prompt", "after")


def continued_request(
    earlier: Delegation, text: str, limits: Limits | None = None, idempotency_key: str | None = None
) -> DelegationRequest:
    """Returns the request to go on with a delegation: its own fields, but for the task and, if given, the limits.

    Raises Conflict while it is not finished, and Invalid for a blank text.
    """
    _check_finished(earlier, "continued")
    if not text.strip():
        raise Invalid.at("/text", "the text is blank; describe the work in words")
    asked = {"task": text, "context": "", "expected_outcome": "", "continues": earlier.id}
    asked |= {"retry_of": None, "from_turn": None, "after": []}
    return _standalone(_of_conversation(earlier), idempotency_key, asked | ({"limits": limits} if limits else {}))


def _of_conversation(earlier: Delegation) -> DelegationRequest:
    """Returns the request of the conversation that a delegation left: of several attempts that of the taken one."""
    facts = earlier.result.tournament if earlier.result else None
    taken = {each.id: each for each in facts.attempts}.get(facts.taken or "") if facts else None
    own = {"model": taken.model, "effort": taken.effort} if taken else {}
    return earlier.request.model_copy(update={"attempts": None, **own})


def repeated_request(
    earlier: Delegation, idempotency_key: str | None = None, from_turn: int | None = None
) -> DelegationRequest:
    """Returns the request to do a task again, or from a turn on. Raises Conflict while it is not finished."""
    _check_finished(earlier, "retried")
    request = _of_conversation(earlier) if from_turn else earlier.request
    return _standalone(request, idempotency_key, {"retry_of": earlier.id, "from_turn": from_turn})


async def check_continued(store: RunStore, request: DelegationRequest, settings: Settings) -> None:
    """Raises NotFound, Conflict or Invalid where what the request continues, or repeats in part, cannot be."""
    if request.from_turn and request.retry_of is None:
        detail = "is a turn of the delegation in retryOf, which is missing"
        raise Invalid.of([{"pointer": "/fromTurn", "detail": detail}])
    if request.builds_on is None:
        return
    earlier = await store.get(request.builds_on)
    _check_finished(earlier, "retried" if request.from_turn else "continued")
    for name in (*_OF_CONVERSATION, *(_OF_TASK if request.from_turn else ())):
        if getattr(request, name) != getattr(_of_conversation(earlier), name):
            pointer = f"/{DelegationRequest.model_fields[name].alias}"
            detail = f"differs from that of {earlier.id}, whose conversation only the same one can continue"
            raise Invalid.of([{"pointer": pointer, "detail": detail}])
    if not (await store.conversation(earlier.id))[0]:
        raise Conflict(nothing_to_continue(earlier.id))
    if request.from_turn and earlier.request.attempts:
        raise Conflict(f"{earlier.id} has no turns of its own, as it took the best of several attempts; retry that one")
    if request.from_turn:
        await files_before(store.redis, earlier, request.from_turn)
    if settings.local and not (settings.workspaces / earlier.id).exists():
        raise Conflict(files_gone(earlier.id))


async def planned_merge(
    store: RunStore, settings: Settings, wanted: MergeRequest
) -> tuple[MergeReport, DelegationRequest | None]:
    """Returns what the merge would be, and the request that carries it out, unless there are conflicts.

    Raises NotFound and Conflict as ``results_of`` does, and Conflict where the files are out of this service's reach.
    """
    checked = bool(wanted.verify or wanted.dry_run)
    (first, *_), sides = await results_of(store, wanted.distinct, checked=checked, with_protected=wanted.with_protected)
    report = await asyncio.to_thread(_planned, settings.workspaces / first.id, sides)
    return report, None if report.conflicts or wanted.dry_run else merge_request(first.request, wanted)


def _planned(folder: Path, sides: Sequence[Side]) -> MergeReport:
    try:
        base = Directory(folder / BASE)
    except OSError:
        raise Conflict(files_gone(folder.name)) from None
    with base:
        plan, conflicts = merged(base, sides)
    files = sorted(map(printable_path, plan.states))
    return MergeReport(conflicts=conflicts, files=files, left_out=left_out_of(sides))


def merge_request(first: DelegationRequest, wanted: MergeRequest) -> DelegationRequest:
    """Returns the request of the delegation that carries the merge out, in the sandbox of the ``first`` one."""
    ids = wanted.distinct
    return DelegationRequest(
        task=f"Merge {', '.join(ids)}",
        agent=first.agent,
        workspace=first.workspace,
        environment=first.environment,
        merges=ids,
        verify=wanted.verify,
        protect=wanted.protect,
        require=wanted.require,
        merge_with_protected=wanted.with_protected,
        limits=Limits(timeout_seconds=wanted.timeout_seconds),
        idempotency_key=wanted.idempotency_key,
    )


def _standalone(request: DelegationRequest, key: str | None, changed: Mapping[str, object]) -> DelegationRequest:
    """Returns the request with these changes, outside a parent's run and with an idempotency key of its own."""
    return request.model_copy(update={"parent_id": None, "idempotency_key": key, **changed})


def _check_finished(earlier: Delegation, what: str) -> None:
    if not earlier.status.finished:
        raise Conflict(
            f"{earlier.id} is {earlier.status}, so it cannot be {what} yet; wait for its end "
            f"(`deputize watch {earlier.id}`) or cancel it"
        )
