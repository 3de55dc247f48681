"""Types: the declared one counts, and looks only where none is declared (C13)."""

from __future__ import annotations

from typing import Any

import pytest

from deputize.worker.xml_calls.coercion import coerce, declared_types

DEEP = "[" * 65 + "]" * 65


def convert_as(text: str, *types: str) -> Any:
    return coerce(text, frozenset(types))


@pytest.mark.requirement("S003-029")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("123", 123),
        ("-5", -5),
        ("0", 0),
        ("3.14", 3.14),
        ("text", "text"),
        ("", ""),
        ("007", "007"),
        ("1.2.3", "1.2.3"),
        (" 1", " 1"),
        ("True", "True"),
        ("nan", "nan"),
        ("1e5", "1e5"),
        ("9" * 400 + ".0", "9" * 400 + ".0"),
        ("٣", "٣"),
    ],
)
def test_without_a_declared_type_a_value_is_what_it_looks_like(text: str, value: Any) -> None:
    found = convert_as(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.requirement("S003-029")
@pytest.mark.parametrize("text", ["123", "true", "3.14", " x \n", "null", "", '{"a": 1}', "[1]"])
def test_a_string_stays_verbatim(text: str) -> None:
    assert convert_as(text, "string") == text
    assert convert_as(text, "string", "null", "integer", "boolean") == text


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        (" 7\n", ["integer"], 7),
        ("+7", ["integer"], 7),
        ("7", ["number"], 7),
        ("7.5", ["number"], 7.5),
        (".5e-1", ["number"], 0.05),
        ("TRUE", ["boolean"], True),
        ("null", ["integer", "null"], None),
        ("", ["boolean", "null"], None),
        ('["a", 1]', ["array"], ["a", 1]),
        ('\n{"a": [true]} ', ["object"], {"a": [True]}),
        ('["a"]', ["string", "array"], ["a"]),
        ('{"a": 1}', ["string", "array"], '{"a": 1}'),
        ('["\\ud83d\\ude42", "\\ud83d"]', ["array"], ["🙂", "\ufffd"]),
    ],
)
def test_a_declared_type_is_given(text: str, types: list[str], value: Any) -> None:
    found = convert_as(text, *types)
    assert (type(found), found) == (type(value), value)


def test_a_structure_may_be_as_deep_as_encoders_can_bear() -> None:
    assert isinstance(convert_as(DEEP[1:-1], "array"), list)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("7.5", "integer"),
        ("seven", "integer"),
        ("9" * 5000, "integer"),
        ("1e999", "number"),
        ("NaN", "number"),
        ("Infinity", "number"),
        ("yes", "boolean"),
        ("null", "boolean"),
        ("[1,", "array"),
        ("[NaN]", "array"),
        ("[1e999]", "array"),
        ("{}", "array"),
        ("[]", "object"),
        ("[" * 100_000, "array"),
        (DEEP, "array"),
    ],
)
def test_what_does_not_fit_stays_a_text_for_the_tool_to_refuse(text: str, type: str) -> None:
    assert convert_as(text, type) == text


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
