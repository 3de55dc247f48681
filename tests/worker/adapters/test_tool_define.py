"""002: what Tool.define makes runs here as it is, and that design's calls and settings have their place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.shared.events import Envelope, RunStarted, StepCompleted, StepStarted
from deputize.shared.settings import Settings
from deputize.worker.adapters import adapt
from deputize.worker.adapters.declarations import DefinedContext, ToolInfo, ToolInfoAsync
from deputize.worker.adapters.without_runs import ToolExecutionResult, execute_tool
from deputize.worker.mcp.tools import result_of
from deputize.worker.toolkit.registry import Registry, available_tools, prepare_kit
from deputize.worker.tools import base
from deputize.worker.tools.base import Effect, InitContext, Kind
from deputize.worker.tools.builtin import BUILTIN
from tests.runs.bench import call, open_bench, say, script
from tests.runs.toolbench import Toolbench
from tests.worker.adapters.playing import Theatre
from tests.worker.adapters.seed_classes import Tool, ToolDefinition, ToolParameter


async def tell_place(args: Mapping[str, Any], ctx: DefinedContext) -> dict[str, Any]:
    """As that design writes ``execute``."""
    ctx.metadata({"title": "Looking", "files": 0})
    where = [ctx.session_id, ctx.message_id, ctx.tool_call_id != "", ctx.abort_signal.aborted]
    return {
        "title": f"Told of {args['what']}",
        "output": f"{where} {ctx.working_directory.rsplit('/', 1)[-1]}",
        "metadata": {"what": args["what"]},
    }


WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

place_tool = Tool.define(
    "tell_place",
    {
        "name": "Tell place",
        "description": "Tells where it runs.",
        "category": "custom",
        "parameters": WHAT,
        "execute": tell_place,
        "format_validation_error": lambda error: f"Say what, please. ({error})",
    },
)


class Librarian:
    """Counts how often it was asked what there is."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = 0

    async def __call__(self, ctx: InitContext) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.fails:
            raise ConnectionError("the library is closed")
        return {
            "description": f"Load a skill. Available: {', '.join(ctx.skills)}",
            "parameters": {"properties": {"skill": {"enum": list(ctx.skills)}}, "required": ["skill"]},
            "execute": self.load,
        }

    async def load(self, args: Mapping[str, Any], ctx: DefinedContext) -> dict[str, Any]:
        return {"title": "", "output": f"All about {args['skill']}."}


class ServersTool(base.Tool[base.Params]):
    """A tool as an MCP server's would be."""

    name = "mcp__git__log"
    kind = Kind.OTHER
    effect = Effect.EFFECTFUL
    origin = base.Origin("mcp", "git")
    params = base.Params

    async def run(self, ctx: base.ToolContext, params: base.Params) -> base.ToolResult:
        return base.ToolResult("one commit")


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


async def test_an_async_tool_that_was_not_made_ready_is_in_no_default_kit_and_answers_an_error(desk: Toolbench) -> None:
    tool = adapt(Tool.define("load_skill", {"name": "Load", "category": "mcp"}, Librarian()))
    assert Registry([tool]).kit(None) == {}
    with pytest.raises(ToolError, match="load_skill was not initialized for this run"):
        await tool.run(desk.context(), {})
    with pytest.raises(ToolError, match="invalid arguments"):
        tool.parse({"waht": 1})
    ready = await tool.ready(InitContext("a", {"pdf": ""}))
    assert ready is not None
    assert [*Registry([ready]).kit(None)] == ["load_skill"]


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


@pytest.mark.requirement("S002-022", "S002-023", "S002-024")
async def test_all_tools_are_offered_to_the_model_the_async_ones_made_ready(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def init(ctx: InitContext) -> dict[str, Any]:
        return {"description": "Found out.", "parameters": WHAT, "execute": tell_place}

    tools = [adapt(place_tool), adapt(Tool.define("late", {"name": "Late"}, init))]
    ready = await prepare_kit(Registry(tools).kit(["*"]), InitContext("x"), lambda _: None)
    assert [(each["name"], each["description"]) for each in Registry(ready.values()).declarations()] == [
        ("tell_place", "Tells where it runs."),
        ("late", "Found out."),
    ]
    with caplog.at_level(logging.INFO):
        async with open_bench(redis_url, tmp_path / "home", offered=tools) as bench:
            run = await bench.run(model=script(tmp_path, [say("Done.")]), tools=["*"])
            assert started(await bench.events(run.delegation_id)).tools == ["tell_place", "late"]
    assert "runs are offered 2 tools: tell_place, late" in caplog.text


@pytest.mark.requirement("S000-024")
async def test_a_run_goes_on_without_a_tool_that_cannot_say_what_it_is(redis_url: str, tmp_path: Path) -> None:
    closed = Librarian()
    closed.fails = 1
    tools = [adapt(place_tool), adapt(Tool.define("late", {"name": "Late"}, closed))]
    async with open_bench(redis_url, tmp_path / "home", offered=tools) as bench:
        run = await bench.run(model=script(tmp_path, [say("Done.")]), tools=["*"])
        assert started(await bench.events(run.delegation_id)).tools == ["tell_place"]
    assert run.success
    assert run.errors == ["the tool late could not be initialized: the library is closed"]


@pytest.mark.requirement("S002-014", "S002-036", "S002-037", "S002-047")
async def test_what_that_design_sends_with_a_call_has_its_place_here(redis_url: str, tmp_path: Path) -> None:
    """toolId, arguments, messageId, sessionId go in; success, result, error come out, and a call's life is reported."""
    seen: list[base.ToolContext] = []

    class Watching(ServersTool):
        name = "watching"
        origin = base.Origin()

        async def run(self, ctx: base.ToolContext, params: base.Params) -> base.ToolResult:
            seen.append(ctx)
            ctx.metadata("half way", part=1)
            return base.ToolResult("seen")

    model = script(tmp_path, [call("watching")], [call("watching", x=1)], [say("Done.")])
    async with open_bench(redis_url, tmp_path / "home", offered=[Watching()]) as bench:
        result = await bench.run(model=model, tools=["watching"], session_id="s-1", message_id="m-1")
        events = [envelope.event for envelope in await bench.events(result.delegation_id)]
    [context] = seen
    assert (context.session_id, context.message_id) == ("s-1", "m-1")
    assert context.files.root.is_relative_to(tmp_path)  # workingDirectory
    started = [event.step for event in events if isinstance(event, StepStarted)]  # onStepStart
    ended = [event.step for event in events if isinstance(event, StepCompleted)]  # onStepComplete
    assert [step.id for step in started] == [step.id for step in ended]
    assert context.call_id == started[0].id  # toolCallId
    assert [(step.status, step.result, step.error is None) for step in ended] == [
        ("completed", "seen", True),
        ("failed", None, False),
    ]
    assert next(event.model for event in events if isinstance(event, RunStarted)) == model  # providerId
    assert InitContext("x", {"pdf": "Reads PDFs"}).skills == {"pdf": "Reads PDFs"}


@pytest.mark.requirement("S002-079")
async def test_the_settings_of_that_design_are_fields_of_a_request_and_the_workers_settings(
    redis_url: str, tmp_path: Path
) -> None:
    """enableToolCalls, enabled: ``tools`` and switches; autoExecute: the approval mode; toolAgentSettings: limits."""
    write = call("write_file", path="a.txt", content="x")
    model = script(tmp_path, [write], [say("Done.")])
    async with open_bench(redis_url, tmp_path / "home", tools={"enable_bash": False}) as bench:
        asked: list[dict[str, Any]] = [
            {},
            {"tools": []},
            {"tools": ["glob"]},
            {"approval_mode": "ask"},
            {"limits": {"max_tool_calls": 0}},
        ]
        runs = [await bench.run(model=model, **said) for said in asked]
        offers = [started(await bench.events(run.delegation_id)).tools for run in runs[:3]]
    assert "bash" not in offers[0]
    assert offers[1:] == [[], ["glob"]]
    assert [run.files_modified for run in runs] == [["a.txt"], [], [], [], []]
    assert ["there is no tool" in run.errors[0] for run in runs[1:3]] == [True, True]
    assert "needs a person's approval" in runs[3].errors[0]
    assert runs[4].termination_reason == "max_tool_calls"


def started(events: list[Envelope]) -> RunStarted:
    return next(envelope.event for envelope in events if isinstance(envelope.event, RunStarted))
