"""002: what Tool.define makes runs here as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.shared.settings import Settings
from deputize.worker.adapters import adapt
from deputize.worker.adapters.base_classes import (
    DefinedContext,
    Tool,
    ToolDefinition,
    ToolInfo,
    ToolInfoAsync,
    ToolParameter,
)
from deputize.worker.adapters.without_runs import ToolExecutionResult, execute_tool
from deputize.worker.mcp.tools import result_of
from deputize.worker.toolkit.registry import Registry, available_tools
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import InitContext
from tests.toolbench import Toolbench
from tests.worker.adapters.defined_tools import WHAT, Librarian, ServersTool, place_tool, tell_place
from tests.worker.adapters.playing import Theatre


@pytest.mark.requirement("S002-002", "S002-008", "S002-009")
async def test_a_static_tool_runs_in_the_loop_like_one_of_ours(theatre: Theatre) -> None:
    play = await theatre.play([adapt(place_tool)], {"what": "here"}, {}, session_id="s-1", message_id="m-1")
    good, bad = play.steps
    assert (good.status, good.title, good.result) == ("completed", "Told of here", "['s-1', 'm-1', True, False] files")
    assert (bad.error or "").startswith("Say what, please. (invalid arguments for tell_place: ")
    assert play.updates == [("Looking", {"files": 0})]


@pytest.mark.requirement("S002-008")
def test_a_tool_that_is_not_enabled_is_not_offered_and_one_that_runs_by_itself_is_trusted() -> None:
    assert isinstance(place_tool, ToolInfo)
    off, free = (
        Tool.define("x", {"name": "X", "description": "", "parameters": WHAT, "execute": tell_place, **more})
        for more in ({"enabled": False}, {"auto_execute": True})
    )
    assert [tool.trusted for tool in available_tools(Settings(), map(adapt, (off, free, place_tool)))] == [True, False]
    with pytest.raises(Misconfigured, match=r"the tool 'x' has an invalid definition: .*'nmae'"):
        Tool.define("x", {"nmae": "X"})


@pytest.mark.requirement("S002-004", "S002-010", "S002-011", "S002-013", "S002-042")
async def test_an_async_tool_is_asked_once_what_it_is() -> None:
    librarian = Librarian()
    info = Tool.define("load_skill", {"name": "Load"}, librarian)
    assert isinstance(info, ToolInfoAsync)
    tool = adapt(info)
    skills = {"pdf": "Reads PDFs", "git": "Knows git"}
    first, second = await asyncio.gather(tool.ready(InitContext("a", skills)), tool.ready(InitContext("b", skills)))
    assert first is second
    assert librarian.asked == 1
    assert first is not None
    assert first.description == "Load a skill. Available: pdf, git"
    assert first.schema["properties"]["skill"]["enum"] == ["pdf", "git"]
    other = await tool.ready(InitContext("c", {"x": "Another skill"}))
    assert other is not None
    assert (other.schema["properties"]["skill"]["enum"], librarian.asked) == (["x"], 2)


async def test_an_async_tool_that_cannot_say_what_it_is_is_asked_again_by_the_next_run() -> None:
    librarian = Librarian()
    librarian.fails = 1
    tool = adapt(Tool.define("load_skill", {"name": "Load"}, librarian))
    with pytest.raises(Misconfigured, match="the tool load_skill could not be initialized: the library is closed"):
        await tool.ready(InitContext("a"))
    assert await tool.ready(InitContext("b"))


@pytest.mark.requirement("S002-042")
async def test_an_async_tool_runs_in_the_loop(theatre: Theatre) -> None:
    async def init(ctx: InitContext) -> dict[str, Any]:
        return {"description": "Tells where it runs.", "parameters": WHAT, "execute": tell_place}

    play = await theatre.play([adapt(Tool.define("late", {"name": "Late"}, init))], {"what": "now"}, {"waht": 1})
    assert [step.title for step in play.steps] == ["Told of now", "late"]
    assert play.steps[1].error is not None
    assert '"what" is a required property' in play.steps[1].error


@pytest.mark.requirement("S002-017", "S002-018", "S002-019", "S002-020", "S002-021", "S002-038", "S002-041", "S002-045")
async def test_one_registry_holds_tools_of_every_form_and_calls_them_alike(
    desk: Toolbench, caplog: pytest.LogCaptureFixture
) -> None:
    definition = ToolDefinition(
        id="old", name="Old", description="", parameters=[ToolParameter("what", "string", "What to tell of")]
    )
    late = Tool.define("late", {"name": "Late"}, Librarian())
    registry = Registry(BUILTIN)
    for tool in (definition.executed_by(tell_place), place_tool, late):
        registry.register(adapt(tool))
    desk.write("a.txt", "one\n")
    context = desk.context()
    good = await execute_tool(registry, "old", {"what": "it"}, context)
    assert good.success
    assert good.data
    assert good.data == {"title": "Told of it", "output": good.data["output"], "metadata": {"what": "it"}}
    assert (await execute_tool(registry, "tell_place", {"what": "it"}, context)).success
    loaded = await execute_tool(registry, "late", {"skill": "pdf"}, context, {"pdf": ""})
    assert loaded == ToolExecutionResult(True, {"title": "", "output": "All about pdf.", "metadata": {}})
    ours = await execute_tool(registry, "read_file", {"path": "a.txt"}, context)
    assert ours.data
    assert "one" in ours.data["output"]
    registry.register(adapt(Tool.define("old", {"name": "New"}, Librarian())))
    assert "tool old of builtin replaces one of the same name" in caplog.text
    registry.unregister("old")
    gone = await execute_tool(registry, "old", {}, context)
    assert (gone.success, gone.data) == (False, None)
    assert (gone.error or "").startswith("there is no tool 'old' in this run.")


@pytest.mark.requirement("S002-021", "S002-045")
async def test_what_goes_wrong_in_a_call_is_its_answer(desk: Toolbench) -> None:
    async def break_down(args: Any, ctx: DefinedContext) -> None:
        raise RuntimeError("no idea")

    broken = Tool.define("broken", {"name": "B", "description": "", "parameters": {}, "execute": break_down})
    closed = Librarian()
    closed.fails = 9
    registry = Registry(map(adapt, (broken, Tool.define("late", {"name": "Late"}, closed))))
    for name, arguments, said in (
        ("broken", {}, "broken failed inside: no idea"),
        ("broken", {"x": 1}, "invalid arguments for broken: "),
        ("late", {}, "late failed inside: the tool late could not be initialized: the library is closed"),
    ):
        result = await execute_tool(registry, name, arguments, desk.context())
        assert not result.success
        assert (result.error or "").startswith(said)


@pytest.mark.requirement("S002-043")
async def test_a_servers_tool_is_called_like_every_other(desk: Toolbench) -> None:
    registry = Registry([*BUILTIN, ServersTool()])
    result = await execute_tool(registry, "mcp__git__log", {}, desk.context())
    assert result.data is not None
    assert result.data["output"] == "one commit"


@pytest.mark.requirement("S002-044")
@pytest.mark.parametrize("is_error", [True, False])
async def test_what_a_server_calls_an_error_is_no_success(desk: Toolbench, is_error: bool) -> None:
    answer = CallToolResult(content=[TextContent(type="text", text="the words")], is_error=is_error)
    wrapped = ToolExecutionResult.of(await result_of(answer, desk.context(), "git: log"))
    assert wrapped.success is not is_error
    assert (wrapped.error if is_error else (wrapped.data or {})["output"]) == "the words"


@pytest.mark.requirement("S002-077", "S002-078")
def test_a_definition_with_listed_parameters_becomes_a_tool() -> None:
    parameters = [
        ToolParameter("what", "string", "What to tell of", enum=["a", "b"]),
        ToolParameter("much", "number", "How much", required=False),
        ToolParameter("deep", "boolean", "Whether deeply", required=False, default=False),
        ToolParameter("names", "array", "Names", required=False),
        ToolParameter("more", "object", "More", required=False),
    ]
    definition = ToolDefinition(
        id="tell",
        name="Tell",
        description="Tells.",
        parameters=parameters,
        enabled=True,
        auto_execute=True,
        category="custom",
        icon="book",
        source="mcp",
        server_id="s-1",
        server_name="books",
    )
    tool = adapt(definition.executed_by(tell_place))
    assert (tool.name, tool.description, tool.trusted, tool.origin.source) == ("tell", "Tells.", True, "mcp")
    assert tool.schema["required"] == ["what"]
    assert tool.schema["properties"] == {
        "what": {"type": "string", "description": "What to tell of", "enum": ["a", "b"]},
        "much": {"type": "number", "description": "How much"},
        "deep": {"type": "boolean", "description": "Whether deeply", "default": False},
        "names": {"type": "array", "description": "Names"},
        "more": {"type": "object", "description": "More"},
    }
    assert tool.parse({"what": "a"}) == {"what": "a"}
    with pytest.raises(ToolError) as caught:
        tool.parse({"what": "c", "more": 1})
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert 'what: "c" is not one of "a", "b"' in caught.value.message
