"""How a run ends: why, in whose words, and what is left in its workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.delegation import Artifact, FinalStatus, Status, TerminationReason
from shared.runs.artifacts import fields_of
from shared.text import clip
from worker.fleet.lease import StopSignal
from worker.threads import run_in_thread
from worker.workspace.allowance import Allowance
from worker.workspace.artifacts import Artifacts
from worker.workspace.comparison import Facts
from worker.workspace.workspace import Workspace

MAX_SUMMARY_CHARS = 16_000
ENDING_SECONDS = 20.0
"""For the comparison of a run's files with what they were."""
HURRIED_SECONDS = 5.0
"""For the same, from when the run is told to stop."""

_STATUS: Mapping[TerminationReason, FinalStatus] = {
    TerminationReason.COMPLETED: Status.SUCCEEDED,
    TerminationReason.CANCELLED: Status.CANCELLED,
}
"""All other reasons are failures: a limit too, whatever was done before it."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Why the run ended, and what to say where the model's own words are missing."""

    reason: TerminationReason
    words: str = ""

    @property
    def status(self) -> FinalStatus:
        return _STATUS.get(self.reason, Status.FAILED)

    @property
    def summary(self) -> str:
        return clip(self.words.strip(), MAX_SUMMARY_CHARS)


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """What a run leaves: the facts about its files with their patch, and its artifacts as the record keeps them."""

    facts: Facts | None = None
    artifacts: Sequence[Artifact] = ()
    kept: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def patch(self) -> str | None:
        return self.facts.patch if self.facts else None

    @property
    def of_files(self) -> dict[str, Any]:
        """The result's fields about files."""
        facts = self.facts or Facts()
        return {
            "files_modified": [change.path for change in facts.changes],
            "file_changes": [*facts.changes],
            "truncated": bool(facts.left_out),
            "left_out": [*facts.left_out, *facts.not_copied],
        }


async def collect_outputs(
    workspace: Workspace | None, stop: StopSignal, seconds: float = ENDING_SECONDS, *, hurried: float = HURRIED_SECONDS
) -> RunOutputs:
    """What is left in the workspace, as far as it can be told in time; nothing where the run never had one.

    Who is told to stop meanwhile hurries.
    """
    if workspace is None:
        return RunOutputs()
    artifacts, kept = await run_in_thread(_artifacts, Artifacts(workspace.files))
    allowance = Allowance(seconds)
    hurry = asyncio.create_task(_hurry(stop, allowance, hurried))
    try:
        return RunOutputs(await workspace.facts(allowance), artifacts, kept)
    finally:
        hurry.cancel()
        await asyncio.wait({hurry})


async def _hurry(stop: StopSignal, allowance: Allowance, seconds: float) -> None:
    await stop.wait()
    allowance.shorten(seconds)


def _artifacts(artifacts: Artifacts) -> tuple[list[Artifact], dict[str, str]]:
    listed = artifacts.listed()
    return listed, fields_of(listed, artifacts.contents(listed))
