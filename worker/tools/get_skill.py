"""``get_skill``: the guidance for one kind of task, loaded when it is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from ...shared.errors import DeputizeError, ErrorType, ToolError
from ...shared.log import log
from ...shared.settings import Settings
from ...shared.text import clip
from ..skills.skill import Skill, SkillLoader, find_skills_dir
from ..threads import run_in_thread
from .base import AnyTool, Availability, Effect, Kind, OutputLimit, Params, Tool, ToolResult
from .context import InitContext, ToolContext, Touches

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
    effect = Effect.PURE
    step_type = "skill"
    aliases = ("skill", "Skill")
    output = OutputLimit(max_chars=128_000, max_tokens=32_000)
    params = GetSkillParams

    def __init__(self, loader: SkillLoader | None = None, only: Collection[str] | None = None) -> None:
        self.loader = loader
        names = loader.list_skills() if loader else []
        found = (loader.get_skill(name) for name in names if only is None or name in only) if loader else ()
        self._skills: Mapping[str, Skill] = {skill.name: skill for skill in found if skill}

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
        """The skills: name → description."""
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
            known = ", ".join(self._skills) or "none"
            raise ToolError(
                ErrorType.INVALID_TOOL_PARAMS, f"Skill '{params.skill_name}' does not exist. Available skills: {known}"
            )
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
