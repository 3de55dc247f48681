"""The model's instruction, and how results come back to it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from deputize.worker.models.base import ToolSpec
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.xml_calls.instruction import (
    FORM,
    declared_types,
    format_tool_result,
    generate_tool_instruction,
)
from deputize.worker.xml_calls.parser import ToolCall, parse_tool_calls


def spec(name: str, *required: str, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return ToolSpec(name, f"The {name} of tests.", schema)


SEARCH = spec(
    "web_search",
    "query",
    query={"type": "string", "description": "What to look\nfor."},
    freshness={"type": "string", "default": "noLimit", "enum": ["noLimit", "oneDay"]},
    count={"type": "integer", "default": 10, "minimum": 1, "maximum": 50, "description": "How many."},
    deep={"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
)


@pytest.mark.requirement("S003-033", "S003-034", "S003-036")
def test_each_tool_is_described_with_its_parameters_and_an_example() -> None:
    assert """
### web_search
Description: The web_search of tests.
Parameters:
  - query: string (required) - What to look for.
  - freshness: string (optional) - (one of: noLimit, oneDay)
    Default: noLimit
  - count: integer (optional) - How many. (1–50)
    Default: 10
  - deep: boolean (optional)
Example:
<tool_call>
<name>web_search</name>
<params>
<query><![CDATA[your_query_here]]></query>
<freshness><![CDATA[noLimit]]></freshness>
<count><![CDATA[10]]></count>
</params>
</tool_call>
""" in generate_tool_instruction([SEARCH])


@pytest.mark.requirement("S003-032")
def test_the_instruction_is_the_form_the_tools_and_notes() -> None:
    first, second = spec("first", "a", a={"type": "string"}), spec("second")
    told = generate_tool_instruction([first, second])
    parts = ["# Calling tools", FORM, "# Tools", "### first", "Example:", "### second", "Parameters: none", "# Notes"]
    places = [told.index(part) for part in parts]
    assert places == sorted(places)
    assert "]]]]><![CDATA[>" in told
    assert generate_tool_instruction([]) == ""


def test_the_examples_are_calls_that_would_work() -> None:
    tools = [ToolSpec(tool.name, tool.description, tool.schema) for tool in BUILTIN]
    calls = parse_tool_calls(generate_tool_instruction(tools), tools)
    assert [call.name for call in calls] == ["tool_name", *(tool.name for tool in tools)]
    for tool, call in zip(BUILTIN, calls[1:], strict=True):
        assert call.warnings == ()
        parts = tool.schema["properties"]
        defaults = {name: part["default"] for name, part in parts.items() if part.get("default") is not None}
        assert call.params == defaults | {name: f"your_{name}_here" for name in tool.schema.get("required", ())}


def test_what_stands_inside_lists_and_objects_is_described_too() -> None:
    items = {"type": "array", "items": {"$ref": "#/$defs/Item"}, "description": "All of them."}
    tool = spec("todo", "items", items=items, odd=True)
    tool.schema["$defs"] = {"Item": {"type": "object", "properties": {"text": {"type": "string"}}}}
    told = generate_tool_instruction([tool])
    assert "  - items: array (required) - All of them.\n" in told
    assert '    Schema: {"type":"array","items":{"$ref":"#/$defs/Item"}}\n' in told
    assert 'Definitions: {"Item":{"type":"object","properties":{"text":{"type":"string"}}}}\n' in told
    assert "  - odd: any (optional)\n" in told


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "integer", "minimum": 1}, "n: integer (optional) - (at least 1)"),
        ({"type": "integer", "maximum": 9}, "n: integer (optional) - (at most 9)"),
        (
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]},
            "n: integer (optional) - (0–9)",
        ),
        ({"type": ["integer", "string"], "default": ""}, "n: integer or string (optional)\n    Default: (empty)"),
        ({"type": "boolean", "default": False}, "n: boolean (optional)\n    Default: false"),
        ({"type": "array", "default": [1]}, "n: array (optional)\n    Default: [1]"),
    ],
)
def test_limits_and_defaults_of_a_parameter_are_described(part: dict[str, Any], told: str) -> None:
    assert f"  - {told}\n" in generate_tool_instruction([spec("tool", n=part)])


def test_the_errors_of_an_invalid_schema() -> None:
    for schema in ({}, {"properties": None}, {"type": "object", "properties": {}, "required": None}):
        tool = ToolSpec("tool", "Does it.", schema)
        assert parse_tool_calls(generate_tool_instruction([tool]), [tool])[1:] == [
            ToolCall("tool", {}, "<tool_call>\n<name>tool</name>\n<params>\n</params>\n</tool_call>")
        ]


@pytest.mark.requirement("S003-035")
@pytest.mark.parametrize("result", ["two\nlines & <tags>", "]]>", "</result></tool_result>", "ends with ]]", " ", ""])
def test_a_result_is_xml(result: str) -> None:
    told = ElementTree.fromstring(format_tool_result("read_file", result))
    assert [(part.tag, part.text or "") for part in told] == [
        ("name", "read_file"),
        ("success", "true"),
        ("result", result),
    ]


def test_a_failure_and_warnings_are_shown_before_the_result() -> None:
    told = ElementTree.fromstring(format_tool_result("a", "Error: no", success=False, warnings=["a & b", "]]>"]))
    assert [(part.tag, part.text) for part in told] == [
        ("name", "a"),
        ("success", "false"),
        ("warning", "a & b"),
        ("warning", "]]>"),
        ("result", "Error: no"),
    ]


def test_characters_that_xml_does_not_know_reach_the_model() -> None:
    assert "\x00\x1b[0m\r\n\ud800" in format_tool_result("bash", "\x00\x1b[0m\r\n\ud800")


@pytest.mark.requirement("S003-024")
def test_the_form_itself_is_a_call_with_its_value_in_cdata() -> None:
    assert FORM in generate_tool_instruction([SEARCH])
    [call] = parse_tool_calls(FORM)
    assert (call.name, call.params, call.warnings) == ("tool_name", {"parameter_name": "value"}, ())
    assert "<parameter_name><![CDATA[value]]></parameter_name>" in FORM


@pytest.mark.parametrize(
    ("part", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"enum": ["a"]}, {"const": 1}]}, {"string", "integer"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"$ref": "#/$defs/Item"}, {"object"}),
        ({"allOf": [{"$ref": "#/$defs/Circle"}]}, set()),
        ({"$ref": "#/nowhere"}, set()),
        ({"$ref": "https://elsewhere"}, set()),
        ({"description": "anything"}, set()),
        ({"type": 5, "anyOf": "nonsense"}, set()),
        (True, set()),
        (None, set()),
    ],
)
def test_the_types_of_a_schema(part: Any, types: set[str]) -> None:
    definitions = {"Item": {"type": "object"}, "Circle": {"$ref": "#/$defs/Circle"}}
    assert declared_types({"properties": {"value": part}, "$defs": definitions}, "value") == types


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": {"other": {"type": "string"}}}])
def test_what_is_not_declared_has_no_type(schema: dict[str, Any]) -> None:
    assert declared_types(schema, "value") == frozenset()
