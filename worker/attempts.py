"""The state of a run's earlier attempts: how the last one ended, their steps and their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deputize.shared.connection import REDIS_ERRORS
from deputize.shared.delegation import Step
from deputize.shared.errors import Conflict, Fenced
from deputize.shared.events import StepCompleted, StepStarted
from deputize.shared.runs.record import Claim, nothing_to_continue
from deputize.shared.runs.store import RunStore
from deputize.worker.conversation import Conversation, current_entries
from deputize.worker.emit import Emitter
from deputize.worker.ledger import Ledger
from deputize.worker.prompt import first_message
from deputize.worker.services import Services
from deputize.worker.steps import StepLog, in_doubt, not_executed
from deputize.worker.workspace.workspace import Workspace


async def with_continued(services: Services, claim: Claim) -> Claim:
    """Returns the claim with the conversation and the kit of the delegation that it continues, if it does.

    Raises ``Conflict`` where these are gone.
    """
    if claim.request.continues is None or claim.history:
        return claim
    entries, tools = await services.store.conversation(claim.request.continues)
    if not entries:
        raise Conflict(nothing_to_continue(claim.request.continues))
    encoded = [entry.encode() for entry in entries]
    return replace(claim, continued=tuple(current_entries(encoded)), tools=claim.tools or tools)


def go_on(conversation: Conversation, claim: Claim, store: Callable[[bytes], None]) -> None:
    """Stores the continued conversation as this run's own, and adds the new task. Awaits nothing: it is one write."""
    for entry in claim.continued:
        store(entry)
    task = first_message(claim.request)
    if calls := conversation.unanswered(0):
        results = [not_executed("the delegation ended before") for _ in calls]
        conversation.answer(zip(calls, results, strict=True), task)
    else:
        conversation.ask(task)


def resumed_because(claim: Claim) -> str:
    """Returns why there is another attempt, for ``run_resumed``."""
    if claim.handed_over:
        return "the attempt before was handed over: its worker was stopped"
    return "the attempt before lost its worker"


def interrupted_because(claim: Claim) -> str:
    """Returns why a call of the previous attempt has no result, for the model."""
    return "the run was handed over to another worker" if claim.handed_over else "the worker was lost"


def ledger_of(claim: Claim, emit: Emitter, conversation: Conversation) -> Ledger:
    """Returns the ledger as earlier attempts left it, with the lost and stalled workers of the calls still open."""
    stalled = claim.stalled and bool(conversation.unanswered(0))
    return Ledger(emit, claim.ledger, interrupted_because(claim), again=claim.lost > 0, stalled=stalled)


def given_up(claim: Claim) -> str:
    return f"{claim.lost} workers in a row were lost while they carried this out; it is given up"


async def recall_steps(steps: StepLog, store: RunStore, claim: Claim) -> list[Step]:
    """Restores the started and the ended steps of earlier attempts; returns those that never ended.

    Raises ``Fenced`` while Redis is away: the lease will lapse, and the next attempt begins where this one did.
    """
    try:
        kept = [envelope.event for envelope in await store.events(claim.id)]
    except REDIS_ERRORS as error:
        raise Fenced from error
    started = [event.step for event in kept if isinstance(event, StepStarted)]
    steps.ended = [event.step for event in kept if isinstance(event, StepCompleted)]
    steps.announced |= {step.id for step in started}
    ended = {step.id for step in steps.ended}
    return [step for step in started if step.id not in ended]


async def settle_steps(steps: StepLog, store: RunStore, claim: Claim) -> None:
    """Ends the open steps of earlier attempts, for an attempt that ends before it begins to work."""
    for step in await recall_steps(steps, store, claim):
        steps.end(step, in_doubt(f"{interrupted_because(claim)} while this call was under way"))


async def files_left(services: Services, claim: Claim) -> Workspace | None:
    """Opens the workspace of the earlier attempts, for an attempt that ends before it opened one itself.

    Returns None where nothing can have changed. Raises ``OSError`` where files may have changed but are unreachable.
    """
    if claim.attempt == 1:
        return None
    try:
        return await Workspace.open(claim.id, services.settings.workspaces)
    except FileNotFoundError:
        if claim.touched_files:
            raise
        return None
