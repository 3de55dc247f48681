"""Tools from outside of this program: their base class, and the protocol of sources that open them for one run."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

from ...shared.errors import Misconfigured
from ...shared.json_schema import CHOICES
from ...shared.text import clip
from ..sandbox.bubblewrap import Sandbox
from ..schemas.arguments import Arguments, ArgumentSchema
from ..tools.base import AnyTool, Effect, Kind, Params, Tool, ToolContext, ToolResult
from ..workspace.files import Files

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


@dataclass(frozen=True, slots=True)
class ToolSourceContext:
    """The run for which a source opens tools."""

    delegation_id: str
    patterns: Sequence[str] | None
    """The tool names and patterns of the request; None for the default kit."""
    files: Files
    sandbox: Sandbox
    warn: Callable[[str], None]
    """Publishes a warning; the run continues."""
    hide: Callable[[Sequence[str]], None] = lambda values: None
    """Masks these secrets in everything that the run publishes or stores."""
    read_only: bool = False
    """Whether processes of the tools must not change the run's files."""
    missing: list[str] = field(default_factory=list[str])
    """Name prefixes of tools that are unavailable now."""

    def add_missing(self, prefix: str) -> None:
        """Records that tools with this name prefix are unavailable, so that a request for them is not an error."""
        self.missing.append(prefix)

    def wants(self, prefix: str) -> bool:
        """Returns whether the request may select tools with this name prefix; others need not be opened."""
        if self.patterns is None:
            return True
        return any(_may_match(pattern, prefix) for pattern in self.patterns)

    def may_be_missing(self, pattern: str) -> bool:
        """Returns whether a pattern may match tools that are unavailable now."""
        return any(_may_match(pattern, prefix) for prefix in self.missing)


class Source(Protocol):
    """A provider of tools for the time of a run."""

    def open(self, context: ToolSourceContext) -> AbstractAsyncContextManager[Sequence[AnyTool]]:
        """Opens the tools until the block ends. Unavailable ones are a warning, never an exception."""
        ...


def _may_match(pattern: str, prefix: str) -> bool:
    """Returns whether the pattern can match a name that begins with ``prefix``."""
    literal, *wild = re.split(r"[*?[]", pattern, maxsplit=1)
    return pattern.startswith(prefix) or fnmatchcase(prefix, pattern) or bool(wild and prefix.startswith(literal))
