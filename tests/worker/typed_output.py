"""A schema, data that is valid by it, and the calls of runs that hand it in."""

from __future__ import annotations

from typing import Any

from deputize.shared.delegation import ToolAgentResult
from tests.runs.bench import call

INVOICE = {
    "type": "object",
    "properties": {"total": {"type": "number"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    "required": ["total"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
}
VALID = {"total": 12.5, "lines": [{"sku": "a"}]}
HAND_IN = call("submit_result", **VALID)
LOOK = call("glob", pattern="*")


def facts(result: ToolAgentResult) -> tuple[str, Any, str | None]:
    return result.termination_reason, result.output, result.output_status
