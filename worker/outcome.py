"""The outcome of a run: termination reason, summary, and the outputs in its workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..shared.delegation import Artifact, FinalStatus, Status, TerminationReason
from ..shared.runs.artifacts import fields_of
from ..shared.text import clip
from .fleet.lease import StopSignal
from .threads import run_in_thread
from .workspace.artifacts import Artifacts
from .workspace.deadline import Deadline
from .workspace.patches import Facts
from .workspace.workspace import Workspace

MAX_SUMMARY_CHARS = 16_000
ENDING_SECONDS = 20.0
"""Seconds for the comparison of a run's files with their original state."""
HURRIED_SECONDS = 5.0
"""The same limit, from the time the run is asked to stop."""

_STATUS: Mapping[TerminationReason, FinalStatus] = {
    TerminationReason.COMPLETED: Status.SUCCEEDED,
    TerminationReason.CANCELLED: Status.CANCELLED,
}
"""All other reasons are failures, limits included, whatever was done before."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Why the run ended, and the summary to use where the model wrote none."""

    reason: TerminationReason
    words: str = ""
    may_pass: bool = True
    """Whether the same run may end better at another time; wrong credentials do not."""

    @property
    def status(self) -> FinalStatus:
        return _STATUS.get(self.reason, Status.FAILED)

    def masked(self, mask: Callable[[str], str]) -> RunOutcome:
        """Returns it with its words masked, before the summary is cut: half a secret could not be recognized."""
        return replace(self, words=mask(self.words))

    @property
    def summary(self) -> str:
        return clip(self.words.strip(), MAX_SUMMARY_CHARS)


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """A run's outputs: its file changes with their patch, and its artifacts as the record stores them."""

    facts: Facts | None = None
    artifacts: Sequence[Artifact] = ()
    kept: Mapping[str, str] = field(default_factory=dict[str, str])
    disk_bytes: int | None = None
    known: bool = True
    """Whether the files could be read."""

    @property
    def patch(self) -> str | None:
        return self.facts.patch if self.facts else None

    @property
    def of_files(self) -> dict[str, Any]:
        """Returns the result's fields about files."""
        facts = self.facts or Facts()
        return {
            "files_modified": [change.path for change in facts.changes],
            "file_changes": [*facts.changes],
            "truncated": bool(facts.left_out) or not self.known,
            "left_out": [*facts.left_out, *facts.not_copied],
            "ignored_files": [*facts.ignored],
            "ignored_count": facts.ignored_count,
        }


async def collect_outputs(
    workspace: Workspace | None, stop: StopSignal, seconds: float = ENDING_SECONDS, *, hurried: float = HURRIED_SECONDS
) -> RunOutputs:
    """Collects the outputs from the workspace within the time limit; nothing where the run never had one.

    A request to stop shortens the limit to HURRIED_SECONDS.
    """
    if workspace is None:
        return RunOutputs()
    deadline = Deadline(seconds)
    hurry = asyncio.create_task(_hurry(stop, deadline, hurried))
    try:
        return await run_in_thread(_outputs, workspace, deadline)
    finally:
        hurry.cancel()
        await asyncio.wait({hurry})


async def _hurry(stop: StopSignal, deadline: Deadline, seconds: float) -> None:
    await stop.wait()
    deadline.shorten(seconds)


def _outputs(workspace: Workspace, deadline: Deadline) -> RunOutputs:
    artifacts = Artifacts(workspace.files)
    latest_versions = artifacts.latest_versions()
    kept = fields_of(latest_versions, artifacts.contents(latest_versions))
    return RunOutputs(workspace.compare(deadline), latest_versions, kept, workspace.disk_bytes())
