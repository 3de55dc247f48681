"""The artifact tools: texts that are handed over with the result, kept by name in versions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import Field

from ...shared.errors import ErrorType, ToolError
from ...shared.settings import Settings
from ...shared.text import clip
from ..contracts import FileAccess
from ..text.diff import unified_diff
from ..text.edit import apply_edit, no_change_error, refuse_empty
from ..text.output import FileDiff, OutputLimit
from ..text.textfile import TextFile, fingerprint
from ..threads import run_in_thread
from ..workspace.artifacts import Artifacts
from .base import (
    AnyTool,
    Availability,
    DisplayOptions,
    Effect,
    Kind,
    Params,
    Probed,
    Recoverable,
    Tool,
    ToolContext,
    ToolResult,
)

ArtifactsFactory = Callable[[FileAccess], Artifacts]


class ArtifactParams(Params):
    name: str = Field(description='The artifact\'s name, such as "report.md".')


A = TypeVar("A", bound=ArtifactParams)


class ArtifactTool(Tool[A]):
    """Base class. ``open_artifacts`` returns the artifacts of a run; without it the tool is unavailable."""

    availability = Availability("enable_artifacts")
    kind = Kind.THINK
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


class Draft(NamedTuple):
    """The next version of an artifact, before it is written; ``before`` is the content of the last one."""

    content: str
    version: int
    message: str
    before: str = ""


class ArtifactWriter(ArtifactTool[A], Recoverable[A]):
    """A tool that writes the next version. After a crash the version's file shows whether it was written."""

    effect = Effect.EFFECTFUL

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

    async def probe(self, ctx: ToolContext, params: A, facts: Mapping[str, Any]) -> Probed:
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


class CreateArtifactParams(ArtifactParams):
    content: str = Field(description="The complete content.")


class CreateArtifact(ArtifactWriter[CreateArtifactParams]):
    """Creates an artifact: a text that is handed over with the result, such as a report, a plan or a finding.

    It is kept under its name in versions, this one is version 1, and it is not a file of the workspace: for those use
    write_file. A name that is taken is refused: change an artifact with update_artifact or rewrite_artifact.
    """

    name = "create_artifact"
    verb = "create"
    params = CreateArtifactParams

    def draft(self, artifacts: Artifacts, params: CreateArtifactParams) -> Draft:
        if latest := artifacts.latest(params.name):
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS,
                f"Artifact {params.name!r} exists already, in version {latest}. Replace all of it with "
                "rewrite_artifact, a part of it with update_artifact, or use another name.",
            )
        return Draft(params.content, 1, f"Created artifact {params.name}: version 1, {len(params.content)} characters.")


class ReadArtifactParams(ArtifactParams):
    version: int | None = Field(default=None, ge=1, description="Which version to read. Left out: the latest.")


class ReadArtifact(ArtifactTool[ReadArtifactParams]):
    """Reads an artifact that this work has created: the latest version, or an older one by its number.

    The first line of the answer names the version; the content stands below it, without line numbers.
    """

    name = "read_artifact"
    verb = "read"
    display = DisplayOptions(output=OutputLimit(max_chars=128_000, max_tokens=32_000))
    params = ReadArtifactParams

    async def run(self, ctx: ToolContext, params: ReadArtifactParams) -> ToolResult:
        artifacts = self.artifacts(ctx)
        version, content = await run_in_thread(artifacts.read, params.name, params.version)
        latest = await run_in_thread(artifacts.latest, params.name)
        text = f"[artifact {params.name}, version {version} of {latest}]\n{content}"
        facts = {"name": params.name, "version": version, "latest": latest}
        return ToolResult(text, self.title(params), metadata=facts)


class RewriteArtifactParams(ArtifactParams):
    content: str = Field(description="The complete content of the new version.")


class RewriteArtifact(ArtifactWriter[RewriteArtifactParams]):
    """Writes a new version of an artifact with a completely new content; the older versions stay readable.

    For changes in many places. For a few local ones update_artifact is shorter and safer. The artifact must exist:
    create_artifact makes a new one.
    """

    name = "rewrite_artifact"
    verb = "rewrite"
    params = RewriteArtifactParams

    def draft(self, artifacts: Artifacts, params: RewriteArtifactParams) -> Draft:
        version, before = artifacts.read(params.name)
        if before == params.content:
            raise no_change_error(f"version {version} of artifact {params.name!r} already has this text")
        text = f"Rewrote artifact {params.name}: version {version + 1}, {len(params.content)} characters."
        return Draft(params.content, version + 1, text, before)


class UpdateArtifactParams(ArtifactParams):
    old_string: str = Field(description="The text to replace, long enough to stand in the latest version only once.")
    new_string: str = Field(description="The text that comes in its place.")
    replace_all: bool = Field(default=False, description="True replaces every place instead of exactly one.")


class UpdateArtifact(ArtifactWriter[UpdateArtifactParams]):
    """Writes a new version of an artifact in which a text of the latest version is replaced by another one.

    old_string must stand there exactly once, or set replace_all to replace every place. Small differences in blanks,
    indentation and wording are tolerated where the place is certain, and the answer reports it. The older versions stay
    readable.
    """

    name = "update_artifact"
    verb = "update"
    params = UpdateArtifactParams

    def draft(self, artifacts: Artifacts, params: UpdateArtifactParams) -> Draft:
        refuse_empty(params.old_string, params.new_string, "rewrite_artifact to replace all of it")
        version, before = artifacts.read(params.name)
        old, new = params.old_string, params.new_string
        done = apply_edit(TextFile(before), params.name, old, new, every=params.replace_all)
        text = f"{done.report(f'artifact {params.name}')} It is version {version + 1} now."
        return Draft(done.text, version + 1, text, before)
