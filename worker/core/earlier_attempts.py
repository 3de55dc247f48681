"""What the attempts before this one left."""

from __future__ import annotations

from collections.abc import Iterable

from ...shared.delegation import Step
from ...shared.events import Envelope, StepCompleted, StepStarted
from ...shared.runs.record import ALONE_AFTER, MOST_STARTS, Claim
from .conversation import calls_in
from .run_context import StepLog


def interrupted_because(claim: Claim) -> str:
    """Returns why a call of the previous attempt has no result, for the model."""
    return "the run was handed over to another worker" if claim.past.handed_over else "the worker was lost"


def given_up_because(claim: Claim, most_lost: int) -> str:
    """Returns why the run is given up after its workers were lost or blocked; "" if it continues."""
    if claim.past.lost >= most_lost:
        return f"{claim.past.lost} workers in a row were lost while they carried this out; it is given up"
    if claim.past.starts >= MOST_STARTS:
        return (
            f"the worker's event loop was blocked during this run, and {claim.past.starts} processes of its own ended "
            "before they claimed it: the workers' logs have the reason; it is given up"
        )
    if claim.past.stalls <= ALONE_AFTER:
        return ""
    names = [block["name"] for block in (calls_in(claim.history[-1]) if claim.history else ())]
    during = f", the last time in the call of {' and '.join(dict.fromkeys(names))}" if names else ""
    return f"the worker's event loop was blocked {claim.past.stalls} times during this run{during}; it is given up"


def recall_steps(steps: StepLog, claim: Claim, events: Iterable[Envelope]) -> list[Step]:
    """Restores the started and the ended steps of earlier attempts; returns those that never ended."""
    kept = [envelope.event for envelope in events if envelope.attempt > claim.past.retried_after]
    started = [event.step for event in kept if isinstance(event, StepStarted)]
    steps.ended = [event.step for event in kept if isinstance(event, StepCompleted)]
    steps.announced |= {step.id for step in started}
    ended = {step.id for step in steps.ended}
    return [step for step in started if step.id not in ended]
