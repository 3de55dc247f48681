"""The parts of runs, in the order in which the core calls them. Each is imported by the runs that have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...shared.request import DelegationRequest, GitWorkspace
from ..attempts import Attempt
from ..core.part import Part


@dataclass(frozen=True, slots=True)
class Row:
    """A part, and which runs have it."""

    name: str
    has: Callable[[DelegationRequest], bool]
    make: Callable[[Attempt], Part]


def _merge(attempt: Attempt) -> Part:
    from ..merges.merge import MergePart

    return MergePart(attempt)


def _rounds(attempt: Attempt) -> Part:
    from ..verification.rounds import Rounds

    return Rounds(attempt)


def _claims(attempt: Attempt) -> Part:
    from ..verification.summary_claims import ClaimsPart

    return ClaimsPart(attempt)


def _delivery(attempt: Attempt) -> Part:
    from .delivery import Delivery

    return Delivery(attempt)


PARTS = (
    Row("merge", lambda request: bool(request.merges), _merge),
    Row("rounds", lambda request: bool(request.verify) and not request.merges, _rounds),
    Row("claims", lambda request: not request.merges, _claims),
    Row("delivery", lambda request: isinstance(request.workspace, GitWorkspace), _delivery),
)


def parts_of(attempt: Attempt) -> list[Part]:
    """Returns the parts of one run: our own, and those that its worker was started with."""
    own = [row.make(attempt) for row in PARTS if row.has(attempt.context.claim.request)]
    return own + [make(attempt) for make in attempt.services.parts]
