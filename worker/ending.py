"""How a run ends: why, in whose words, and what is left in its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.artifacts import fields_of
from shared.delegation import Artifact, FileChange, FinalStatus, Status, TerminationReason
from worker.artifacts import Artifacts
from worker.output import clip
from worker.threads import to_the_end
from worker.workspace import Workspace

MAX_SUMMARY_CHARS = 16_000

_STATUS: Mapping[TerminationReason, FinalStatus] = {
    TerminationReason.COMPLETED: Status.SUCCEEDED,
    TerminationReason.CANCELLED: Status.CANCELLED,
}
"""All other reasons are failures: a limit too, whatever was done before it (C16)."""


@dataclass(frozen=True, slots=True)
class Ending:
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
class Left:
    """What a run leaves: the facts about its files with their patch, and its artifacts as the record keeps them."""

    changes: Sequence[FileChange] = ()
    patch: str | None = None
    artifacts: Sequence[Artifact] = ()
    kept: Mapping[str, str] = field(default_factory=dict[str, str])


async def left_in(workspace: Workspace | None) -> Left:
    """What is left in the workspace; nothing where the run never had one."""
    if workspace is None:
        return Left()
    artifacts, kept = await to_the_end(_artifacts, Artifacts(workspace.files))
    return Left(await workspace.changes(), await workspace.patch(), artifacts, kept)


def _artifacts(artifacts: Artifacts) -> tuple[list[Artifact], dict[str, str]]:
    listed = artifacts.listed()
    return listed, fields_of(listed, artifacts.contents(listed))
