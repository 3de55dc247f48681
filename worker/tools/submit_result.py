"""``submit_result``: hands in the typed output of a run, whose schema is that of the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...shared.output_schema import RESULT, arguments_schema, is_wrapped
from ..schemas.arguments import ArgumentSchema
from ..threads import run_in_thread
from .base import AnyTool, Availability, Kind, Params, Tool, ToolContext, ToolResult
from .context import SUBMIT, Output


class SubmitResult(Tool[Any]):
    """Hands in the result of this work and ends it: call it once, when the work is done or cannot be done.

    The arguments are the result, as the program that has asked for it reads them. Where they are not valid, the error
    names each mistake: correct it, and call again. Calls after it in the same reply are not executed.
    """

    name = SUBMIT
    kind = Kind.THINK
    availability = Availability(by_name_only=True)
    params = Params

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._wrapped = is_wrapped(schema)
        self._arguments = ArgumentSchema(SUBMIT, arguments_schema(schema), closed=False)

    @property
    def schema(self) -> dict[str, Any]:
        return self._arguments.schema

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        self._arguments.check(arguments)
        return arguments[RESULT] if self._wrapped else dict(arguments)

    def title(self, params: Any) -> str:
        return "hand in the result"

    async def run(self, ctx: ToolContext, params: Any) -> ToolResult:
        return ToolResult("The result is valid and was handed in.", data=Output(params))


async def tools_for_output(schema: Mapping[str, Any] | None) -> dict[str, AnyTool]:
    """Returns the tool that hands in an output of this schema, by its name; nothing where no output is asked for."""
    return {} if schema is None else {SUBMIT: await run_in_thread(_submit_result, json.dumps(schema))}


@lru_cache(maxsize=64)
def _submit_result(schema: str) -> SubmitResult:
    """Cached: runs with the same schema have the same tool, so that they also share the beginning of their prompts."""
    return SubmitResult(json.loads(schema))
