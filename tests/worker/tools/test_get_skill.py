"""get_skill: which skills there are, what the model reads of one, and where its files are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.events import RunStarted, StepCompleted
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.toolkit.registry import available_tools, default_kit, find_tool
from deputize.worker.tools import DEFAULT_KIT
from deputize.worker.tools.base import AnyTool, InitContext, Kind, ToolResult
from deputize.worker.tools.skills import GetSkill, SkillLoader, create_skill_tools, skills_of
from tests.running import Bench, call, open_bench, say, script
from tests.skills import write_skill
from tests.toolbench import Toolbench


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    top = tmp_path / "skills"
    write_skill(top, "pdf", "# Steps\n\nRun scripts/split.sh.", {"scripts/split.sh": "#!/bin/sh\necho split\n"})
    write_skill(top, "slides", "Ten words a slide.")
    (top / "pdf/scripts/split.sh").chmod(0o755)
    return top


def made(folder: Path, **tools: Any) -> AnyTool | None:
    """The tool as a worker with these settings offers it."""
    configured = available_tools(Settings.load(environ={}, skills_dir=folder, tools=tools or None))
    return next((tool for tool in configured if tool.name == "get_skill"), None)


async def get(desk: Toolbench, skills: Path, name: str) -> ToolResult:
    tool = GetSkill(SkillLoader(skills))
    return await tool.run(desk.context(), tool.parse({"skill_name": name}))


@pytest.mark.requirement("S000-096", "S000-100", "S000-098")
async def test_a_skill_is_read_as_a_whole(bare_desk: Toolbench, skills: Path) -> None:
    result = await get(bare_desk, skills, "pdf")
    skill = SkillLoader(skills).get_skill("pdf")
    assert skill is not None
    assert (
        result.content
        == skill.to_prompt()
        == (
            "# Skill: pdf\n\nHow pdf is done.\n\n"
            "Its files are in .deputize/skills/pdf, and paths in the text below are relative to that directory. "
            "Read them with read_file when the text refers to them:\n- scripts/split.sh\n\n"
            "---\n\n# Steps\n\nRun scripts/split.sh."
        )
    )
    assert result.title == "skill pdf"
    assert result.metadata == {"skill": "pdf", "files": 1, "leftOut": 0}


async def test_its_files_are_where_the_tools_and_commands_of_the_run_reach_them(desk: Toolbench, skills: Path) -> None:
    await get(desk, skills, "pdf")
    read = await desk.call("read_file", path=".deputize/skills/pdf/scripts/split.sh")
    assert "echo split" in read.content
    ran = await desk.call("bash", command=".deputize/skills/pdf/scripts/split.sh")
    assert ran.content.strip() == "split"
    await get(desk, skills, "pdf")  # again, over what is there
    assert (await desk.call("glob", pattern="**/*")).metadata["total"] == 0


@pytest.mark.requirement("S000-099", "S000-102")
async def test_an_unknown_skill_is_answered_with_the_names_there_are(desk: Toolbench, skills: Path) -> None:
    tool = GetSkill(SkillLoader(skills))
    for arguments in ({"skill_name": "pfd"}, {"skill": "pfd"}):
        with pytest.raises(ToolError) as caught:
            await tool.run(desk.context(), tool.parse(arguments))
        assert caught.value.message == "Skill 'pfd' does not exist. Available skills: pdf, slides"
        assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("S000-096", "S000-097", "S000-101", "S000-102", "S002-010", "S002-012", "S002-025")
def test_the_description_and_the_parameter_name_what_there_is_and_no_more(skills: Path) -> None:
    tool = made(skills)
    assert tool is not None
    assert "complete content and guidance" in tool.description
    assert "specific types of tasks" in tool.description
    assert tool.description.endswith("Available skills:\n- pdf: How pdf is done.\n- slides: How slides is done.")
    assert "Ten words" not in tool.description
    assert "list_skills" not in tool.description + json.dumps(tool.schema)
    assert tool.schema["properties"]["skill_name"]["type"] == "string"
    assert tool.schema["properties"]["skill_name"]["enum"] == ["pdf", "slides"]
    assert tool.schema["required"] == ["skill_name"]
    assert find_tool({tool.name: tool}, "skill") is tool
    assert tool.display.step_type == "skill"


def test_many_skills_do_not_flood_the_description(tmp_path: Path) -> None:
    for number in range(60):
        write_skill(tmp_path, f"skill-{number}", description="x" * 1024)
    tool = made(tmp_path)
    assert tool is not None
    assert len(tool.description) < 20_000
    assert "- skill-59: xxx" in tool.description


@pytest.mark.requirement("S002-013")
async def test_a_run_has_the_skills_its_context_names(skills: Path) -> None:
    tool = made(skills)
    assert tool is not None
    known = skills_of([tool])
    assert known == {"pdf": "How pdf is done.", "slides": "How slides is done."}
    assert await tool.ready(InitContext("dlg", known)) is tool
    narrow = await tool.ready(InitContext("dlg", {"pdf": known["pdf"]}))
    assert narrow is not None
    assert narrow.schema["properties"]["skill_name"]["enum"] == ["pdf"]
    assert skills_of([]) == {}


@pytest.mark.requirement("S000-009", "S000-015")
def test_skills_are_offered_where_they_are_set_up_and_not_switched_off(skills: Path, tmp_path: Path) -> None:
    tools, loader = create_skill_tools(skills)
    assert ([tool.name for tool in tools], loader.list_skills()) == (["get_skill"], ["pdf", "slides"])
    assert create_skill_tools(tmp_path / "none")[0] == []
    settings = Settings(skills_dir=skills)
    assert default_kit(settings) == (*DEFAULT_KIT, "get_skill")
    assert made(skills) is not None
    assert made(skills, enable_skills=False) is None
    assert made(tmp_path / "none") is None
    assert [tool.name for tool in available_tools(Settings()) if tool.name == "get_skill"] == []


def test_a_skill_is_looked_at_in_every_mode(skills: Path) -> None:
    tool = GetSkill(SkillLoader(skills))
    view = PolicyCall(tool, tool.touches(tool.parse({"skill_name": "pdf"})))
    assert tool.kind is Kind.READ
    assert view.touches.paths == (".deputize/skills/pdf",)
    assert all(denial(decide(view, PolicyContext(mode))) is None for mode in ApprovalMode)


@pytest.mark.requirement("S000-009", "S000-101", "S002-013")
async def test_a_run_gets_a_skill_when_it_needs_it(redis_url: str, skills: Path, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", skills_dir=skills) as bench:
        turns = [call("skill", skill="pdf")], [call("bash", command="sh .deputize/skills/pdf/scripts/split.sh")]
        result = await bench.run(model=script(tmp_path, *turns, [say("done")]))
        assert (result.errors, result.file_changes) == ([], [])
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        assert "get_skill" in started.tools
        steps = [event.step for event in events if isinstance(event, StepCompleted)]
        assert [(step.type, step.title) for step in steps][:1] == [("skill", "skill pdf")]
        assert (steps[1].result or "").strip() == "split"


async def test_without_skills_no_run_is_told_of_them(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [call("get_skill", skill_name="pdf")], [say("done")]))
    assert "there is no tool 'get_skill' in this run" in result.errors[0]
