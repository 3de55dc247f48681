"""Artifacts: made, read, changed and rewritten in versions, and what a run hands over with its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import Artifact
from deputize.shared.errors import ErrorType, NotFound
from deputize.shared.events import RunStarted, StepCompleted
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.settings import Settings
from deputize.worker.contracts import FileAccess
from deputize.worker.policy import PolicyCall, PolicyContext, decide, denial
from deputize.worker.task import carry_out
from deputize.worker.toolkit.registry import available_tools
from deputize.worker.tools.artifacts import CreateArtifact
from deputize.worker.tools.base import AnyTool, Kind
from deputize.worker.workspace.artifacts import MAX_ARTIFACTS, MAX_BYTES, MAX_VERSIONS, Artifacts
from deputize.worker.workspace.files import Files
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.runs.toolbench import EVERYTHING, Toolbench, recoverable

REPORT = "# Report\n\nThe parser is slow.\nThe tests are fast.\n"


async def read(desk: Toolbench, name: str = "report.md", **more: Any) -> str:
    result = await desk.call("read_artifact", name=name, **more)
    assert result.success, result.error
    return result.content


@pytest.mark.requirement("S003-041", "S003-042")
async def test_what_is_created_is_read_as_version_1(bare_desk: Toolbench) -> None:
    result = await bare_desk.call("create_artifact", name="report.md", content=REPORT)
    assert result.content == f"Created artifact report.md: version 1, {len(REPORT)} characters."
    assert result.title == "create artifact report.md"
    assert result.metadata == {"name": "report.md", "version": 1, "characters": len(REPORT)}
    assert str(result.display).startswith("--- /dev/null\n+++ b/report.md\n")
    assert await read(bare_desk) == f"[artifact report.md, version 1 of 1]\n{REPORT}"


@pytest.mark.requirement("S003-042", "S003-044")
async def test_older_versions_stay_readable(bare_desk: Toolbench) -> None:
    await bare_desk.call("create_artifact", name="report.md", content=REPORT)
    again = await bare_desk.call("rewrite_artifact", name="report.md", content="Short.")
    assert again.content == "Rewrote artifact report.md: version 2, 6 characters."
    assert await read(bare_desk) == "[artifact report.md, version 2 of 2]\nShort."
    assert await read(bare_desk, version=1) == f"[artifact report.md, version 1 of 2]\n{REPORT}"
    missing = await bare_desk.call("read_artifact", name="report.md", version=3)
    assert missing.error == "Artifact 'report.md' has no version 3; it has 1 to 2. Use one of them."


@pytest.mark.requirement("S003-043")
async def test_an_update_replaces_one_text_of_the_latest_version(bare_desk: Toolbench) -> None:
    await bare_desk.call("create_artifact", name="report.md", content=REPORT)
    result = await bare_desk.call("update_artifact", name="report.md", old_string="is slow", new_string="was slow")
    assert result.content == "Successfully edited artifact report.md: 1 place, line 3. It is version 2 now."
    assert "-The parser is slow.\n+The parser was slow.\n" in str(result.display)
    assert await read(bare_desk) == f"[artifact report.md, version 2 of 2]\n{REPORT.replace('is slow', 'was slow')}"


@pytest.mark.requirement("S003-043")
async def test_an_update_tolerates_what_an_edit_tolerates_and_reports_it(bare_desk: Toolbench) -> None:
    lines = "First the parser was measured.\nThen the printer was measured.\nBoth are slower than last year.\n"
    await bare_desk.call("create_artifact", name="report.md", content=REPORT + lines)
    almost = lines.replace("printer", "printr").removesuffix("\n")
    result = await bare_desk.call("update_artifact", name="report.md", old_string=almost, new_string="Times follow.")
    assert result.success, result.error
    assert "old_string" in result.content
    assert (await read(bare_desk)).endswith(f"{REPORT}Times follow.\n")
    blanks = await bare_desk.call("update_artifact", name="report.md", old_string="slow.  \nThe", new_string="slow. A")
    assert "differences in blanks at line ends were ignored" in blanks.content


@pytest.mark.parametrize(
    ("arguments", "type", "said"),
    [
        ({"old_string": "", "new_string": "x"}, ErrorType.INVALID_TOOL_PARAMS, "or use rewrite_artifact to replace"),
        ({"old_string": "x", "new_string": "x"}, ErrorType.EDIT_NO_CHANGE, "are the same"),
        ({"old_string": "quux", "new_string": "x"}, ErrorType.EDIT_NOT_FOUND, "Text not found in report.md"),
        ({"old_string": "The", "new_string": "A"}, ErrorType.EDIT_AMBIGUOUS, "on lines 3, 4"),
    ],
)
async def test_an_update_that_is_not_certain_makes_no_version(
    bare_desk: Toolbench, arguments: dict[str, Any], type: ErrorType, said: str
) -> None:
    await bare_desk.call("create_artifact", name="report.md", content=REPORT)
    assert said in await bare_desk.refusal(type, "update_artifact", name="report.md", **arguments)
    assert "version 1 of 1" in await read(bare_desk)


async def test_all_places_are_replaced_where_that_is_asked_for(bare_desk: Toolbench) -> None:
    await bare_desk.call("create_artifact", name="r", content=REPORT)
    result = await bare_desk.call(
        "update_artifact", artifact_name="r", old_str="The ", new_str="Our ", replace_all=True
    )
    assert "2 places, lines 3, 4" in result.content


async def test_a_name_that_is_taken_leads_to_the_tools_that_change(bare_desk: Toolbench) -> None:
    await bare_desk.call("create_artifact", name="a", content="one")
    result = await bare_desk.call("create_artifact", name="a", content="two")
    assert result.error == (
        "Artifact 'a' exists already, in version 1. Replace all of it with rewrite_artifact, a part of it with "
        "update_artifact, or use another name."
    )
    same = await bare_desk.call("rewrite_artifact", name="a", content="one")
    assert same.error == "Nothing to change: version 1 of artifact 'a' already has this text."
    assert await read(bare_desk, "a") == "[artifact a, version 1 of 1]\none"


@pytest.mark.parametrize("tool", ["read_artifact", "update_artifact", "rewrite_artifact"])
async def test_an_unknown_name_is_answered_with_the_names_there_are(bare_desk: Toolbench, tool: str) -> None:
    more = {"old_string": "a", "new_string": "b"} if tool == "update_artifact" else {"content": "x"}
    more = {} if tool == "read_artifact" else more
    none = await bare_desk.call(tool, name="x", **more)
    assert none.error == "There is no artifact 'x'. Create one with create_artifact."
    for name in ("report.md", "plan.md"):
        await bare_desk.call("create_artifact", name=name, content="text")
    near = await bare_desk.call(tool, name="raport.md", **more)
    assert near.error == ("There is no artifact 'raport.md'. Did you mean report.md? There are: plan.md, report.md.")
    far = await bare_desk.call(tool, name="quux", **more)
    assert far.error == "There is no artifact 'quux'. There are: plan.md, report.md."
    assert far.error_type is ErrorType.FILE_NOT_FOUND


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "../x", "a/b", ".hidden", "a\nb", " a", "a\0", "x" * 201, "\u202e"]
)
async def test_a_name_is_one_plain_name(bare_desk: Toolbench, name: str) -> None:
    error = await bare_desk.refusal(ErrorType.INVALID_TOOL_PARAMS, "create_artifact", name=name, content="x")
    assert "is not a valid artifact name: use one like report.md" in error
    assert not (bare_desk.root / ".deputize").exists()


@pytest.mark.parametrize("name", ["Bericht für März.md", "報告", "-rf", "a b", "x" * 200, "1"])
async def test_names_may_be_in_any_language(bare_desk: Toolbench, name: str) -> None:
    assert (await bare_desk.call("create_artifact", name=name, content="x")).success
    assert Artifacts(bare_desk.files).names() == [name]


async def test_there_is_an_end_to_sizes_versions_and_numbers(bare_desk: Toolbench) -> None:
    large = await bare_desk.call("create_artifact", name="a", content="ü" * (MAX_BYTES // 2 + 1))
    assert large.error == (
        f"This artifact cannot be kept: 'a' would have {MAX_BYTES + 2} bytes, at most {MAX_BYTES} are kept; "
        "make it shorter."
    )
    artifacts = Artifacts(bare_desk.files)
    artifacts.add("a", "last", MAX_VERSIONS)
    more = await bare_desk.call("rewrite_artifact", name="a", content="more")
    assert more.error_type is ErrorType.LIMIT_REACHED
    for number in range(1, MAX_ARTIFACTS):
        artifacts.add(f"a{number}", "x", 1)
    assert "there are 50 already" in ((await bare_desk.call("create_artifact", name="b", content="x")).error or "")
    assert (await bare_desk.call("rewrite_artifact", name="a1", content="y")).success


async def test_what_commands_put_beside_the_versions_is_none(bare_desk: Toolbench, tmp_path: Path) -> None:
    await bare_desk.call("create_artifact", name="a", content="mine")
    folder = bare_desk.root / ".deputize/artifacts"
    (tmp_path / "secret").write_text("secret")
    for name in ("007", "x", "0", "1000"):
        (folder / "a" / name).write_text("no version")
    (folder / "a/2").symlink_to(tmp_path / "secret")
    (folder / "a/3").mkdir()
    (folder / "empty").mkdir()
    (folder / "b").write_text("no folder")
    artifacts = Artifacts(bare_desk.files)
    assert artifacts.latest_versions() == [Artifact(name="a", version=1, size=4)]
    assert artifacts.contents(artifacts.latest_versions()) == {("a", 1): "mine"}


async def test_the_latest_versions_are_kept_before_older_ones(bare_desk: Toolbench) -> None:
    artifacts = Artifacts(bare_desk.files)
    for version in range(1, 10):
        artifacts.add("long", str(version) * MAX_BYTES, version)
    artifacts.add("short", "one", 1)
    artifacts.add("short", "two", 2)
    latest_versions = artifacts.latest_versions()
    assert [(each.name, each.version, each.size) for each in latest_versions] == [
        ("long", 9, MAX_BYTES),
        ("short", 2, 3),
    ]
    kept = artifacts.contents(latest_versions)
    assert sorted(kept) == [("long", version) for version in range(3, 10)] + [("short", 1), ("short", 2)]


@pytest.mark.parametrize("tool", ["create_artifact", "update_artifact", "rewrite_artifact"])
async def test_after_a_crash_the_version_shows_whether_it_was_written(bare_desk: Toolbench, tool: str) -> None:
    arguments: dict[str, Any] = {"name": "a", "content": "new text"}
    if tool != "create_artifact":
        await bare_desk.call("create_artifact", name="a", content="old text")
    if tool == "update_artifact":
        arguments = {"name": "a", "old_string": "old", "new_string": "new"}
    found = recoverable(tool)
    params, context = found.parse(arguments), bare_desk.context()
    facts = json.loads(json.dumps(await found.facts(context, params)))
    assert await found.probe(context, params, facts) is False
    await found.run(context, params)
    done = await found.probe(context, params, facts)
    assert done
    assert "was written, before the run was interrupted" in done.content
    await bare_desk.call("rewrite_artifact", name="a", content="later")
    assert await found.probe(context, params, facts)
    bare_desk.write(f".deputize/artifacts/a/{facts['version']}", "somebody else's")
    assert await found.probe(context, params, facts) is None


async def test_a_call_that_can_change_nothing_is_simply_made_again(bare_desk: Toolbench) -> None:
    tool = recoverable("update_artifact")
    params = tool.parse({"name": "a", "old_string": "x", "new_string": "y"})
    assert await tool.probe(bare_desk.context(), params, await tool.facts(bare_desk.context(), params)) is False


FOUR = ("create_artifact", "read_artifact", "update_artifact", "rewrite_artifact")


@pytest.mark.requirement("S003-041", "S003-042", "S003-043", "S003-044")
@pytest.mark.parametrize("name", FOUR)
def test_artifacts_need_nobodys_approval(name: str) -> None:
    tool = EVERYTHING[name]
    assert tool.kind is Kind.THINK
    for mode in ApprovalMode:
        arguments = {"name": "a", "content": "x", "old_string": "a", "new_string": "b"}
        known = {key: value for key, value in arguments.items() if key in tool.schema["properties"]}
        assert denial(decide(PolicyCall(tool, tool.touches(tool.parse(known))), PolicyContext(mode))) is None


@pytest.mark.requirement("S003-022")
async def test_the_tools_are_offered_only_where_something_keeps_artifacts(bare_desk: Toolbench) -> None:
    def kept_elsewhere(files: FileAccess) -> Artifacts:
        (files.root / "elsewhere").mkdir()
        return Artifacts(Files(files.root / "elsewhere"))

    without: AnyTool = CreateArtifact(None)
    elsewhere = CreateArtifact(kept_elsewhere)
    assert available_tools(Settings(), [without]) == []
    assert available_tools(Settings(), [elsewhere]) == [elsewhere]
    assert {tool.name for tool in available_tools(Settings())} >= {*FOUR}
    assert not {tool.name for tool in available_tools(Settings.load(environ={}, tools={"enable_artifacts": False}))} & {
        *FOUR
    }
    await elsewhere.run(bare_desk.context(), elsewhere.parse({"name": "a", "content": "x"}))
    assert bare_desk.read("elsewhere/.deputize/artifacts/a/1") == b"x"


@pytest.mark.requirement("S003-022", "S003-041", "S003-044")
async def test_what_a_run_made_is_in_its_result_and_outlives_its_workspace(redis_url: str, tmp_path: Path) -> None:
    key = "sk-" + "1234567890"
    endpoint = {"ANTHROPIC_API_KEY": key}
    async with open_bench(
        redis_url, tmp_path / "home", tools={"enable_artifacts": True}, model_endpoint=endpoint
    ) as bench:
        turns = (
            [call("create_artifact", name="report.md", content=f"The key is {key}.")],
            [call("rewrite_artifact", name="report.md", content="Größe: 漢字\n")],
            [call("create_artifact", name="plan", content="")],
        )
        result = await bench.run(model=script(tmp_path, *turns, [say("Two artifacts.")]))
        assert (result.errors, result.file_changes) == ([], [])
        assert result.artifacts == [
            Artifact(name="plan", version=1, size=0),
            Artifact(name="report.md", version=2, size=len("Größe: 漢字\n".encode())),
        ]
        id = result.delegation_id
        events = [envelope.event for envelope in await bench.events(id)]
        (started,) = [event for event in events if isinstance(event, RunStarted)]
        assert {*FOUR} <= {*started.tools}
        assert [event.step.title for event in events if isinstance(event, StepCompleted)][2] == "create artifact plan"
        assert await bench.store.artifact(id, "report.md") == "Größe: 漢字\n"
        assert await bench.store.artifact(id, "report.md", 1) == "The key is ***."
        assert await bench.store.artifact(id, "plan") == ""
        with pytest.raises(NotFound, match=r"it has plan, report\.md"):
            await bench.store.artifact(id, "raport.md")


async def test_a_limit_hands_over_what_was_made_before_it(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_artifacts": True}) as bench:
        made = [call("create_artifact", name="half", content="so far")]
        result = await bench.run(model=script(tmp_path, made, [say("never")]), limits={"max_turns": 1})
        assert (result.success, [each.name for each in result.artifacts]) == (False, ["half"])
        assert await bench.store.artifact(result.delegation_id, "half") == "so far"


async def test_a_run_that_goes_on_elsewhere_makes_no_version_twice(redis_url: str, tmp_path: Path) -> None:
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_artifacts": True}) as bench:
        first = [call("create_artifact", name="a", content="one")]
        turns = (
            first,
            [call("bash", command="touch begun; exec sleep 1000")],
            [call("rewrite_artifact", name="a", content="two")],
        )
        id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns, [say("done")])))
        await bench.interrupt(id, lambda: list((bench.settings.workspaces / id).glob("files*/begun")))
        await carry_out(bench.services, id)
        assert (await bench.result(id)).artifacts == [Artifact(name="a", version=2, size=3)]
        assert [await bench.store.artifact(id, "a", version) for version in (1, 2)] == ["one", "two"]


async def test_without_the_switch_a_run_has_artifacts_only_by_name(bench: Bench, tmp_path: Path) -> None:
    model = script(tmp_path, [call("create_artifact", name="a", content="x")], [say("done")])
    assert "there is no tool 'create_artifact'" in (await bench.run(model=model)).errors[0]
    assert (await bench.run(model=model, tools=["*_artifact"])).artifacts == [Artifact(name="a", version=1, size=1)]
