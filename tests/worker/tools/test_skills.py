"""Skills: where they are looked for, which ones are taken, and what a run and its model get of one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.events import RunStarted, StepCompleted
from deputize.shared.request import ApprovalMode
from deputize.shared.settings import Settings
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.toolkit.registry import available_tools, default_kit
from deputize.worker.tools.base import AnyTool, InitContext, Kind, ToolResult
from deputize.worker.tools.builtin import DEFAULT_KIT
from deputize.worker.tools.naming import find_tool
from deputize.worker.tools.skills import (
    MAX_BYTES,
    MAX_FILES,
    MAX_SKILLS,
    GetSkill,
    Skill,
    SkillLoader,
    create_skill_tools,
    find_skills_dir,
    read_skill,
    skills_of,
)
from tests.runs.bench import call, open_bench, say, script
from tests.runs.skills import write_skill
from tests.runs.toolbench import Toolbench, open_toolbench


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def names_offered(**settings: Any) -> set[str]:
    return {tool.name for tool in available_tools(Settings.load(environ={}, **settings))}


def one(folder: Path) -> Skill:
    return read_skill(folder / "SKILL.md")


@pytest.mark.requirement("S000-013")
def test_a_relative_directory_is_looked_for_in_three_places_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here / "mine", home / "mine", home / "theirs"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert find_skills_dir(Path("mine"), home) == here / "mine"
    assert find_skills_dir(Path("./theirs"), home) == home / "theirs"
    packaged = find_skills_dir(Path("tools"), home)
    assert packaged.is_absolute()
    assert (packaged / "skills.py").exists()
    absolute = tmp_path / "not there"
    assert find_skills_dir(absolute, home) == absolute


def test_skills_that_merely_lie_in_the_working_directory_are_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "skills/hostile").mkdir(parents=True)
    (tmp_path / "skills/hostile/SKILL.md").write_text("---\nname: hostile\ndescription: d\n---\nObey.\n")
    monkeypatch.chdir(tmp_path)
    assert "get_skill" not in names_offered(home=tmp_path / "home", tools={"enable_skills": True})
    assert "get_skill" in names_offered(home=tmp_path / "home", skills_dir=Path("skills"))


@pytest.mark.requirement("S000-014", "S000-016")
def test_a_directory_that_is_nowhere_holds_no_skills_and_the_worker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_skills_dir(Path("nowhere/at/all"), tmp_path) == Path("nowhere/at/all")
    assert "get_skill" not in names_offered(skills_dir=Path("nowhere/at/all"), home=tmp_path)
    assert warnings(caplog) == ["No available Skills found in nowhere/at/all"]


@pytest.mark.requirement("S000-016")
def test_an_empty_directory_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert "get_skill" not in names_offered(tools={"enable_skills": True, "skills_dir": tmp_path})
    assert warnings(caplog) == [f"No available Skills found in {tmp_path}"]


@pytest.mark.requirement("S000-017", "S000-024")
def test_a_directory_that_cannot_be_read_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no directory")
    assert "read_file" in names_offered(skills_dir=tmp_path / "file")
    (said,) = warnings(caplog)
    assert said.startswith("Failed to load Skills: ")
    assert "Not a directory" in said


@pytest.mark.requirement("S000-022")
def test_what_was_loaded_is_logged_once_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_skill(tmp_path, "b")
    write_skill(tmp_path, "a")
    with caplog.at_level(logging.INFO, "deputize"):
        assert "get_skill" in names_offered(skills_dir=tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert [each for each in said if "skills" in each] == [f"loaded 2 skills from {tmp_path}: a, b"]


def test_without_a_request_for_skills_none_is_described(caplog: pytest.LogCaptureFixture) -> None:
    names_offered()
    assert warnings(caplog) == []


@pytest.mark.requirement("S000-098")
def test_a_loader_knows_its_skills_by_name(tmp_path: Path) -> None:
    write_skill(tmp_path, "one")
    write_skill(tmp_path, "documents/two")
    write_skill(tmp_path, "one/inner")
    write_skill(tmp_path, ".git/three")
    loader = SkillLoader(tmp_path)
    assert loader.list_skills() == ["one", "two"]
    found = loader.get_skill("two")
    assert found is not None
    assert (found.name, found.description) == ("two", "How documents/two is done.")
    assert loader.get_skill("inner") is None


def test_the_whole_head_is_understood(tmp_path: Path) -> None:
    folder = tmp_path / "pdf"
    folder.mkdir()
    head = (
        "\ufeff---\r\nname: pdf\r\ndescription: >\r\n  Split and\r\n  merge PDFs.\r\nlicense: MIT\r\n"
        "compatibility: Needs qpdf\r\nallowed-tools: bash read_file\r\nmetadata:\r\n  version: 1.10\r\n"
        "  on: 2026-01-02\r\n"
        "model: other\r\n--- \r\nText with\r\n---\r\na rule.\r\n"
    )
    (folder / "SKILL.md").write_bytes(head.encode())
    skill = one(folder)
    assert skill.description == "Split and merge PDFs."
    assert (skill.front_matter.license, skill.front_matter.compatibility, skill.front_matter.allowed_tools) == (
        "MIT",
        "Needs qpdf",
        "bash read_file",
    )
    assert set(skill.front_matter.metadata) >= {"version"}
    assert all(isinstance(value, str) for value in skill.front_matter.metadata.values())
    said = skill.to_prompt()
    assert "Needs: Needs qpdf\n\nMade for these tools: bash read_file\n\n---\n\nText with\n---\na rule." in said


@pytest.mark.parametrize(
    ("name", "head", "why"),
    [
        ("x", {"name": "y"}, "its name is 'y', but the name of its directory is 'x'"),
        ("Bad_Name", {}, "name: String should match pattern"),
        ("x" * 65, {}, "name: String should have at most 64 characters"),
        ("x", {"name": None}, "name: Field required"),
        ("x", {"name": 7}, "name: Input should be a valid string"),
        ("x", {"description": None}, "description: Field required"),
        ("x", {"description": "  "}, "description: String should have at least 1 character"),
        ("x", {"description": "y" * 1025}, "description: String should have at most 1024 characters"),
        ("x", {"compatibility": "y" * 501}, "compatibility: String should have at most 500 characters"),
        ("x", {"metadata": "text"}, "metadata: Input should be a valid dictionary"),
        ("x", {"text": " \n"}, "there is no text below its front matter"),
    ],
)
def test_a_broken_skill_is_left_out_with_a_warning_that_names_it_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, head: dict[str, Any], why: str
) -> None:
    folder = write_skill(tmp_path, name, **head)
    write_skill(tmp_path, "good")
    assert SkillLoader(tmp_path).list_skills() == ["good"]
    (said,) = warnings(caplog)
    assert said.startswith(f"the skill {folder / 'SKILL.md'} is left out: ")
    assert why in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"no head", "it does not start with front matter between two lines of ---"),
        (b"---\nname: x\n", "it does not start with front matter between two lines of ---"),
        (b"---\nname: [\n---\ntext", "its front matter is not valid YAML: "),
        (
            b"---\ndescription: Use when: asked\n---\ntext",
            "its front matter is not valid YAML: mapping values are not allowed here",
        ),
        (b"---\n- a\n---\ntext", "Input should be a valid dictionary"),
        (
            b"---\nname: !!python/object/apply:os.getcwd []\n---\ntext",
            "its front matter is not valid YAML: could not determine",
        ),
        (b"---\n\xff\n---\ntext", "'utf-8' codec can't decode"),
        (b"---\nname: x\n---\n" + b"x" * 1024 * 1024, "SKILL.md has more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_skill_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes, why: str
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/SKILL.md").write_bytes(text)
    assert SkillLoader(tmp_path).list_skills() == []
    (said,) = warnings(caplog)
    assert why in said


def test_of_two_skills_of_one_name_the_first_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_skill(tmp_path, "a/same", "first")
    write_skill(tmp_path, "b/same", "second")
    found = SkillLoader(tmp_path).get_skill("same")
    assert found is not None
    assert found.content == "first"
    assert warnings(caplog) == [
        f"the skill {tmp_path / 'b/same/SKILL.md'} is left out: there is one of that name already"
    ]


def test_there_are_not_more_skills_than_a_model_can_choose_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_SKILLS + 5):
        write_skill(tmp_path, f"s{number:03d}")
    assert len(SkillLoader(tmp_path).list_skills()) == MAX_SKILLS
    assert warnings(caplog) == [f"only {MAX_SKILLS} skills are loaded; the others in {tmp_path} are left out"]


def test_links_of_a_skill_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder = write_skill(tmp_path / "skills", "x", files={"real.md": "inside"})
    (folder / "in.md").symlink_to("real.md")
    (folder / "out.md").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to("../..")
    skill = one(folder)
    with open_toolbench(tmp_path / "w") as desk:
        assert skill.copy_to(desk.files) == ["out.md", "up"]
        assert desk.read(".deputize/skills/x/in.md") == b"inside"
        assert sorted(path.name for path in (desk.root / ".deputize/skills/x").iterdir()) == ["in.md", "real.md"]


def test_of_a_huge_skill_as_much_is_copied_as_there_is_room_for(tmp_path: Path) -> None:
    large = b"x" * (MAX_BYTES // 2 + 1)
    folder = write_skill(tmp_path, "x", files={"a.bin": large, "b.bin": large, "c.md": "small", ".git/config": "no"})
    with open_toolbench(tmp_path / "w") as desk:
        assert one(folder).copy_to(desk.files) == ["b.bin"]
        assert desk.read(".deputize/skills/x/c.md") == b"small"
    write_skill(tmp_path, "many", files={f"f{number}": "" for number in range(MAX_FILES + 20)})
    assert len(one(tmp_path / "many").files) == MAX_FILES
    assert f"(and {MAX_FILES - 100} more)" in one(tmp_path / "many").to_prompt()


def test_a_skill_is_still_described_when_its_files_cannot_be_copied(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "x", files={"a.md": "text"})
    skill = one(folder)
    with open_toolbench(tmp_path / "w") as desk:
        desk.write(".deputize", "a file where our directory would be")
        assert skill.copy_to(desk.files) == ["a.md"]
        (folder / "a.md").unlink()
        (folder / "SKILL.md").unlink()
        folder.rmdir()
        assert skill.copy_to(desk.files) == ["a.md"]


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
