"""The same questions to every tool: a new one gets lines in ``tool_samples.py`` and is then asked all of them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from deputize.shared.errors import ErrorType
from deputize.shared.tokens import count
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.tools.base import AnyTool, Kind, ToolContext, ToolResult, Touches
from deputize.worker.tools.bounded_result import bounded
from deputize.worker.workspace.artifacts import Artifacts
from tests.contracts.tool_samples import OVERSIZED, SAMPLES, SHELL
from tests.runs.toolbench import EVERYTHING, Toolbench, open_toolbench

ESCAPES = (
    "../outside.txt",
    "/etc/passwd",
    "src/../../outside.txt",
    "leak.txt",
    "up/outside.txt",
    "/workspaces/x",
    "~/x",
)

TOUCHES_NOTHING = ("bash_output", "bash_kill")
"""They act on what the run itself has started, and on nothing else."""

each_tool = pytest.mark.parametrize("tool", EVERYTHING.values(), ids=lambda tool: tool.name)


@pytest.fixture
async def desk(desk: Toolbench, request: pytest.FixtureRequest) -> Toolbench:
    """For tools that work on a background shell there is one, with much to say."""
    if "bash_id" in request.getfixturevalue("tool").schema["properties"]:
        await desk.start_shell(SHELL, "yes 'word and more words' | head -c 1200000; exec sleep 1000")
    return desk


def prepare(desk: Toolbench, value: int = 1) -> None:
    desk.write("src/app.py", f"VALUE = {value}\n")
    desk.write("empty.txt")
    Artifacts(desk.files).add("plan.md", "The first step.", 1)


def is_sound(result: ToolResult, tool: AnyTool) -> None:
    """What holds for every answer of every tool."""
    assert (result.error is None) == result.success == (result.error_type is None)
    assert result.for_model
    assert result.for_model.startswith("Error: ") or result.success
    assert len(result.content) <= tool.display.output.max_chars + 1000
    assert count(result.content) <= (tool.display.output.max_tokens or 10**9) + 300
    assert len(result.title) <= 120
    assert "\n" not in result.title
    assert isinstance(result.display, str)
    json.dumps([result.for_model, result.title, result.display, result.metadata]).encode()
    (result.for_model + result.title + result.display).encode()


def strings(tool: AnyTool) -> list[str]:
    return [name for name, schema in tool.schema["properties"].items() if schema.get("type") == "string"]


def takes_path(tool: AnyTool) -> bool:
    return "path" in tool.schema["properties"]


@each_tool
async def test_a_good_call_succeeds_and_its_answer_is_sound(desk: Toolbench, tool: AnyTool) -> None:
    prepare(desk)
    result = await desk.call_with(tool.name, SAMPLES[tool.name])
    assert result.success, result.error
    is_sound(result, tool)


@pytest.mark.requirement("S002-003", "S002-039", "S003-011", "S003-013")
@each_tool
async def test_bad_arguments_are_answered_and_nothing_runs(desk: Toolbench, tool: AnyTool) -> None:
    prepare(desk)
    good = SAMPLES[tool.name]
    bad: list[dict[str, Any]] = [{**good, "pth": "x"}, {**good, "": 1}, {"nonsense": None, "other": 1}]
    bad += [
        {name: value for name, value in good.items() if name != missing} for missing in tool.schema.get("required", [])
    ]
    bad += [{**good, name: wrong} for name in strings(tool) for wrong in (1, ["x"], {"a": 1}, "half \ud83d")]
    for arguments in bad:
        result = await desk.call_with(tool.name, arguments)
        assert result.error_type is ErrorType.INVALID_TOOL_PARAMS, arguments
        assert result.error is not None
        assert result.error.startswith(f"invalid arguments for {tool.name}: ")
        assert result.error.endswith(f"Known parameters: {', '.join(tool.params.model_fields)}.")
        is_sound(result, tool)
    assert desk.read("src/app.py") == b"VALUE = 1\n"
    assert not (desk.root / "src/new.py").exists()


@each_tool
async def test_an_unknown_argument_is_named_with_the_closest_known_one(desk: Toolbench, tool: AnyTool) -> None:
    name = next(iter(tool.params.model_fields))
    result = await desk.call_with(tool.name, {**SAMPLES[tool.name], name + "x": "1"})
    assert result.error is not None
    assert f"unknown key '{name}x'; did you mean '{name}'?" in result.error


@each_tool
async def test_null_means_not_given(desk: Toolbench, tool: AnyTool) -> None:
    prepare(desk)
    optional = set(tool.params.model_fields) - set(tool.schema.get("required", []))
    result = await desk.call_with(tool.name, {**dict.fromkeys(optional), **SAMPLES[tool.name]})
    assert result.success, result.error


@pytest.mark.requirement("S001-053", "S001-018", "S001-041", "S001-051")
@each_tool
async def test_however_much_there_is_the_answer_stays_inside_its_limit(desk: Toolbench, tool: AnyTool) -> None:
    desk.write("long.txt", "word and more words\n" * 60_000)
    Artifacts(desk.files).add("long.md", "word and more words\n" * 50_000, 1)
    (desk.root / "many").mkdir()
    for number in range(1500):
        (desk.root / "many" / f"a_file_with_a_long_name_{number}.txt").touch()
    result = await desk.call_with(tool.name, OVERSIZED[tool.name])
    assert result.success, result.error
    is_sound(result, tool)
    assert len(json.dumps(result.metadata)) < 10_000


@pytest.mark.requirement("S000-036", "S000-047", "S000-052", "S001-014", "S001-021", "S001-025", "S002-072")
@pytest.mark.parametrize("tool", [tool for tool in EVERYTHING.values() if takes_path(tool)], ids=lambda tool: tool.name)
@pytest.mark.parametrize("path", ESCAPES)
async def test_no_path_leads_out_of_the_workspace(desk: Toolbench, tool: AnyTool, path: str) -> None:
    outside = desk.root.parent / "outside.txt"
    outside.write_text("VALUE = 1 secret\n")
    (desk.root / "leak.txt").symlink_to("../outside.txt")
    (desk.root / "up").symlink_to("..")
    result = await desk.call_with(tool.name, {**SAMPLES[tool.name], "path": path})
    assert "secret" not in result.for_model
    assert outside.read_text() == "VALUE = 1 secret\n"
    if path != "~/x":  # a directory of that name would be one like any other
        assert result.error_type is ErrorType.PATH_NOT_ALLOWED
    is_sound(result, tool)


@each_tool
@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\t", "ünï漢字\U0001f680", "e\u0301\u200d\u202e", "a" * 5000, "%s{0}$X\\", "-rf"]
)
async def test_no_text_makes_a_tool_fail_inside(desk: Toolbench, tool: AnyTool, text: str) -> None:
    """Whatever text stands in whichever argument: an answer, sound as ever, and no exception."""
    prepare(desk)
    for name in strings(tool):
        arguments = {**SAMPLES[tool.name], name: text}
        if tool.name == "bash":
            arguments["timeout"] = 5
        is_sound(await desk.call_with(tool.name, arguments), tool)


@each_tool
async def test_an_empty_file_is_no_special_case(desk: Toolbench, tool: AnyTool) -> None:
    prepare(desk)
    changes = {"path": "empty.txt"} if takes_path(tool) else {}
    is_sound(await desk.call_with(tool.name, {**SAMPLES[tool.name], **changes}), tool)


@pytest.mark.requirement("P-15")
@each_tool
@pytest.mark.parametrize("steps", [1, 2, 5, 20])
async def test_a_call_cancelled_at_any_time_ends_and_leaves_nothing_half_done(
    desk: Toolbench, tool: AnyTool, steps: int
) -> None:
    prepare(desk)
    call = asyncio.create_task(desk.call_with(tool.name, SAMPLES[tool.name]))
    for _ in range(steps):
        await asyncio.sleep(0)
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    assert desk.read("src/app.py") in (b"VALUE = 1\n", b"VALUE = 2\n")
    if (desk.root / "src/new.py").exists():
        assert desk.read("src/new.py") == b"print('new')\n"
    assert [path.name for path in desk.root.rglob(".deputize-writing-*")] == []


@pytest.mark.requirement("P-03")
@each_tool
async def test_two_runs_at_once_see_only_their_own_workspace(desk: Toolbench, tool: AnyTool, tmp_path: Path) -> None:
    other_root = tmp_path / "other"
    other_root.mkdir()
    with Bubblewrap(other_root) as sandbox, open_toolbench(other_root, sandbox=sandbox) as other:
        prepare(desk, value=1)
        prepare(other, value=1)
        desk.write("src/mine.py", "VALUE = 'mine'\n")
        other.write("src/theirs.py", "VALUE = 'theirs'\n")
        calls = [each.call_with(tool.name, SAMPLES[tool.name]) for _ in range(4) for each in (desk, other)]
        results = await asyncio.gather(*calls)
        for result in results[::2]:
            assert "theirs" not in result.for_model
        for result in results[1::2]:
            assert "mine" not in result.for_model
        assert {path.name for path in desk.root.rglob("*.py")} - {"new.py"} == {"app.py", "mine.py"}
        assert {path.name for path in other.root.rglob("*.py")} - {"new.py"} == {"app.py", "theirs.py"}


@each_tool
async def test_a_tool_keeps_nothing_between_calls(desk: Toolbench, tool: AnyTool) -> None:
    prepare(desk)
    before = {**vars(tool), **vars(type(tool))}
    await desk.call_with(tool.name, SAMPLES[tool.name])
    assert {**vars(tool), **vars(type(tool))} == before


@pytest.mark.requirement("S000-002", "S000-004", "S000-026", "S001-003", "S001-013")
@each_tool
def test_name_description_and_schema_are_there_for_the_model(tool: AnyTool) -> None:
    assert tool.name.isidentifier()
    assert len(tool.name) <= 64
    assert len(tool.description) > 100
    jsonschema_rs.meta.validate(tool.schema)
    assert tool.schema["type"] == "object"
    assert tool.schema["additionalProperties"] is False
    assert set(tool.schema.get("required", [])) <= set(tool.schema["properties"])
    for name, schema in tool.schema["properties"].items():
        assert len(schema["description"]) > 10, name
        assert "title" not in schema
    assert "$ref" not in json.dumps(tool.schema)
    jsonschema_rs.validate(tool.schema, SAMPLES[tool.name])


@each_tool
def test_a_title_is_one_short_line_whatever_the_arguments_say(tool: AnyTool) -> None:
    sample = SAMPLES[tool.name]
    assert tool.title(tool.parse(sample))
    long = {name: value * 100 if isinstance(value, str) else value for name, value in sample.items()}
    assert len(tool.title(tool.parse(long))) <= 120


@pytest.mark.requirement("S004-008")
@each_tool
def test_kind_effect_and_step_type_are_declared_and_agree(tool: AnyTool) -> None:
    assert isinstance(tool.kind, Kind)
    assert not (tool.kind.mutates and tool.effect == "pure")
    assert tool.effect == "pure" or tool.kind not in (Kind.READ, Kind.SEARCH)  # these run side by side
    assert not (tool.kind.mutates and tool.kind.looks)
    step_types = {"bash", "read", "write", "edit", "glob", "grep", "skill", "delegate", "tool_call"}
    assert tool.display.step_type in step_types
    assert tool.delegates == (tool.display.step_type == "delegate")


@each_tool
def test_what_a_call_touches_is_known_before_it_runs(tool: AnyTool) -> None:
    touches = tool.touches(tool.parse(SAMPLES[tool.name]))
    assert (touches == Touches()) == (tool.kind is Kind.THINK or tool.name in TOUCHES_NOTHING)
    if path := SAMPLES[tool.name].get("path"):
        assert touches.paths == (path,)


@pytest.mark.requirement("S000-032", "S003-004")
@each_tool
def test_a_tool_knows_no_provider_no_policy_and_no_queue(tool: AnyTool) -> None:
    module = sys.modules[type(tool).__module__]
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    ours = [f"deputize.worker.{name}" for name in ("policy", "models", "emit", "loop")]
    forbidden = ("anthropic", "celery", "redis", *ours)
    assert [name for name in imported if name.startswith(forbidden)] == []


@pytest.mark.requirement("S002-014")
@each_tool
async def test_all_a_tool_knows_of_its_run_comes_with_the_call(desk: Toolbench, tool: AnyTool) -> None:
    """Two contexts, one instance: what differs comes from the context alone."""
    prepare(desk)
    context: ToolContext = desk.context()
    result = await tool.run(context, tool.parse(SAMPLES[tool.name]))
    assert (await bounded(result, tool, context)).success
    assert (context.delegation_id, context.session_id, context.message_id) == (
        "dlg_01k00000000000000000000000",
        None,
        None,
    )


def test_every_tool_has_its_samples() -> None:
    assert set(SAMPLES) == set(OVERSIZED) == set(EVERYTHING)
