"""The library in Rust against the one before it, on many schemas and arguments."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from deputize.shared.errors import Misconfigured, ToolError
from deputize.worker.schemas import validation
from deputize.worker.schemas.arguments import Arguments, ArgumentSchema

from .corpus import CORPUS, INVALID, JSON

CASES = [(name, arguments, True) for name, (_, valid, _) in CORPUS.items() for arguments in valid]
CASES += [(name, arguments, False) for name, (_, _, invalid) in CORPUS.items() for arguments in invalid]
MAPS, LISTS = ("properties", "patternProperties", "dependentSchemas"), ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames")
SINGLE += ("unevaluatedProperties", "unevaluatedItems")
VALUES: list[Any] = [0, 1, -1, 1.0, 2.5, "", "x", "xy", "abc", True, False, None, [], {}, [1], ["x"], {"x": 1}]
PLAIN: list[tuple[str, list[Any]]] = [
    ("type", ["string", "integer", "number", "array", "object", "null", "boolean", ["string", "null"]]),
    ("enum", [[1, "x"], [True], [None, []], [0, False]]),
    ("const", VALUES),
    ("minimum", [0, 1.5]),
    ("exclusiveMaximum", [1, 2]),
    ("multipleOf", [1, 2, 0.5]),
    ("minLength", [0, 1, 2]),
    ("maxLength", [0, 1, 2]),
    ("pattern", ["^x", "y$", "[a-c]+", "(?!x)", "^(?=x)"]),
    ("minItems", [1]),
    ("maxItems", [0, 1]),
    ("uniqueItems", [True]),
    ("minProperties", [1]),
    ("maxProperties", [0, 1]),
    ("required", [["x"], ["y", "z"]]),
    ("dependentRequired", [{"x": ["y"]}]),
]


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
    assert (not validation.mistakes(schema.schema, arguments)) == expected


@pytest.mark.parametrize("name", INVALID)
def test_a_schema_is_invalid(name: str) -> None:
    assert validation.schema_error(INVALID[name])
    with pytest.raises(Misconfigured):
        ArgumentSchema("sample", INVALID[name])


def schema_of(random: Random, levels: int) -> Any:
    if random.random() < 0.05:
        return random.random() < 0.7
    schema: JSON = {}
    for _ in range(random.randint(0, 2)):
        key, values = random.choice(PLAIN)
        schema[key] = random.choice(values)
    if random.random() < 0.1:
        schema["$ref"] = f"#/$defs/{random.choice('ab')}"
    for key in random.sample(MAPS + LISTS + SINGLE, random.randint(0, 2) if levels else 0):
        if key in MAPS:
            schema[key] = {name: schema_of(random, levels - 1) for name in random.sample("xyz", random.randint(1, 2))}
        elif key in LISTS:
            schema[key] = [schema_of(random, levels - 1) for _ in range(random.randint(1, 3))]
        else:
            schema[key] = schema_of(random, levels - 1)
    return schema


def value_of(random: Random, levels: int) -> Any:
    kind = random.random() if levels else 0
    if kind < 0.4:
        return random.choice(VALUES)
    if kind < 0.6:
        return [value_of(random, levels - 1) for _ in range(random.randint(0, 3))]
    return {name: value_of(random, levels - 1) for name in random.sample("xyz", random.randint(0, 3))}


@pytest.mark.parametrize("seed", range(20))
def test_random_schemas_are_judged_alike(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        schema = {"properties": {"x": schema_of(random, 3), "y": schema_of(random, 2)}, "additionalProperties": True}
        schema["$defs"] = {name: {**PLAIN_DEFINITIONS[name]} for name in "ab"}
        new = ArgumentSchema("sample", schema)
        for _ in range(20):
            arguments = {"x": value_of(random, 3), "y": value_of(random, 3)}
            assert is_valid(new, arguments) == (not validation.mistakes(new.schema, arguments)), (schema, arguments)


PLAIN_DEFINITIONS: dict[str, JSON] = {
    "a": {"type": ["integer", "string", "object"], "properties": {"x": {"$ref": "#/$defs/b"}}},
    "b": {"anyOf": [{"type": "number"}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}]},
}
