"""A tool whose parameters are a JSON Schema instead of a model: MCP, discovered tools, tools of other designs."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from shared.errors import Misconfigured
from shared.text import clip
from worker.schemas.arguments import CHOICES, Arguments, ArgumentSchema, check
from worker.tools.base import Effect, Kind, Params, Tool, ToolResult
from worker.tools.context import ToolContext

MAX_TOLD = 4000
"""Characters of a schema's choices that the description repeats."""
_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of parameters that model providers take; with one other, they refuse the whole conversation."""


class DeclaredTool(Tool[Any]):
    """A tool made from data: name, description and schema are the instance's own.

    The schema is the truth: arguments are checked against it and passed on as they are; parameters it does not name
    are refused unless it allows them. Raises ``Misconfigured`` for a schema that is none, or that no model takes.
    What a stranger wrote comes as ``ArgumentSchema``: it was judged off the event loop.
    """

    params = Params

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any] | ArgumentSchema,
        *,
        kind: Kind = Kind.OTHER,
        effect: Effect,
    ) -> None:
        self.name = name
        self.kind = kind
        self.effect = effect
        self._declared = schema if isinstance(schema, ArgumentSchema) else ArgumentSchema.trusted(name, schema)
        whole = self._declared.schema
        if wrong := [key for key in whole["properties"] if not _PARAMETER.fullmatch(key)]:
            raise Misconfigured(f"models take no parameter that is called {wrong[0][:100]!r}")
        # Models do not take these in a schema, so they are told in words.
        choices = {key: whole[key] for key in CHOICES if key in whole}
        told = f"\n\nThe arguments must also fit: {clip(json.dumps(choices), MAX_TOLD)}" if choices else ""
        self._description = description + told
        self._shown = {key: value for key, value in whole.items() if key not in CHOICES}

    @property
    def description(self) -> str:
        return self._description

    @property
    def schema(self) -> dict[str, Any]:
        """As models take it; the description has what it leaves out."""
        return self._shown

    async def accept(self, ctx: ToolContext, arguments: Arguments) -> Any:
        if self._declared.is_cheap(arguments):
            return self.parse(arguments)
        with self.explain_errors():
            await self._declared.judge(arguments, ctx.validators)
            return self.convert(dict(arguments))

    def parse(self, arguments: Arguments) -> Any:
        with self.explain_errors():
            check(self.name, self._declared.schema, arguments)
            return self.convert(dict(arguments))

    def convert(self, arguments: dict[str, Any]) -> Any:
        """What ``run`` gets for arguments that fit. Raises ``ToolError`` for what a schema cannot say."""
        return arguments

    @contextmanager
    def explain_errors(self) -> Generator[None]:
        """Around each judgement, for a tool that has words of its own for what is wrong."""
        yield

    @abstractmethod
    async def run(self, ctx: ToolContext, params: Any) -> ToolResult: ...
