"""``create_artifact``: a new artifact."""

from __future__ import annotations

from pydantic import Field

from ...shared.errors import ErrorType, ToolError
from ..workspace.artifacts import Artifacts
from .artifact_tool import ArtifactParams, ArtifactWriter, Draft


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
