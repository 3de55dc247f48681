"""Which schemas and arguments are valid, as two libraries judged them alike (jsonschema 4.26, jsonschema-rs 0.61).

Of foreign schemas, one that could take long is refused, as are arguments whose validation could take long.
"""

from __future__ import annotations

import time
from functools import reduce
from typing import Any

import pytest

from deputize.shared.errors import ErrorType, Misconfigured, ToolError
from deputize.worker.schemas.arguments import PATTERN_SECONDS, Arguments, ArgumentSchema

from .corpus import CORPUS, INVALID, JSON, NODE, one

CASES = [(name, arguments, True) for name, (_, valid, _) in CORPUS.items() for arguments in valid]
CASES += [(name, arguments, False) for name, (_, _, invalid) in CORPUS.items() for arguments in invalid]


def is_valid(schema: ArgumentSchema, arguments: Arguments) -> bool:
    try:
        schema.check(arguments)
    except ToolError:
        return False
    return True


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_arguments_are_valid_or_not(name: str, arguments: JSON, expected: bool) -> None:
    schema = ArgumentSchema("sample", CORPUS[name][0])
    assert is_valid(schema, arguments) == expected


@pytest.mark.parametrize("name", INVALID)
def test_a_schema_is_invalid(name: str) -> None:
    with pytest.raises(Misconfigured):
        ArgumentSchema("sample", INVALID[name])


def referring(levels: int, form: str = "allOf") -> JSON:
    """Definitions of which each refers to the next one twice."""
    defs = {f"d{n}": {"unevaluatedProperties": False, form: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"minProperties": 5}}}


def nested(key: str, levels: int) -> JSON:
    return reduce(lambda inner, _: {key: [inner] if key == "allOf" else inner}, range(levels), {})


def chain(levels: int) -> JSON:
    return reduce(lambda inner, _: {"x": inner}, range(levels), {})


def recursive(body: JSON) -> JSON:
    return {**one(NODE), "$defs": {"node": body}}


OPEN = {"additionalProperties": True}
NOT_DECLARED: dict[str, tuple[JSON, str]] = {
    "26 levels of allOf": (referring(26), "checked against .* subschemas; use fewer"),
    "26 levels of anyOf": (referring(26, "anyOf"), "checked against .* subschemas; use fewer"),
    "2000 levels of references": (referring(2000), "more than 10000 parts"),
    "900 references in a row": (
        {"$ref": "#/$defs/d0", "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)} | {"d900": {}}},
        "too many references follow each other",
    ),
    "not, 300 deep": (nested("not", 300), "nested more than 100 deep"),
    "allOf, 300 deep": (nested("allOf", 300), "nested more than 100 deep"),
    "deeper than an encoder follows": (nested("not", 5000), "nested too deep"),
    "a list of 500,000 choices": (one({"enum": list(range(500_000))}), "more than 10000 parts"),
    "9,000 parameters with choices": ({"properties": {f"p{n}": {"enum": [n]} for n in range(9000)}}, "more than 10000"),
    "a description of a megabyte": ({"description": "x" * 1_000_000}, "longer than 131072 bytes"),
    "201 patterns": ({"properties": {f"p{n}": {"pattern": f"^{n}$"} for n in range(201)}}, "more than 200 patterns"),
    "no regular expression": (one({"pattern": "("}), r"the pattern '\(' is not a valid regular expression: missing"),
    "a long pattern with look-around": (one({"pattern": "(?=a)" * 300}), "too large; simplify it"),
    "a name with look-around": (
        {"patternProperties": {"(?=a)": {}}},
        r"in patternProperties, the pattern '\(\?=a\)' uses look-around",
    ),
    "itself": ({"$ref": "#"}, "a reference leads back to itself without end"),
    "itself through others": (recursive({"allOf": [NODE]}), "a reference leads back to itself without end"),
    "another machine": (one({"$ref": "http://127.0.0.1:9/s"}), "nothing is fetched for the reference 'http://127"),
    "a file": (one({"$ref": "file:///etc/passwd"}), "nothing is fetched for the reference 'file:///etc/passwd'"),
    "a file beside it": (one({"$ref": "s.json#/a"}), "nothing is fetched for the reference 's.json#/a'; use one that"),
    "nothing": (
        one({"$ref": "#/$defs/gone"}),
        "the reference '#/\\$defs/gone' leads to nothing in them; add its target",
    ),
    "half of a character": (one({"pattern": "\ud800"}), "half of a character, a lone surrogate; remove it"),
    "a dynamic reference": (one({"$dynamicRef": "#a"}), r"\$dynamicRef is not supported; use \$ref"),
    "an address in it": ({"$defs": {"a": {"$id": "https://example.org/"}}}, r"an inner \$id is not supported"),
}
TWICE = {"allOf": [{"properties": {"x": NODE}}] * 2}
NOT_JUDGED: dict[str, tuple[JSON, JSON]] = {
    "a tree, each level twice": (recursive(TWICE), {"a": chain(28)}),
    "a tree, one of two": (
        recursive({"anyOf": [{"properties": {"x": NODE}, "minProperties": 1}] * 2}),
        {"a": chain(28)},
    ),
    "names and others": (recursive({"patternProperties": {"x": NODE, "^x": NODE}}), {"a": chain(28)}),
    "what depends": (recursive({"dependentSchemas": {"x": {"properties": {"x": NODE}}}, **TWICE}), {"a": chain(28)}),
    "levels of definitions": (
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{n}": {"properties": {"x": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}}} for n in range(30)}
            | {"d30": {}},
        },
        chain(30),
    ),
    "choices for each of many": (one({"items": {"enum": list(range(5000))}}), {"a": list(range(-5000, 0))}),
    "patterns for many names": (
        {"patternProperties": {f"a{n}": {} for n in range(200)}},
        {f"name_{n}": 1 for n in range(1000)},
    ),
    "a long text": (one({"pattern": "[ab]*a[ab]{100}c"}), {"a": "ab" * 500_001}),
    "many values": (one({"items": {"items": {"type": "integer"}}}), {"a": [[*range(1000)] for _ in range(200)]}),
}
SLOW = "takes too long to match against .*; use a shorter value"
JUDGED: dict[str, tuple[JSON, JSON, str]] = {
    "nested quantifiers": (one({"pattern": "^(a+)+$"}), {"a": "a" * 50_000 + "!"}, "does not match"),
    "alternatives that overlap": (one({"pattern": "^(a|a)*$"}), {"a": "a" * 50_000 + "!"}, "does not match"),
    "names of parameters": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 5000 + "!": 1},
        "was unexpected",
    ),
    "names, one by one": ({"propertyNames": {"pattern": "^(x?a+)+$"}, **OPEN}, {"a" * 5000 + "!": 1}, "does not match"),
    "different ones of many": (
        one({"uniqueItems": True}),
        {"a": [{"x": number} for number in [*range(20_000), 7]]},
        "has non-unique elements",
    ),
    "unevaluated, level by level": (
        {**referring(8, "anyOf"), "unevaluatedProperties": False},
        {f"p{number}": number for number in range(100)},
        "they do not match the schema; with fewer values, the mistake is named",
    ),
    "look-around": (one({"pattern": "^(?=a)(a|a)*$"}), {"a": "a" * 50 + "!"}, SLOW),
    "look-around, many times": (one({"items": {"pattern": "^(?=a)(a|a)*$"}}), {"a": ["a" * 50 + "!"] * 1000}, SLOW),
    "back-references": (one({"pattern": r"^(a+)+\1+\1+$"}), {"a": "a" * 5000 + "!"}, SLOW),
    "a deep value": (one({}), {"a": chain(5000)}, "nested more than 64 deep"),
    "half of a character": (one({}), {"a": "\ud800"}, "surrogates not allowed"),
    "a long value": (one({}), {"a": "x" * 5_000_000}, "longer than 1048576 bytes"),
}


@pytest.mark.requirement("P-10")
@pytest.mark.parametrize(("schema", "reason"), NOT_DECLARED.values(), ids=NOT_DECLARED)
def test_a_schema_that_could_take_long_is_refused_when_it_is_declared(schema: JSON, reason: str) -> None:
    begun = time.process_time()
    with pytest.raises(Misconfigured, match=f"the parameters of tool 'sample' are not a valid JSON Schema: .*{reason}"):
        ArgumentSchema("sample", schema)
    assert time.process_time() - begun < 1


@pytest.mark.requirement("P-10")
@pytest.mark.parametrize(("schema", "arguments"), NOT_JUDGED.values(), ids=NOT_JUDGED)
def test_arguments_that_could_take_long_are_an_error(schema: JSON, arguments: JSON) -> None:
    tool = ArgumentSchema("sample", schema)
    begun = time.process_time()
    with pytest.raises(ToolError, match=r"validating them against its schema takes too long\. Use fewer") as caught:
        tool.check(arguments)
    assert caught.value.type is ErrorType.INVALID_TOOL_PARAMS
    assert time.process_time() - begun < 1
    tool.check({})


@pytest.mark.requirement("P-10")
@pytest.mark.parametrize(("schema", "arguments", "reason"), JUDGED.values(), ids=JUDGED)
def test_what_is_slow_elsewhere_is_validated_in_time(schema: JSON, arguments: JSON, reason: str) -> None:
    tool = ArgumentSchema("sample", schema)
    begun = time.process_time()
    with pytest.raises(ToolError, match=reason):
        tool.check(arguments)
    assert time.process_time() - begun < 1 + 2 * PATTERN_SECONDS


def test_a_deep_value_of_a_recursive_schema_is_validated() -> None:
    tree = recursive({"properties": {"x": NODE, "y": NODE}, "additionalProperties": False})
    tool = ArgumentSchema("sample", tree)
    tool.check({"a": chain(60)})
    with pytest.raises(ToolError, match="'z' was unexpected"):
        tool.check({"a": {"x": {"y": {"z": {}}}}})


def test_of_many_mistakes_in_many_values_one_is_named() -> None:
    rows: Any = {"a": ["x" * 100] * 1500}
    with pytest.raises(ToolError, match=r"a/\d+: \"x+\" is not of type \"integer\"\. Known") as caught:
        ArgumentSchema("sample", one({"items": {"type": "integer"}})).check(rows)
    assert caught.value.message.count("not of type") == 1


def test_a_mistake_in_a_long_value_ends_with_what_was_expected() -> None:
    with pytest.raises(ToolError, match=r"a: \"x+ … x+\" does not match \"\^y\"\. Known parameters: a\.") as caught:
        ArgumentSchema("sample", one({"pattern": "^y"})).check({"a": "x" * 10_000})
    assert len(caught.value.message) < 600


def test_all_choices_are_named() -> None:
    with pytest.raises(ToolError, match='a: "w" is not one of "x", "y", "z"'):
        ArgumentSchema("sample", one({"enum": ["x", "y", "z"]})).check({"a": "w"})
    either = one({"anyOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]})
    with pytest.raises(ToolError, match=r'a: .*: {} is not of type "string", or "x" is a required property'):
        ArgumentSchema("sample", either).check({"a": {}})


def test_a_deep_value_behind_many_references_is_not_judged() -> None:
    links = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(30)}
    tool = ArgumentSchema("sample", one(NODE) | {"$defs": {"node": {"$ref": "#/$defs/d0"}, **links, "d30": one(NODE)}})
    tool.check({"a": {"a": {}}})
    with pytest.raises(ToolError, match="validating them against its schema takes too long"):
        tool.check(reduce(lambda inner, _: {"a": inner}, range(60), {}))
