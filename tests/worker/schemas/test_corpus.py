"""Which schemas and arguments are valid, as two libraries judged them alike: jsonschema 4.26 and jsonschema-rs 0.61."""

from __future__ import annotations

import pytest

from deputize.shared.errors import Misconfigured, ToolError
from deputize.worker.schemas.arguments import Arguments, ArgumentSchema

from .corpus import CORPUS, INVALID, JSON

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
