"""The schema of a delegation's typed output: what is accepted, and the arguments of the tool that hands it in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .errors import Invalid
from .json_schema import CHOICES, Bounds, InvalidSchema, compiled

MAX_BYTES = 64 * 1024
"""Of the schema as JSON."""
RESULT = "result"
"""The argument that has the output where the schema is not one of arguments."""
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments that model providers accept; with any other, they reject the whole request."""


def is_wrapped(schema: Mapping[str, Any]) -> bool:
    """Returns whether the output is one argument: models accept only plain objects as the arguments of a tool."""
    if schema.get("type") != "object" or any(key in schema for key in (*CHOICES, "$ref")):
        return True
    return not all(_NAME.fullmatch(name) for name in schema.get("properties", {}))


def arguments_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of the arguments by which an output is handed in. Raises ``InvalidSchema``."""
    inner: dict[str, Any] = json.loads(json.dumps(schema))
    if not is_wrapped(inner):
        return inner
    for part in Bounds(inner).parts:
        if "$ref" in part:
            part["$ref"] = f"#/properties/{RESULT}{part['$ref'][1:]}"
    inner = {key: value for key, value in inner.items() if key not in ("$id", "$schema")}
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], "additionalProperties": False}


def check_output_schema(schema: Mapping[str, Any]) -> None:
    """Raises ``Invalid`` for one that is invalid, too large, refers to the outside or could take too long."""
    try:
        Bounds(schema)
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        if (size := len(text.encode())) > MAX_BYTES:
            raise InvalidSchema(f"they are {size:,} bytes of JSON; the cap is {MAX_BYTES:,}")
        _compile(text)
    except InvalidSchema as error:
        detail, pointer = f"the schema cannot be used: {error}", f"/outputSchema{error.pointer}"
        raise Invalid.of([{"pointer": pointer, "detail": detail}]) from None


@lru_cache(maxsize=16)
def _compile(text: str) -> None:
    """Cached, because the requests of a batch often have the same schema."""
    compiled(text)
    schema = json.loads(text)
    if is_wrapped(schema):
        try:
            compiled(json.dumps(arguments_schema(schema)))
        except InvalidSchema as error:
            raise InvalidSchema(str(error)) from None  # its pointer is one of the arguments
