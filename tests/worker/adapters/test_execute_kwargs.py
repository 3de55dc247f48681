"""000: a class with name, description, parameters and execute runs here as it is."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.errors import ErrorType
from deputize.worker.adapters import adapt
from deputize.worker.adapters.base_classes import PlainResult, PlainTool
from deputize.worker.adapters.without_runs import convert_tools
from deputize.worker.tools import BUILTIN
from tests.toolbench import Toolbench
from tests.worker.adapters.playing import Theatre


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
    assert ours == {
        "name": "read_file",
        "description": BUILTIN[0].description,
        "input_schema": BUILTIN[0].schema,
    }


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
