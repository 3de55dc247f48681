"""Schemas of tools, each with arguments that are valid and arguments that are not."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
NODE: JSON = {"$ref": "#/$defs/node"}
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
"""As the TypeScript SDK writes it."""


def one(schema: Any) -> JSON:
    """Returns the schema of one parameter, ``a``."""
    return {"properties": {"a": schema}}


def each(*values: Any) -> list[JSON]:
    return [{"a": value} for value in values]


CORPUS: dict[str, tuple[JSON, list[JSON], list[JSON]]] = {
    "anything": ({}, [{}], [{"a": 1}]),
    "more parameters": ({"additionalProperties": True}, [{}, {"a": 1}], []),
    "more texts": ({"additionalProperties": {"type": "string"}}, each("x", ""), each(1, None)),
    "required": ({"properties": {"a": {}, "b": {}}, "required": ["a"]}, each(None, 0, {}), [{}, {"b": 1}]),
    "a number of parameters": (
        {"additionalProperties": True, "minProperties": 1, "maxProperties": 2},
        [{"a": 1}, {"a": 1, "b": 2}],
        [{}, {"a": 1, "b": 2, "c": 3}],
    ),
    "string": (one({"type": "string"}), each("", "x", "é"), each(1, None, True, [], {})),
    "integer": (one({"type": "integer"}), each(0, -1, 1.0, 10**30), each(1.5, "1", True, None)),
    "number": (one({"type": "number"}), each(0, 1.5, -1e300, 10**30), each("1", True, None, [])),
    "boolean": (one({"type": "boolean"}), each(True, False), each(0, 1, "true", None)),
    "null": (one({"type": "null"}), each(None), each(0, "", False, [], {})),
    "several types": (one({"type": ["integer", "null"]}), each(1, None), each("x", 1.5, [])),
    "nullable choice": (one({"anyOf": [{"type": "string"}, {"type": "null"}]}), each("x", None), each(1, [])),
    "const": (one({"const": 1}), each(1, 1.0), each(True, "1", 2)),
    "const object": (one({"const": {"x": [1, {"y": None}]}}), each({"x": [1, {"y": None}]}), each({"x": [1, {}]}, {})),
    "enum": (one({"enum": ["x", 1, None, False]}), each("x", 1, 1.0, None, False), each("y", 0, True, [])),
    "length": (one({"minLength": 1, "maxLength": 3}), each("x", "äöü", "👍👍👍", 5), each("", "xxxx", "👍👍👍👍")),
    "range": (one({"minimum": 1, "maximum": 5}), each(1, 5, 2.5, "9"), each(0, 5.001, -1e300)),
    "open range": (one({"exclusiveMinimum": 1, "exclusiveMaximum": 5}), each(1.01, 4.99), each(1, 5)),
    "multiple": (one({"multipleOf": 3}), each(0, -9, 6.0, "x"), each(1, 7.5)),
    "multiple of a fraction": (one({"multipleOf": 0.5}), each(0, 1.5, 2), each(0.3, 1.25)),
    "pattern": (one({"pattern": "^[a-z]+$"}), each("x", "abc", 5), each("", "X", "x1")),
    "part of a text": (one({"pattern": "b"}), each("b", "abc"), each("", "ac")),
    "classes": (one({"pattern": r"^\w+-\d{2,4}\s?$"}), each("a-12", "a-1234 "), each("a-1", "-12", "a-12x")),
    "look-ahead": (one({"pattern": r"^(?=.*\d)(?=.*[a-z]).{4,}$"}), each("abc1", 5), each("abcd", "a1", "1234")),
    "look-behind": (one({"pattern": "(?<!x)y"}), each("y", "ay"), each("xy", "")),
    "back-reference": (one({"pattern": r"^(a+)b\1$"}), each("aba", "aabaa"), each("abaa", "b")),
    "e-mail": (one({"pattern": EMAIL}), each("a@example.org", "a.b@c.de"), each(".a@b.cd", "a..b@c.de", "a@b")),
    "large repetition": (one({"pattern": "^.{1,4000}$"}), each("x", "x" * 4000), each("", "x" * 4001)),
    "look-ahead in not": (one({"not": {"pattern": "^(?=a)"}}), each("b", ""), each("a", "ab")),
    "items": (one({"items": {"type": "integer"}}), each([], [1, 2], "x"), each(["x"], [1, None])),
    "number of items": (one({"minItems": 1, "maxItems": 2}), each([1], [1, 2], "x"), each([], [1, 2, 3])),
    "tuple": (
        one({"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}),
        each([], ["x"], ["x", 1]),
        each([1], ["x", "y"], ["x", 1, 2]),
    ),
    "unique": (
        one({"uniqueItems": True}),
        each([], [1, "1"], [[1], [2]], [{"a": 1}, {"a": 2}], [1, True], [0, False]),
        each([1, 1], [1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1], [1]], ["x", "x"]),
    ),
    "contains": (one({"contains": {"const": 1}}), each([1], [0, 1]), each([], [0, "1"])),
    "contains some": (
        one({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}),
        each([1, 1]),
        each([1], [1] * 4),
    ),
    "contains none": (one({"contains": {"const": 1}, "minContains": 0}), each([], [2]), []),
    "objects": (
        one({"properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}),
        each({"x": 1}, "x", []),
        each({}, {"x": "y"}, {"x": 1, "y": 2}),
    ),
    "names by pattern": (
        one({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}),
        each({}, {"x-a": "b"}),
        each({"x-a": 1}, {"y": "b"}),
    ),
    "names": (
        one({"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}}),
        each({"abc": 1}),
        each({"A": 1}, {"abcd": 1}),
    ),
    "all of": (one({"allOf": [{"type": "integer"}, {"minimum": 3}]}), each(3, 9), each(2, "x")),
    "any of": (
        one({"anyOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]}),
        each("x", {"x": 1}),
        each(1, {}, []),
    ),
    "one of": (one({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}), each(3, 5, 10), each(1, 15)),
    "not": (one({"not": {"type": "string"}}), each(1, None), each("x")),
    "if": (
        one({"if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}),
        each({"k": "x", "x": 1}, {"k": "z", "y": 1}, {"x": 1}),
        each({"k": "x"}, {"k": "z", "x": 1}),
    ),
    "dependent": (
        one({"dependentRequired": {"x": ["y"]}, "dependentSchemas": {"z": {"maxProperties": 1}}}),
        each({}, {"x": 1, "y": 2}, {"z": 1}),
        each({"x": 1}, {"z": 1, "w": 2}),
    ),
    "unevaluated properties": (
        one(
            {
                "anyOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {}}}],
                "unevaluatedProperties": False,
            }
        ),
        each({}, {"x": 1}, {"y": 1}, {"x": 1, "y": 1}),
        each({"z": 1}, {"x": "q"}),
    ),
    "unevaluated items": (
        one({"prefixItems": [{"type": "string"}], "unevaluatedItems": False}),
        each([], ["x"]),
        each(["x", 1], [1]),
    ),
    "false": (one(False), [{}], each(1, None)),
    "true": (one(True), [{}, {"a": 1}], [{"b": 1}]),
    "definitions": (
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer", "minimum": 1}}},
        each(1, 5),
        each(0, "x"),
    ),
    "older definitions": (
        {"properties": {"a": {"$ref": "#/definitions/x~1y"}}, "definitions": {"x/y": {"type": "integer"}}},
        each(1),
        each("x"),
    ),
    "a reference beside others": (
        {"properties": {"a": {"$ref": "#/$defs/x", "maximum": 5}}, "$defs": {"x": {"type": "integer"}}},
        each(5),
        each(6, "x"),
    ),
    "a reference to a parameter": (
        {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}},
        [{"a": 1, "b": 2}],
        [{"b": "x"}],
    ),
    "an escaped reference": (
        {"properties": {"a": {"$ref": "#/$defs/x%20y"}}, "$defs": {"x y": {"type": "integer"}}},
        each(1),
        each("x"),
    ),
    "a tree": (
        {
            "properties": {"a": NODE},
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": NODE}},
                    "required": ["name"],
                    "additionalProperties": False,
                }
            },
        },
        each({"name": "x"}, {"name": "x", "children": [{"name": "y", "children": [{"name": "z"}]}]}),
        each({}, {"name": "x", "children": [{"name": "y", "children": [{}]}]}, {"name": "x", "children": NODE}),
    ),
    "a condition": (
        {
            "properties": {"a": NODE},
            "$defs": {
                "node": {
                    "anyOf": [
                        {"properties": {"and": {"type": "array", "items": NODE}}, "required": ["and"]},
                        {"properties": {"not": NODE}, "required": ["not"]},
                        {"type": "object", "properties": {"field": {"type": "string"}}, "required": ["field"]},
                    ]
                }
            },
        },
        each({"field": "x"}, {"and": [{"not": {"field": "x"}}, {"field": "y"}]}),
        each({}, {"and": [{"not": {"field": 1}}]}, {"not": {"not": {"not": {}}}}),
    ),
    "a choice of parameters": (
        {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "c": 2}],
        [{}, {"c": 1}],
    ),
    "a format is not checked": (one({"type": "string", "format": "date-time"}), each("no date"), each(1)),
    "what is only noted": (
        one(
            {"title": "A", "description": "x", "default": 1, "examples": [{"$ref": "x"}], "deprecated": True, "x-y": 1}
        ),
        each(1, "x"),
        [],
    ),
    "an older draft": (
        {"$schema": "http://json-schema.org/draft-07/schema#", **one({"type": "string"})},
        each("x"),
        each(1),
    ),
    "an own address": ({"$id": "https://example.org/s.json", **one({"type": "string"})}, each("x"), each(1)),
}

INVALID: dict[str, JSON] = {
    "an unknown type": one({"type": "x"}),
    "parameters as a list": {"properties": [1]},
    "a number as a schema": one(3),
    "required as text": {"required": "a"},
    "required twice": {"required": ["a", "a"]},
    "a text as a limit": one({"minimum": "x"}),
    "a negative length": one({"minLength": -1}),
    "no choices": one({"anyOf": []}),
    "a tuple of an older draft": one({"items": [{"type": "string"}]}),
    "a multiple of nothing": one({"multipleOf": 0}),
    "a reference as a number": one({"$ref": 1}),
}
