"""``rewrite_artifact``: a new version of an artifact with new content."""

from __future__ import annotations

from pydantic import Field

from ..text.edit import no_change_error
from ..workspace.artifacts import Artifacts
from .artifact_tool import ArtifactParams, ArtifactWriter, Draft


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
