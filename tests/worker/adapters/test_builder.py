"""004: a builder and its invocations run here as they are."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import pytest

from deputize.shared.errors import ErrorType, Misconfigured
from deputize.worker.adapters import adapt
from deputize.worker.adapters.declarations import AbortSignal, UpdateOutput
from deputize.worker.text.output import FileDiff
from deputize.worker.tools.base import Effect, Kind
from tests.runs.toolbench import Toolbench
from tests.worker.adapters.playing import Theatre
from tests.worker.adapters.seed_classes import (
    BaseDeclarativeTool,
    DeclarativeTool,
    InvocationResult,
    ToolInvocation,
    ToolResultError,
)


class MyParams(TypedDict):
    input: str


class MyToolInvocation(ToolInvocation[MyParams]):
    """As that design writes them."""

    def get_description(self) -> str:
        return f"Processing: {self.params['input']}"

    async def execute(
        self, signal: AbortSignal, update_output: UpdateOutput | None = None, shell_config: Any = None
    ) -> InvocationResult:
        text = f"Processed: {self.params['input']}"
        return InvocationResult(llm_content=text, return_display=text)


class MyTool(BaseDeclarativeTool[MyParams]):
    def __init__(self, kind: Kind = Kind.OTHER, can_update_output: bool = False) -> None:
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        super().__init__("my_tool", "My tool", "Processes.", kind, schema, can_update_output=can_update_output)

    def create_invocation(self, params: MyParams) -> ToolInvocation[MyParams]:
        return MyToolInvocation(params)


class Asking(MyToolInvocation):
    """Touches a file, talks while it works, wants to be confirmed, and fails."""

    def tool_locations(self) -> list[str]:
        return [self.params["input"], "b.txt"]

    async def should_confirm_execute(self, signal: AbortSignal) -> Any:
        return {"type": "info", "prompt": "Really?"}

    async def execute(
        self, signal: AbortSignal, update_output: UpdateOutput | None = None, shell_config: Any = None
    ) -> InvocationResult:
        if update_output:
            update_output("half way")
        diff = FileDiff("a.txt", "--- a\n+++ b\n", 1, 0)
        return InvocationResult(["part", "s"], diff, ToolResultError("no such file", "FILE_NOT_FOUND"))


class AskingTool(MyTool):
    def create_invocation(self, params: MyParams) -> ToolInvocation[MyParams]:
        return Asking(params)

    def validate_tool_param_values(self, params: MyParams) -> str | None:
        return "input must not be empty" if not params["input"] else None


@pytest.mark.requirement("S004-039", "S004-041", "S004-003")
async def test_the_example_runs_in_the_loop_like_one_of_ours(theatre: Theatre) -> None:
    play = await theatre.play([adapt(MyTool())], {"input": "x"}, {}, {"input": 1}, {"input": "x", "output": "y"})
    good, *bad = play.steps
    assert (good.title, good.result, good.status) == ("Processing: x", "Processed: x", "completed")
    told = [step.error for step in bad]
    assert all(error is not None and error.startswith("invalid arguments for my_tool: ") for error in told)
    assert play.result.success


@pytest.mark.requirement("S004-002", "S004-003", "S004-004", "S004-005", "S004-006")
async def test_a_builder_declares_and_an_invocation_holds_one_calls_arguments() -> None:
    tool = MyTool()
    assert (tool.name, tool.display_name, tool.description, tool.kind) == ("my_tool", "My tool", "Processes.", "other")
    assert (tool.is_output_markdown, tool.can_update_output) == (True, False)
    assert tool.schema == {
        "name": "my_tool",
        "description": "Processes.",
        "parametersJsonSchema": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    }
    one, two = tool.build({"input": "1"}), tool.build({"input": "2"})
    assert (one.params, two.params) == ({"input": "1"}, {"input": "2"})
    assert one.tool_locations() == ()
    assert await one.should_confirm_execute(AbortSignal()) is False
    with pytest.raises(ValueError, match='"input" is a required property'):
        tool.build({})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"^input must not be empty$"):
        AskingTool().build({"input": ""})
    with pytest.raises(TypeError, match="build"):
        DeclarativeTool("x", "X", "", Kind.OTHER, {})  # pyright: ignore[reportAbstractUsage]


@pytest.mark.requirement("S004-006", "S004-037")
async def test_what_an_invocation_declares_is_known_before_it_runs(theatre: Theatre) -> None:
    tool = adapt(AskingTool(Kind.EDIT, can_update_output=True))
    assert (tool.kind, tool.effect) == (Kind.EDIT, Effect.EFFECTFUL)
    assert tool.touches(tool.parse({"input": "a.txt"})).paths == ("a.txt", "b.txt")
    play = await theatre.play([tool], {"input": "a.txt"}, {"input": ""})
    failed, refused = play.steps
    assert (failed.status, failed.result, failed.error) == ("failed", "--- a\n+++ b\n", "no such file")
    assert play.updates == [(None, {"output": "half way"})]
    assert refused.error == "invalid arguments for my_tool: input must not be empty"


def test_a_kind_that_is_none_of_ours_is_named() -> None:
    with pytest.raises(Misconfigured, match="the tool my_tool is of kind 'magic'; there are read, edit, delete"):
        adapt(MyTool("magic"))  # pyright: ignore[reportArgumentType]


async def test_an_error_keeps_its_type_where_we_know_it(desk: Toolbench) -> None:
    tool = adapt(AskingTool())
    result = await tool.run(desk.context(), tool.parse({"input": "a.txt"}))
    assert (result.error_type, result.content) == (ErrorType.FILE_NOT_FOUND, '["part", "s"]')
    assert desk.news == []


async def test_a_call_that_wants_a_confirmation_its_kind_does_not_lead_to_is_refused(theatre: Theatre) -> None:
    play = await theatre.play([adapt(AskingTool(Kind.READ))], {"input": "a.txt"})
    assert play.steps[0].error is not None
    assert play.steps[0].error.startswith("denied: my_tool requires confirmation of this call")


async def test_a_builder_may_replace_the_validation_as_a_whole(theatre: Theatre) -> None:
    class Picky(MyTool):
        def validate_tool_params(self, params: MyParams) -> str | None:
            return super().validate_tool_params(params) or ("not that one" if params["input"] == "that" else None)

    play = await theatre.play([adapt(Picky())], {"input": "that"}, {"input": "this"})
    assert [step.error for step in play.steps] == ["invalid arguments for my_tool: not that one", None]


@pytest.mark.parametrize("where", ["create_invocation", "get_description", "tool_locations"])
async def test_whatever_goes_wrong_before_a_call_is_an_answer(theatre: Theatre, where: str) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("oops")

    class BrokenInvocation(MyToolInvocation):
        pass

    class Broken(MyTool):
        def create_invocation(self, params: MyParams) -> ToolInvocation[MyParams]:
            return BrokenInvocation(params)

    setattr(Broken if where == "create_invocation" else BrokenInvocation, where, fail)
    play = await theatre.play([adapt(Broken())], {"input": "x"})
    assert play.steps[0].error == "invalid arguments for my_tool: 'oops'"
    assert play.result.success


class Waiting(MyToolInvocation):
    """Waits until it is stopped, and returns in which order it heard of it."""

    begun: asyncio.Event
    heard: list[Any]

    async def execute(
        self, signal: AbortSignal, update_output: UpdateOutput | None = None, shell_config: Any = None
    ) -> InvocationResult:
        self.heard.append(signal.aborted)
        self.begun.set()
        try:
            await signal.wait()
            raise AssertionError("cancelled only after the signal")
        finally:
            self.heard.append(signal.aborted)


class WaitingTool(MyTool):
    def create_invocation(self, params: MyParams) -> ToolInvocation[MyParams]:
        return Waiting(params)


def test_a_signal_can_be_passed_by_the_caller_of_an_invocation() -> None:
    signal = AbortSignal()
    signal.abort()
    assert signal.aborted


@pytest.mark.requirement("S004-040", "P-15")
async def test_a_cancelled_call_hears_of_it_by_its_signal_and_ends(theatre: Theatre) -> None:
    Waiting.begun, Waiting.heard = asyncio.Event(), []
    result = await theatre.cancelled(adapt(WaitingTool()), Waiting.begun, input="x")
    assert result.termination_reason == "cancelled"
    assert Waiting.heard == [False, True]


async def test_a_call_that_cancels_itself_is_an_answer_and_no_cancelled_run(theatre: Theatre) -> None:
    class Quitting(MyToolInvocation):
        async def execute(self, *_: Any, **__: Any) -> InvocationResult:
            raise asyncio.CancelledError

    class QuittingTool(MyTool):
        def create_invocation(self, params: MyParams) -> ToolInvocation[MyParams]:
            return Quitting(params)

    play = await theatre.play([adapt(QuittingTool())], {"input": "x"})
    assert play.steps[0].error == "my_tool cancelled itself. Try again, or do without it."
    assert play.result.success
