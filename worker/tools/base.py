"""The contract of a tool: a name, a docstring that the model reads, a params model, a kind, and ``run``.

A tool does not register itself, ask permission, cut its output or publish events; the loop does that for all tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from ...shared.delegation import StepType
from ...shared.settings import SandboxSettings, Settings
from ...shared.wire import explain
from ..schemas.arguments import invalid_arguments, plain_schema
from ..text.output import OutputLimit
from .context import InitContext, ToolContext, Touches
from .params import Params
from .result import ToolResult
from .traits import Availability, Effect, Kind, Origin

P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """Base class of tools. Subclasses set the class variables; their docstring is the description the model reads."""

    name: str
    kind: Kind
    effect: Effect
    step_type: StepType = "tool_call"
    aliases: tuple[str, ...] = ()
    needs_sandbox: bool = False
    """Whether it is left out where no sandbox works."""
    output: OutputLimit = OutputLimit()
    origin: Origin = Origin()
    availability: Availability = Availability()
    trusted: bool = False
    """Whether the operator's configuration exempts it from approval."""
    needs_approval: bool = False
    """Whether its calls need approval even where their effects stay in the workspace."""
    params: type[P]

    def configured(self, settings: Settings) -> AnyTool | None:
        """Returns the tool for a worker with these settings, or None if it is unavailable. Called once per worker."""
        return self

    def inside(self, sandbox: SandboxSettings) -> AnyTool:
        """Returns the tool for runs with another sandbox than the worker's own. Called once per profile."""
        return self

    async def ready(self, ctx: InitContext) -> AnyTool | None:
        """Returns the tool, or an instance made for this run, or None if this run may not use it."""
        return self

    @property
    def side_by_side(self) -> bool:
        """Whether consecutive calls run concurrently."""
        return self.kind in (Kind.READ, Kind.SEARCH)

    @property
    def description(self) -> str:
        return cleandoc(type(self).__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without titles and with references resolved."""
        return plain_schema(self.params.model_json_schema())

    def to_schema(self) -> dict[str, Any]:
        """Returns the tool definition of the Messages API."""
        return {"name": self.name, "description": self.description, "input_schema": self.schema}

    def parse(self, arguments: Mapping[str, Any]) -> P:
        """Returns validated arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` naming each mistake and known key."""
        try:
            return self.params.model_validate(dict(arguments))
        except ValidationError as error:
            raise invalid_arguments(self.name, explain(error, self.params), self.params.model_fields) from None

    def title(self, params: P) -> str:
        """Returns a one-line description of the call for users."""
        return self.name

    def touches(self, params: P) -> Touches:
        """Returns the paths, command and hosts that the call will use."""
        return Touches()

    async def preview(self, ctx: ToolContext, params: P) -> str:
        """Returns the change that the call would make as a unified diff, where it can be computed before."""
        return ""

    @abstractmethod
    async def run(self, ctx: ToolContext, params: P) -> ToolResult:
        """Runs the call. Raises ``ToolError`` for what the model can correct; cancellation propagates."""


class Recoverable(Tool[P]):
    """A tool that can determine whether a call happened that was running when its attempt ended."""

    async def facts(self, ctx: ToolContext, params: P) -> dict[str, Any]:
        """Returns JSON recorded before the call, for ``probe``."""
        return {}

    @abstractmethod
    async def probe(self, ctx: ToolContext, params: P, facts: Mapping[str, Any]) -> ToolResult | Literal[False] | None:
        """Returns the call's result if it happened, False if it can be run again, None if that is unknown."""


AnyTool = Tool[Any]
