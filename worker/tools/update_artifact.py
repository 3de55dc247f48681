"""``update_artifact``: a new version of an artifact with one text replaced."""

from __future__ import annotations

from pydantic import Field

from ..text.edit import apply_edit, refuse_empty
from ..text.textfile import TextFile
from ..workspace.artifacts import Artifacts
from .artifact_tool import ArtifactParams, ArtifactWriter, Draft


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
