"""The parts of runs, in the order in which the core calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...shared.request import DelegationRequest, GitWorkspace
from ...shared.runs.record import DOUBT, WEBHOOK
from ..attempts import Attempt
from ..core.part import Part
from .handover import Handover
from .metrics import Metrics
from .notifications import Notifications
from .reading import Reading
from .snapshots import Snapshots
from .subagents import Subagents


@dataclass(frozen=True, slots=True)
class Row:
    """A part. ``make`` returns None for a run that does not have it."""

    name: str
    make: Callable[[Attempt], Part | None]


def _request(attempt: Attempt) -> DelegationRequest:
    return attempt.context.claim.request


def _webhook(attempt: Attempt) -> Part | None:
    return Notifications(attempt) if WEBHOOK in attempt.context.claim.kept else None


# These import large rooms, so only runs that have them do.


def _merge(attempt: Attempt) -> Part | None:
    if not _request(attempt).merges:
        return None
    from ..merges.merge import MergePart

    return MergePart(attempt)


def _tournament(attempt: Attempt) -> Part | None:
    if not _request(attempt).attempts:
        return None
    from ..tournament.part import TournamentPart

    return TournamentPart(attempt)


def _rounds(attempt: Attempt) -> Part | None:
    if not _request(attempt).needs_model or not _request(attempt).verify:
        return None
    from ..verification.rounds import Rounds

    return Rounds(attempt)


def _in_doubt(attempt: Attempt) -> Part | None:
    if DOUBT not in attempt.context.claim.kept:
        return None
    from .failover import InDoubt

    return InDoubt(attempt)


def _claims(attempt: Attempt) -> Part | None:
    if not _request(attempt).needs_model:
        return None
    from ..verification.summary_claims import SummaryFacts

    return SummaryFacts(attempt)


def _maintenance(attempt: Attempt) -> Part | None:
    if not attempt.services.settings.environments or not _request(attempt).needs_model:
        return None
    from .maintenance import Maintenance

    return Maintenance(attempt)


def _delivery(attempt: Attempt) -> Part | None:
    if not isinstance(_request(attempt).workspace, GitWorkspace):
        return None
    from .delivery import Delivery

    return Delivery(attempt)


def _proof(attempt: Attempt) -> Part | None:
    if not _request(attempt).verify or not attempt.services.settings.proof_key_folder.exists():
        return None
    from .proof import Proof

    return Proof(attempt)


def _retry(attempt: Attempt) -> Part | None:
    if _request(attempt).attempts:
        return None  # each of them is retried by itself
    from .retry import Retry

    return Retry(attempt)


PARTS = (
    Row("handover", Handover),  # before all others: they do not see what it does not begin
    Row("traces", lambda attempt: attempt.trace),
    Row("metrics", Metrics),
    Row("webhook", _webhook),
    Row("reading", Reading),
    Row("instructions", lambda attempt: attempt.instructions),  # behind ``reading``, which notes the task first
    Row("maintenance", _maintenance),
    Row("snapshots", Snapshots),  # behind ``reading``: what it adds to a result is bounded
    Row("merge", _merge),
    Row("tournament", _tournament),
    Row("rounds", _rounds),
    Row("failover", _in_doubt),
    Row("subagents", Subagents),  # behind ``rounds``, whose reviews are children, too
    Row("permission", lambda attempt: attempt.requests),
    Row("economy", lambda attempt: attempt.economy),  # before ``caps``, which books what it has spent
    Row("caps", lambda attempt: attempt.spending),
    Row("claims", _claims),
    Row("delivery", _delivery),
    Row("proof", _proof),  # behind ``delivery``, whose commit it states
)
LAST = (
    Row("retry", _retry),  # decides on the outcome as all other parts have settled it
)
"""Behind the parts that the worker was started with."""


def parts_of(attempt: Attempt) -> list[Part]:
    """Returns the parts of one run: our own, and those that its worker was started with."""
    makers = [*(row.make for row in PARTS), *attempt.services.parts, *(row.make for row in LAST)]
    return [part for make in makers if (part := make(attempt))]
