"""Skills: their SKILL.md (agentskills.io) and other files, the loader that finds them, and the tool ``get_skill``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ...shared.errors import DeputizeError, ErrorType, ToolError
from ...shared.libc import closing_fd
from ...shared.log import log
from ...shared.settings import Settings
from ...shared.text import clip
from ..contracts import FileAccess
from ..text.output import one_line
from ..threads import run_in_thread
from ..workspace.file_entries import PRIVATE_DIR
from ..workspace.files import Files
from .base import (
    AnyTool,
    Availability,
    DisplayOptions,
    InitContext,
    Kind,
    OutputLimit,
    Params,
    Tool,
    ToolContext,
    ToolResult,
    Touches,
)

SKILL_FILE = "SKILL.md"
MAX_SKILLS = 200
_DEPTH = 3
_PACKAGE = Path(__file__).parents[1]
MAX_TEXT_BYTES = 1024 * 1024
MAX_FILES = 500
MAX_BYTES = 10 * 1024 * 1024
"""Bytes of all files of one skill that are copied into a workspace."""
_MAX_LISTED = 100
_IGNORED = {".git", "__pycache__"}
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

    front_matter: FrontMatter
    content: str
    folder: Path
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.front_matter.name

    @property
    def description(self) -> str:
        return self.front_matter.description

    @property
    def directory(self) -> str:
        """The directory of its files, relative to the workspace, after ``copy_to``."""
        return f"{PRIVATE_DIR}/skills/{self.name}"

    def to_prompt(self) -> str:
        needs, tools = self.front_matter.compatibility, self.front_matter.allowed_tools
        parts = [f"# Skill: {self.name}\n\n{self.description}"]
        parts += [f"Needs: {needs}"] if needs else []
        parts += [f"Made for these tools: {tools}"] if tools else []
        if self.files:
            more = f"\n(and {len(self.files) - _MAX_LISTED} more)" if len(self.files) > _MAX_LISTED else ""
            listed = "\n".join(f"- {one_line(path)}" for path in self.files[:_MAX_LISTED])
            parts.append(
                f"Its files are in {self.directory}, and paths in the text below are relative to that directory. "
                f"Read them with read_file when the text refers to them:\n{listed}{more}"
            )
        return "\n\n".join([*parts, f"---\n\n{self.content.strip()}"])

    def copy_to(self, files: FileAccess) -> list[str]:
        """Copies the skill's files into the workspace (``directory``).

        Returns the paths that could not be copied: unreadable, links out of the folder, or above the size limit.
        """
        left_out: list[str] = []
        room = MAX_BYTES
        try:
            source, directory = Files(self.folder), files.private_path(f"skills/{self.name}")
        except (OSError, ToolError):
            return list(self.files)
        with source:
            for path in self.files:
                try:
                    room -= _copy(source, path, files, f"{directory}/{path}", room)
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
        raise ValueError("it does not start with front matter between two lines of ---")
    front_matter = _parse_front_matter(found[1])
    if front_matter.name != file.parent.name:
        raise ValueError(f"its name is {front_matter.name!r}, but the name of its directory is {file.parent.name!r}")
    if not (found[2] or "").strip():
        raise ValueError("there is no text below its front matter")
    return Skill(front_matter, found[2], file.parent, _files_in(file.parent))


def _parse_front_matter(text: str) -> FrontMatter:
    try:
        fields = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return FrontMatter.model_validate(fields)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise ValueError("; ".join(f"{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in mistakes)) from None


def _files_in(folder: Path) -> tuple[str, ...]:
    """Returns the other files, without following links to directories, up to a limit."""
    with Files(folder) as source:
        found = (entry.path for entry in source.walk() if entry.stat.kind in ("file", "symlink"))
        ours = (path for path in found if path != SKILL_FILE and not _IGNORED & {*path.split("/")})
        return tuple(path for path, _ in zip(ours, range(MAX_FILES), strict=False))


def _copy(source: Files, path: str, files: FileAccess, target: str, room: int) -> int:
    data = source.read(path, room)
    files.write(target, data)
    found = source.stat(path)
    if found is not None and found.mode & 0o100:
        with closing_fd(files.open_fd(target)) as fd:
            os.fchmod(fd, 0o755)
    return len(data)


class SkillLoader:
    """The skills below a directory, read once. An invalid one is left out, with a warning.

    A directory that does not exist has none; raises OSError for one that cannot be read.
    """

    def __init__(self, skills_dir: Path) -> None:
        self.skills: dict[str, Skill] = {}
        for file in _skill_files(skills_dir, _DEPTH) if skills_dir.exists() else ():
            if len(self.skills) == MAX_SKILLS:
                log.warning("only %d skills are loaded; the others in %s are left out", MAX_SKILLS, skills_dir)
                break
            try:
                skill = read_skill(file)
                if self.skills.setdefault(skill.name, skill) is not skill:
                    raise ValueError("there is one of that name already")
            except (OSError, ValueError) as error:
                log.warning("the skill %s is left out: %s", file, error)

    def get_skill(self, name: str) -> Skill | None:
        return self.skills.get(name)

    def list_skills(self) -> list[str]:
        return sorted(self.skills)


def find_skills_dir(given: Path, home: Path, *, named: bool = True) -> Path:
    """Returns the directory of the skills. An absolute path is used as it is; a relative one is searched below the
    working directory, ``home`` (``DEPUTIZE_HOME``) and this package, in this order. The default path, not ``named`` by
    the operator, is not searched in the working directory, whose files may be untrusted.

    Returns the first that exists, as an absolute path. If none exists, a ``named`` path is returned unchanged, the
    default one below ``home``.
    """
    if given.is_absolute():
        return given
    candidates = (*([Path.cwd() / given] if named else []), home / given, _PACKAGE / given)
    found = (directory.resolve() for directory in candidates if directory.exists())
    return next(found, given if named else home / given)


def _skill_files(folder: Path, depth: int) -> Iterator[Path]:
    """Yields each SKILL.md below the folder; a skill's own directories are not searched."""
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        try:
            if (folder / name / SKILL_FILE).is_file():
                yield folder / name / SKILL_FILE
            elif depth:
                yield from _skill_files(folder / name, depth - 1)
        except OSError as error:
            log.warning("skills in %s cannot be read: %s", folder / name, error)


DEFAULT_DIR = Path("skills")
MAX_LISTED_CHARS = 16_000
"""Limit of all skills' descriptions together, in the description of the tool."""


class GetSkillParams(Params):
    skill_name: str = Field(description="The skill's name, as the list in this tool's description has it.")


class GetSkill(Tool[GetSkillParams]):
    """Gets the complete content and guidance of a specified skill, used for executing specific types of tasks.

    When the task fits a skill's description, get that skill before you begin, and follow it. Files that belong to
    the skill are put into the workspace; the answer names them.
    """

    name = "get_skill"
    availability = Availability("enable_skills", by_default=True)
    kind = Kind.READ
    display = DisplayOptions("skill", OutputLimit(max_chars=128_000, max_tokens=32_000))
    aliases = ("skill", "Skill")
    params = GetSkillParams

    def __init__(self, loader: SkillLoader | None = None, only: Collection[str] | None = None) -> None:
        self.loader = loader
        known = loader.skills if loader else {}
        self._skills: Mapping[str, Skill] = {
            name: known[name] for name in sorted(known) if only is None or name in only
        }

    def configured(self, settings: Settings) -> AnyTool | None:
        """Returns the tool with the configured skills; None if skills are disabled or none is found."""
        if settings.skills is None and not settings.tools.enable_skills:
            return None
        try:
            named = settings.skills is not None
            tools, _ = create_skill_tools(find_skills_dir(settings.skills or DEFAULT_DIR, settings.home, named=named))
        except (DeputizeError, OSError, ValueError, RecursionError) as error:  # the worker continues without skills
            log.warning("Failed to load Skills: %s", error)
            return None
        return next(iter(tools), None)

    async def ready(self, ctx: InitContext) -> AnyTool:
        """Returns the tool with the skills of this run: the worker's, or those that the request selects."""
        if ctx.skills.keys() == self.skills.keys():
            return self
        return GetSkill(self.loader, ctx.skills.keys())

    @property
    def skills(self) -> Mapping[str, str]:
        return {name: skill.description for name, skill in self._skills.items()}

    @property
    def description(self) -> str:
        each = max(80, MAX_LISTED_CHARS // (len(self._skills) or 1))
        listed = "\n".join(f"- {name}: {clip(description, each)}" for name, description in self.skills.items())
        return f"{super().description}\n\nAvailable skills:\n{listed or '(none)'}"

    @property
    def schema(self) -> dict[str, Any]:
        schema = super().schema
        if self._skills:
            schema["properties"]["skill_name"]["enum"] = [*self._skills]
        return schema

    def title(self, params: GetSkillParams) -> str:
        return f"skill {clip(params.skill_name, 80)}"

    def touches(self, params: GetSkillParams) -> Touches:
        skill = self._skills.get(params.skill_name)
        return Touches(paths=(skill.directory,) if skill else ())

    async def run(self, ctx: ToolContext, params: GetSkillParams) -> ToolResult:
        skill = self._skills.get(params.skill_name)
        if skill is None:
            message = (
                f"Skill '{params.skill_name}' does not exist. Available skills: {', '.join(self._skills) or 'none'}"
            )
            raise ToolError(ErrorType.INVALID_TOOL_PARAMS, message)
        left_out = await run_in_thread(skill.copy_to, ctx.files)
        content = skill.to_prompt()
        if left_out:
            content += f"\n\n(These files could not be copied: {clip(', '.join(left_out), 2000)})"
        facts = {"skill": skill.name, "files": len(skill.files) - len(left_out), "leftOut": len(left_out)}
        return ToolResult(content, self.title(params), metadata=facts)


def create_skill_tools(skills_dir: Path) -> tuple[list[AnyTool], SkillLoader]:
    """Returns the tools for the skills in a directory (none for an empty one) and their loader."""
    loader = SkillLoader(skills_dir)
    names = loader.list_skills()
    if not names:
        log.warning("No available Skills found in %s", skills_dir)
        return [], loader
    log.info("loaded %d skills from %s: %s", len(names), skills_dir, ", ".join(names))
    return [GetSkill(loader)], loader


def skills_of(tools: Iterable[AnyTool]) -> Mapping[str, str]:
    """Returns the skills that these tools offer: name → description."""
    return next((tool.skills for tool in tools if isinstance(tool, GetSkill)), {})
