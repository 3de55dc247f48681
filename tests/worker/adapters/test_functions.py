"""000 and 001: a class with name, description, parameters and execute, and a table of functions, run as they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from deputize.shared.errors import ErrorType, Misconfigured
from deputize.worker.adapters import TableEntry, adapt, adapt_table
from deputize.worker.adapters.without_runs import convert_tools
from deputize.worker.tools.builtin import BUILTIN
from tests.runs.toolbench import Toolbench
from tests.worker.adapters.playing import Theatre
from tests.worker.adapters.seed_classes import PlainResult, PlainTool


class WordCountTool(PlainTool):
    """As that design writes tools."""

    @property
    def name(self) -> str:
        return "word_count"

    @property
    def description(self) -> str:
        return "Counts the words of a text."

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text"}, "least": {"type": "integer"}},
            "required": ["text"],
        }

    async def execute(self, text: str, least: int = 1) -> PlainResult:
        try:
            words = len(text.split())
            if words < least:
                return PlainResult(success=False, content=f"{words}", error=f"fewer than {least} words")
            return PlainResult(success=True, content=f"{words} words")
        except AttributeError as error:
            return PlainResult(success=False, content="", error=str(error))


SCHEMA = {
    "name": "word_count",
    "description": "Counts the words of a text.",
    "input_schema": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The text"}, "least": {"type": "integer"}},
        "required": ["text"],
    },
}


@pytest.mark.requirement("S000-026", "S000-027", "S002-001")
async def test_it_runs_in_the_loop_like_one_of_ours(theatre: Theatre) -> None:
    play = await theatre.play(
        [adapt(WordCountTool())], {"text": "one two"}, {"text": "one", "least": 2}, {"txt": "one"}, {"text": 1}
    )
    good, short, misspelt, mistyped = play.steps
    assert (good.status, good.result) == ("completed", "2 words")
    assert (short.status, short.result, short.error) == ("failed", "1", "fewer than 2 words")
    assert misspelt.error is not None
    assert "'txt' was unexpected" in misspelt.error
    assert misspelt.error.endswith("Known parameters: text, least.")
    assert 'text: 1 is not of type "string"' in (mistyped.error or "")
    assert play.result.success


@pytest.mark.requirement("S000-028")
@pytest.mark.parametrize("member", ["name", "description", "parameters"])
async def test_the_base_class_leaves_each_member_to_the_tool(member: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(PlainTool(), member)
    with pytest.raises(NotImplementedError):
        await PlainTool().execute()


@pytest.mark.requirement("S000-029", "S000-030")
def test_tools_and_plain_mappings_become_declarations() -> None:
    assert WordCountTool().to_schema() == SCHEMA
    ready: dict[str, Any] = {"name": "x", "anything": [1]}
    first, second, ours = convert_tools([WordCountTool(), ready, BUILTIN[0]])
    assert first == {**SCHEMA, "input_schema": {"additionalProperties": False, **SCHEMA["input_schema"]}}
    assert second is ready
    assert ours == {"name": "read_file", "description": BUILTIN[0].description, "input_schema": BUILTIN[0].schema}


@pytest.mark.requirement("S000-031")
@pytest.mark.parametrize("thing", [1, "read_file", object(), [WordCountTool()], None, WordCountTool])
def test_anything_else_is_no_tool(thing: object) -> None:
    with pytest.raises(TypeError, match=f"Unsupported tool type: {type(thing)}"):
        convert_tools([thing])


class Elsewhere:
    """A tool whose base class is not ours, with results that are not ours either."""

    name = "elsewhere"
    description = "Says where it is."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - as others write it

    async def execute(self) -> dict[str, Any]:
        return {"success": True, "content": {"place": "elsewhere"}}


async def test_what_counts_is_the_four_members_and_not_the_class(desk: Toolbench) -> None:
    result = await adapt(Elsewhere()).run(desk.context(), {})
    assert result.content == '{"place": "elsewhere"}'


@pytest.mark.parametrize("success", [True, False])
async def test_what_a_plain_result_holds_besides_is_left_alone(desk: Toolbench, success: bool) -> None:
    class Talkative(Elsewhere):
        async def execute(self) -> dict[str, Any]:
            return {"success": success, "content": "there", "error": "no", "metadata": "none of ours", "data": [1]}

    result = await adapt(Talkative()).run(desk.context(), {})
    assert (result.success, result.content, result.data, result.metadata) == (success, "there", None, {})


async def test_a_tool_that_fails_inside_costs_only_its_call(theatre: Theatre) -> None:
    class Broken(WordCountTool):
        async def execute(self, *_: Any, **__: Any) -> PlainResult:
            raise RuntimeError("no idea")

    play = await theatre.play([adapt(Broken())], {"text": "one"})
    assert play.steps[0].error == "word_count failed inside: no idea"
    assert play.result.success


async def test_a_failure_without_words_is_a_failure_all_the_same(desk: Toolbench) -> None:
    class Silent(Elsewhere):
        async def execute(self) -> dict[str, Any]:
            return {"success": False}

    result = await adapt(Silent()).run(desk.context(), {})
    assert (result.success, result.error) == (False, "it failed without an error message")
    assert result.error_type is ErrorType.EXECUTION_FAILED


class ReverseArgs(BaseModel):
    text: str = Field(description="The text to turn round")
    times: int = Field(default=1, ge=1, description="How often")

    @field_validator("text")
    @classmethod
    def _no_palindrome(cls, text: str) -> str:
        if text == text[::-1]:
            raise ValueError("it reads the same both ways")
        return text


async def reverse(args: ReverseArgs) -> str:
    if not args.text.strip():
        return "错误\uff1a文本为空 - text"
    return args.text[:: -1 if args.times % 2 else 1]


def first_line(args: Mapping[str, Any]) -> str:
    """Not async: it reads a file, as small tools do."""
    try:
        return Path(args["path"]).read_text().splitlines()[0]
    except OSError as error:
        return f"Error: cannot be read - {error.strerror}"


TOOLS: dict[str, TableEntry] = {
    "reverse": {"description": "Turns a text round", "parameters": ReverseArgs, "execute": reverse},
    "first_line": {
        "description": "Reads the first line of a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "execute": first_line,
    },
}


@pytest.mark.requirement("S001-003", "S001-013")
async def test_a_table_runs_in_the_loop_like_our_own_list(theatre: Theatre, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("first\nsecond\n")
    play = await theatre.play(
        adapt_table(TOOLS),
        {"text": "abc"},
        {"text": "abc", "times": 2},
        {"text": "  x"},
        {"call": "first_line", "arguments": {"path": str(tmp_path / "lines.txt")}},
    )
    assert [step.result for step in play.steps] == ["cba", "abc", "x  ", "first"]
    assert play.result.success


async def test_a_text_that_reports_an_error_is_a_failure(desk: Toolbench) -> None:
    reverse_tool, line_tool = adapt_table(TOOLS)
    result = await reverse_tool.run(desk.context(), ReverseArgs.model_construct(text=" "))
    assert (result.success, result.for_model) == (False, "Error: 文本为空 - text")
    result = await line_tool.run(desk.context(), {"path": "/nowhere"})
    assert (result.success, result.for_model) == (False, "Error: cannot be read - No such file or directory")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, '"text" is a required property'),
        ({"text": "ab", "time": 2}, "'time' was unexpected"),
        ({"text": "ab", "times": 0}, "times: 0 is less than the minimum of 1"),
        ({"text": "aba"}, "text: it reads the same both ways"),
    ],
)
async def test_the_model_checks_the_arguments_as_it_always_does(
    theatre: Theatre, arguments: dict[str, Any], said: str
) -> None:
    play = await theatre.play(adapt_table(TOOLS)[:1], arguments)
    assert play.steps[0].error is not None
    assert said in play.steps[0].error
    assert play.steps[0].error.endswith("Known parameters: text, times.")


def test_a_name_that_no_model_accepts_is_refused_at_once() -> None:
    with pytest.raises(Misconfigured, match="the tool 'turn round' cannot be offered: a name is 1 to 64"):
        adapt_table({"turn round": TOOLS["reverse"]})
