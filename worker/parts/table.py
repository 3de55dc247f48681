"""The parts of runs, in the order in which the core calls them. Each is imported by the runs that have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...shared.request import DelegationRequest, GitWorkspace
from ...shared.runs.record import WEBHOOK
from ..attempts import Attempt
from ..core.part import Part


@dataclass(frozen=True, slots=True)
class Row:
    """A part, and which runs have it."""

    name: str
    has: Callable[[Attempt], bool]
    make: Callable[[Attempt], Part]


def _request(attempt: Attempt) -> DelegationRequest:
    return attempt.context.claim.request


def _traces(attempt: Attempt) -> Part:
    assert attempt.trace
    return attempt.trace


def _metrics(attempt: Attempt) -> Part:
    from .metrics import Metrics

    return Metrics(attempt)


def _webhook(attempt: Attempt) -> Part:
    from .notifications import Notifications

    return Notifications(attempt)


def _reading(attempt: Attempt) -> Part:
    from .reading import Reading

    return Reading(attempt)


def _snapshots(attempt: Attempt) -> Part:
    from .snapshots import Snapshots

    return Snapshots(attempt)


def _merge(attempt: Attempt) -> Part:
    from ..merges.merge import MergePart

    return MergePart(attempt)


def _rounds(attempt: Attempt) -> Part:
    from ..verification.rounds import Rounds

    return Rounds(attempt)


def _claims(attempt: Attempt) -> Part:
    from ..verification.summary_claims import SummaryFacts

    return SummaryFacts(attempt)


def _delivery(attempt: Attempt) -> Part:
    from .delivery import Delivery

    return Delivery(attempt)


PARTS = (
    Row("traces", lambda attempt: attempt.trace is not None, _traces),
    Row("metrics", lambda attempt: True, _metrics),
    Row("webhook", lambda attempt: WEBHOOK in attempt.context.claim.kept, _webhook),
    Row("reading", lambda attempt: True, _reading),
    Row("snapshots", lambda attempt: True, _snapshots),  # behind ``reading``: what it adds to a result is bounded
    Row("merge", lambda attempt: bool(_request(attempt).merges), _merge),
    Row("rounds", lambda attempt: bool(_request(attempt).verify) and not _request(attempt).merges, _rounds),
    Row("claims", lambda attempt: not _request(attempt).merges, _claims),
    Row("delivery", lambda attempt: isinstance(_request(attempt).workspace, GitWorkspace), _delivery),
)


def parts_of(attempt: Attempt) -> list[Part]:
    """Returns the parts of one run: our own, and those that its worker was started with."""
    own = [row.make(attempt) for row in PARTS if row.has(attempt)]
    return own + [make(attempt) for make in attempt.services.parts]
