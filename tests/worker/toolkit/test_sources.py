"""Tools made from data: their schemas hold, and a schema without sense does no harm."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.worker.toolkit.sources import SchemaTool
from deputize.worker.tools.base import Effect, ToolContext, ToolResult


class Sample(SchemaTool):
    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        return ToolResult(str(params))


def sample(schema: dict[str, Any]) -> Sample:
    return Sample("sample", "A sample.", schema, effect=Effect.PURE)


def refused(tool: Sample, arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolError) as caught:
        tool.parse(arguments)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    return caught.value.message


def test_arguments_are_passed_on_as_they_are() -> None:
    tool = sample({"properties": {"a": {"type": "integer"}, "b": {"default": 1}}, "required": ["a"]})
    assert tool.parse({"a": 1}) == {"a": 1}
    assert (tool.name, tool.description, tool.schema["type"]) == ("sample", "A sample.", "object")


def test_each_mistake_is_named_with_the_known_parameters() -> None:
    tool = sample({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]})
    assert refused(tool, {"a": "x"}) == (
        'invalid arguments for sample: a: "x" is not of type "integer". Known parameters: a, b.'
    )
    assert '"a" is a required property' in refused(tool, {})
    assert "'c' was unexpected" in refused(tool, {"a": 1, "c": 1})


def test_a_schema_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(Misconfigured, match=r'JSON Schema: properties/a/type: .* "x" is not one of "array"'):
        sample({"properties": {"a": {"type": "x"}}})
    with pytest.raises(Misconfigured, match=r'are not a valid JSON Schema: properties: \[1\] is not of type "object"'):
        sample({"properties": [1]})


def test_a_parameter_that_models_refuse_is_refused_at_once() -> None:
    with pytest.raises(Misconfigured, match="models do not accept the parameter name 'a b'"):
        sample({"properties": {"a b": {}}})


def test_keywords_that_models_do_not_take_are_described_in_words() -> None:
    tool = sample({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert "anyOf" not in tool.schema
    assert tool.description == (
        'A sample.\n\nThe arguments must also match: {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}'
    )
    assert tool.parse({"b": 1}) == {"b": 1}
    message = refused(tool, {"c": 1})
    assert "is not valid under any of the schemas listed in the 'anyOf' keyword: " in message
    assert '"a" is a required property, or "b" is a required property. Known' in message
