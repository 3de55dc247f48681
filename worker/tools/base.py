"""The contract of a tool: a name, a docstring that the model reads, a params model, a kind, and ``run``.

A tool does not register itself, ask permission, cut its output or publish events; the loop does that for all tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import cleandoc
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from ...shared.delegation import StepType
from ...shared.errors import ErrorType, ToolError
from ...shared.settings import SandboxSettings, Settings
from ...shared.wire import explain
from ..schemas.arguments import invalid_arguments, plain_schema
from ..text.output import Display, OutputLimit
from .context import InitContext, ToolContext, Touches
from .params import Params

Source = Literal["builtin", "discovered", "mcp"]


class Kind(StrEnum):
    """What a tool does to the world."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    OTHER = "other"

    @property
    def mutates(self) -> bool:
        """Whether calls of this kind change something and so need approval."""
        return self in (Kind.EDIT, Kind.DELETE, Kind.MOVE, Kind.EXECUTE)

    @property
    def looks(self) -> bool:
        """Whether calls of this kind change nothing and use no network."""
        return self in (Kind.READ, Kind.SEARCH, Kind.THINK)


class Effect(StrEnum):
    """What a repeated call does: nothing, the same effect again, or a second effect."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tool comes from; never derived from the tool's name.

    ``server``: the name of its MCP server. ``remote``: its name at that server, or at the discovery command.
    """

    source: Source = "builtin"
    server: str | None = None
    remote: str | None = None

    def __str__(self) -> str:
        """The source as the worker announces it: ``builtin``, ``discovered`` or ``mcp:SERVER``."""
        return f"{self.source}:{self.server}" if self.server else self.source


@dataclass(frozen=True, slots=True)
class Availability:
    """Which runs get a tool.

    ``switch``: the field of ``ToolSettings`` that switches it on and off. ``by_default``: every run gets it where it is
    available, because the operator has configured it explicitly. ``by_name_only``: a request gets it only by naming
    it, and not by a pattern such as ``*``.
    """

    switch: str = ""
    by_default: bool = False
    by_name_only: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call. ``error`` is set exactly when ``success`` is False."""

    content: str = ""
    title: str = ""
    display: Display = ""
    data: Any = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    error_type: ErrorType | None = None
    hint: str = ""
    """What the tool itself adds for the model; apart from the content, which may be foreign text."""
    pending: bool = False
    """Whether what it looked at or waited for is still under way, so that an equal call is not a repetition."""

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def for_model(self) -> str:
        """The text for the conversation. A failure keeps its output, below the error."""
        if self.error is None:
            return self.content or "(no output)"
        return f"Error: {self.error}" + (f"\n{self.content}" if self.content else "")

    @classmethod
    def failed(cls, error: ToolError, content: str = "", **more: Any) -> ToolResult:
        return cls(content=content, error=error.message, error_type=error.type, **more)


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
