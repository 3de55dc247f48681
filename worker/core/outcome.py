"""The outcome of a run: why it ended, and the words with which it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ...shared.delegation import FinalStatus, Status, TerminationReason
from ...shared.events import RunRetried
from ...shared.text import clip

MAX_SUMMARY_CHARS = 16_000

_STATUS: Mapping[TerminationReason, FinalStatus] = {
    TerminationReason.COMPLETED: Status.SUCCEEDED,
    TerminationReason.CANCELLED: Status.CANCELLED,
    TerminationReason.WRAPPED_UP: Status.CANCELLED,
}
"""All other reasons are failures, limits included, whatever was done before."""


class RunCancelled(Exception):
    """The delegation was cancelled on request."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Why the run ended, and the summary to use where the model wrote none."""

    reason: TerminationReason
    words: str = ""
    may_pass: bool = True
    """Whether the same run may end better at another time; wrong credentials do not."""
    is_report: bool = False
    """Whether the model wrote the words after its last call."""
    of_loop: bool = False
    """Whether it comes from the loop, while that can go on."""
    again: RunRetried | None = None
    """The event of another try, which follows in place of a result."""

    @property
    def status(self) -> FinalStatus:
        return _STATUS.get(self.reason, Status.FAILED)

    def masked(self, mask: Callable[[str], str]) -> RunOutcome:
        """Returns it with its words masked, before the summary is cut: half a secret could not be recognized."""
        return replace(self, words=mask(self.words))

    @property
    def summary(self) -> str:
        return clip(self.words.strip(), MAX_SUMMARY_CHARS)
