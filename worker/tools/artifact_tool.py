"""Base classes of the artifact tools: access to artifacts, and writing a new version exactly once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import Field

from ...shared.errors import ToolError
from ...shared.settings import Settings
from ...shared.text import clip
from ..text.diff import unified_diff
from ..text.output import FileDiff, OutputLimit
from ..text.textfile import fingerprint
from ..threads import run_in_thread
from ..workspace.artifacts import Artifacts
from ..workspace.files import Files
from .base import AnyTool, Availability, Effect, Kind, Params, Recoverable, Tool, ToolResult
from .context import ToolContext

ArtifactsFactory = Callable[[Files], Artifacts]


class ArtifactParams(Params):
    name: str = Field(description='The artifact\'s name, such as "report.md".')


A = TypeVar("A", bound=ArtifactParams)


class ArtifactTool(Tool[A]):
    """Base class. ``open_artifacts`` returns the artifacts of a run; without it the tool is unavailable."""

    availability = Availability("enable_artifacts")
    kind = Kind.THINK
    effect = Effect.PURE
    verb = ""

    def __init__(self, open_artifacts: ArtifactsFactory | None = Artifacts) -> None:
        self.open_artifacts = open_artifacts

    def configured(self, settings: Settings) -> AnyTool | None:
        return self if self.open_artifacts else None

    def artifacts(self, ctx: ToolContext) -> Artifacts:
        assert self.open_artifacts is not None, "a tool without artifacts is never offered"
        return self.open_artifacts(ctx.files)

    def title(self, params: A) -> str:
        return f"{self.verb} artifact {clip(params.name, 60)}"


@dataclass(frozen=True, slots=True)
class Draft:
    """The next version of an artifact, before it is written; ``before`` is the content of the last one."""

    content: str
    version: int
    message: str
    before: str = ""


class ArtifactWriter(ArtifactTool[A], Recoverable[A]):
    """A tool that writes the next version. After a crash the version's file shows whether it was written."""

    effect = Effect.EFFECTFUL
    output = OutputLimit()

    @abstractmethod
    def draft(self, artifacts: Artifacts, params: A) -> Draft:
        """Returns the version to write, without writing it. Raises ToolError if it is not possible."""

    async def facts(self, ctx: ToolContext, params: A) -> dict[str, Any]:
        """Returns the number and the fingerprint of the next version; empty if there will be none."""
        try:
            draft = await run_in_thread(self.draft, self.artifacts(ctx), params)
        except ToolError:
            return {}
        return {"version": draft.version, "content": _fingerprint(draft.content)}

    async def probe(self, ctx: ToolContext, params: A, facts: Mapping[str, Any]) -> ToolResult | Literal[False] | None:
        """Compares the version's file with the fingerprint; different content was written by another call."""
        artifacts = self.artifacts(ctx)
        if not facts or await run_in_thread(artifacts.latest, params.name) < facts["version"]:
            return False
        version, content = await run_in_thread(artifacts.read, params.name, facts["version"])
        if _fingerprint(content) != facts["content"]:
            return None
        message = f"Version {version} of artifact {params.name} was written, before the run was interrupted."
        return ToolResult(message, self.title(params), metadata={"name": params.name, "version": version})

    async def run(self, ctx: ToolContext, params: A) -> ToolResult:
        return await run_in_thread(self._write, self.artifacts(ctx), params)

    def _write(self, artifacts: Artifacts, params: A) -> ToolResult:
        with artifacts.edit_lock(params.name):
            draft = self.draft(artifacts, params)
            artifacts.add(params.name, draft.content, draft.version)
        diff = unified_diff(draft.before, draft.content, params.name, created=draft.version == 1)
        facts = {"name": params.name, "version": draft.version, "characters": len(draft.content)}
        display = FileDiff(params.name, diff.text, diff.added, diff.removed)
        return ToolResult(draft.message, self.title(params), display=display, metadata=facts)


def _fingerprint(content: str) -> str:
    return fingerprint(content.encode("utf-8", "replace"))
