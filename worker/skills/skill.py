"""One skill: its SKILL.md (agentskills.io), and its other files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared.errors import ToolError
from worker.text.output import one_line
from worker.workspace.file_entries import PRIVATE_DIR
from worker.workspace.files import Files, private_path

SKILL_FILE = "SKILL.md"
MAX_TEXT_BYTES = 1024 * 1024
MAX_FILES = 500
MAX_BYTES = 10 * 1024 * 1024
"""Of all files of one skill that are copied into a workspace."""
_LISTED = 100
_NOT_OURS = {".git", "__pycache__"}
_PARTS = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n(.*)|\Z)", re.DOTALL)


class FrontMatter(BaseModel):
    """The front matter of a SKILL.md. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(max_length=64, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    description: str = Field(min_length=1, max_length=1024)
    license: str | None = None
    compatibility: str | None = Field(default=None, max_length=500)
    metadata: Mapping[str, str] = {}
    allowed_tools: str | None = Field(default=None, alias="allowed-tools")

    @field_validator("description", mode="before")
    @classmethod
    def _trimmed(cls, value: Any) -> Any:
        return " ".join(value.split()) if isinstance(value, str) else value

    @field_validator("metadata", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Converts numbers and dates, as which YAML parses unquoted strings."""
        return {str(key): str(part) for key, part in value.items()} if isinstance(value, Mapping) else value

    @field_validator("allowed_tools", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        return " ".join(map(str, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Skill:
    """``content`` is the text below the front matter, ``files`` are the other files, relative to its folder."""

    head: FrontMatter
    content: str
    folder: Path
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.head.name

    @property
    def description(self) -> str:
        return self.head.description

    @property
    def place(self) -> str:
        """The directory of its files, relative to the workspace, after ``put_into``."""
        return f"{PRIVATE_DIR}/skills/{self.name}"

    def to_prompt(self) -> str:
        """Returns the whole skill as text for the model."""
        parts = [f"# Skill: {self.name}\n\n{self.description}"]
        if self.head.compatibility:
            parts.append(f"Needs: {self.head.compatibility}")
        if self.head.allowed_tools:
            parts.append(f"Made for these tools: {self.head.allowed_tools}")
        if self.files:
            more = f"\n(and {len(self.files) - _LISTED} more)" if len(self.files) > _LISTED else ""
            listed = "\n".join(f"- {one_line(path)}" for path in self.files[:_LISTED])
            parts.append(
                f"Its files are in {self.place}, and paths in the text below are relative to that directory. "
                f"Read them with read_file when the text refers to them:\n{listed}{more}"
            )
        return "\n\n".join([*parts, f"---\n\n{self.content.strip()}"])

    def put_into(self, files: Files) -> list[str]:
        """Copies the skill's files into the workspace (``place``).

        Returns the paths that could not be copied: unreadable, links out of the folder, or above the size limit.
        """
        left_out: list[str] = []
        room = MAX_BYTES
        try:
            source, place = Files(self.folder), private_path(files, f"skills/{self.name}")
        except (OSError, ToolError):
            return list(self.files)
        with source:
            for path in self.files:
                try:
                    room -= _copy(source, path, files, f"{place}/{path}", room)
                except ToolError:
                    left_out.append(path)
        return left_out


def read_skill(file: Path) -> Skill:
    """Reads a SKILL.md. Raises OSError, or ValueError with what is invalid."""
    if file.stat().st_size > MAX_TEXT_BYTES:
        raise ValueError(f"{SKILL_FILE} has more than {MAX_TEXT_BYTES} bytes")
    text = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    found = _PARTS.match(text)
    if found is None:
        raise ValueError("it does not begin with front matter between two lines of ---")
    head = _head(found[1])
    if head.name != file.parent.name:
        raise ValueError(f"its name is {head.name!r}, but its directory is called {file.parent.name!r}")
    if not (found[2] or "").strip():
        raise ValueError("there is no text below its front matter")
    return Skill(head, found[2], file.parent, _files_in(file.parent))


def _head(text: str) -> FrontMatter:
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return FrontMatter.model_validate(said)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise ValueError("; ".join(f"{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in mistakes)) from None


def _files_in(folder: Path) -> tuple[str, ...]:
    """Returns the other files, without following links to directories, up to a limit."""
    with Files(folder) as source:
        found = (entry.path for entry in source.walk() if entry.stat.kind in ("file", "symlink"))
        ours = (path for path in found if path != SKILL_FILE and not _NOT_OURS & {*path.split("/")})
        return tuple(path for path, _ in zip(ours, range(MAX_FILES), strict=False))


def _copy(source: Files, path: str, files: Files, target: str, room: int) -> int:
    data = source.read(path, room)
    files.write(target, data)
    found = source.stat(path)
    if found is not None and found.mode & 0o100:
        fd = files.open_fd(target)
        try:
            os.fchmod(fd, 0o755)
        finally:
            os.close(fd)
    return len(data)
