"""Base class of tools whose parameters are a JSON Schema: MCP and discovered tools, and tools of other styles."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from ...shared.errors import Misconfigured
from ...shared.text import clip
from ..schemas.arguments import CHOICES, Arguments, ArgumentSchema
from ..tools.base import Effect, Kind, Params, Tool, ToolContext, ToolResult

MAX_CHOICES_CHARACTERS = 4000
"""Maximum length of a schema's choices in the description."""
_PARAMETER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Parameter names that model providers accept; with any other, they reject the whole request."""


class SchemaTool(Tool[Any]):
    """A tool with name, description and schema per instance.

    Arguments are validated against the schema and passed on unchanged; unknown parameters are rejected unless the
    schema allows them. Raises Misconfigured for a schema that is invalid or that models do not accept. Foreign schemas
    take time to check: such tools are made in a thread.
    """

    params = Params

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        *,
        kind: Kind = Kind.OTHER,
        effect: Effect | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.effect = effect or kind.usual_effect
        self._argument_schema = ArgumentSchema(name, schema)
        whole = self._argument_schema.schema
        if invalid := [key for key in whole["properties"] if not _PARAMETER_NAME.fullmatch(key)]:
            raise Misconfigured(f"models do not accept the parameter name {invalid[0][:100]!r}")
        # Models do not accept these in a schema, so the description contains them.
        choices = {key: whole[key] for key in CHOICES if key in whole}
        text = clip(json.dumps(choices), MAX_CHOICES_CHARACTERS)
        self._description = f"{description}\n\nThe arguments must also match: {text}" if choices else description
        self._model_schema = {key: value for key, value in whole.items() if key not in CHOICES}

    @property
    def description(self) -> str:
        return self._description

    @property
    def schema(self) -> dict[str, Any]:
        """Returns the schema for models; the description contains what it omits."""
        return self._model_schema

    def parse(self, arguments: Arguments) -> Any:
        self._argument_schema.check(arguments)
        return dict(arguments)

    @abstractmethod
    async def run(self, ctx: ToolContext, params: Any) -> ToolResult: ...
