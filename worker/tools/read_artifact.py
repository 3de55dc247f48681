"""``read_artifact``: the latest or an older version of an artifact."""

from __future__ import annotations

from pydantic import Field

from ..text.output import OutputLimit
from ..threads import run_in_thread
from .artifact_tool import ArtifactParams, ArtifactTool
from .base import ToolResult
from .context import ToolContext


class ReadArtifactParams(ArtifactParams):
    version: int | None = Field(default=None, ge=1, description="Which version to read. Left out: the latest.")


class ReadArtifact(ArtifactTool[ReadArtifactParams]):
    """Reads an artifact that this work has created: the latest version, or an older one by its number.

    The first line of the answer names the version; the content stands below it, without line numbers.
    """

    name = "read_artifact"
    verb = "read"
    output = OutputLimit(max_chars=128_000, max_tokens=32_000)
    params = ReadArtifactParams

    async def run(self, ctx: ToolContext, params: ReadArtifactParams) -> ToolResult:
        return await run_in_thread(self._read, ctx, params)

    def _read(self, ctx: ToolContext, params: ReadArtifactParams) -> ToolResult:
        artifacts = self.artifacts(ctx)
        version, content = artifacts.read(params.name, params.version)
        latest = artifacts.latest(params.name)
        text = f"[artifact {params.name}, version {version} of {latest}]\n{content}"
        return ToolResult(
            text, self.title(params), metadata={"name": params.name, "version": version, "latest": latest}
        )
