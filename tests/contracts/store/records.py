"""Delegations in a store, and what an attempt writes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deputize.shared.connection import Pipe
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.events import Envelope, RunFinished, TurnStarted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.notification import queued
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import RECORD, RunStore
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call

LEASE = 10.0


async def accepted(store: RunStore, owner: str = "", **fields: Any) -> str:
    request = DelegationRequest(task="do it", **fields)
    return (await store.accept([(new_id(), request, request.limits)], 30, owner=owner))[0].id


async def claimed(store: RunStore, **fields: Any) -> Claim:
    claim = await store.claim(await accepted(store, **fields), "token", "worker-1", LEASE)
    assert claim is not None
    return claim


def turn(claim: Claim, seq: int) -> tuple[int, str]:
    event = TurnStarted(turn=seq)
    return seq, Envelope(delegation_id=claim.id, seq=seq, at=now(), attempt=claim.attempt, event=event).to_json()


def ending(claim: Claim, seq: int, **fields: Any) -> RunUpdate:
    """The last write of a run, which succeeded unless ``fields`` of its result are others."""
    succeeded = {"status": Status.SUCCEEDED, "termination_reason": TerminationReason.COMPLETED}
    result = ToolAgentResult.model_validate({"delegation_id": claim.id} | succeeded | fields)
    event = Envelope(delegation_id=claim.id, seq=seq, at=now(), attempt=claim.attempt, event=RunFinished(result=result))
    fields = {"status": result.status.value, "result": result.to_json(), "finished": now().isoformat()}
    notifications = queued(claim.id, claim.kept.get("webhook"), seq, event.event)
    return RunUpdate(events=[(seq, event.to_json())], fields=fields, retention=60, notifications=notifications)


async def write(pipe: Pipe, claim: Claim, writing: RunUpdate, number: int = 1) -> bool:
    """Returns whether it was written, and not fenced off. ``number`` is that of the write in its attempt."""
    writing = replace(writing, number=number)
    answer = await pipe.script(RECORD, *script_call(writing, claim.id, claim.fence))
    assert answer in ("written", "fenced") or answer.isdecimal()
    return answer != "fenced"
