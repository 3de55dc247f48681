"""The contract of a tool. It needs five members: a name, a docstring that the model reads, a kind, params, and ``run``.

Everything else has a default:

- Who gets it: ``availability``; ``configured`` and ``ready``, whether a worker and a run have it; ``aliases``, further
  names by which it is called; ``origin``, where it comes from.
- How calls are run: ``effect`` and ``side_by_side``, which follow from the kind; ``delegates``, for a tool that starts
  child delegations; ``Recoverable``, for what a crash may have interrupted.
- What the policy judges by: ``touches``, ``trusted``, ``needs_approval``. What people see: ``title``, ``preview``,
  ``display``.

A tool does not register itself, ask permission, cut its output or publish events; the loop does that for all tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from ...shared.delegation import StepType
from ...shared.wire import explain
from ..schemas.arguments import invalid_arguments, schema_of
from ..text.output import OutputLimit
from .context import InitContext, ToolContext, ToolResult, Touches
from .params import Params

if TYPE_CHECKING:
    from ...shared.settings import Settings

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

    @property
    def usual_effect(self) -> Effect:
        """The effect of a tool that declares none."""
        return Effect.PURE if self.looks else Effect.EFFECTFUL


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
    it, and not by a pattern such as ``*``. ``needs_sandbox``: it runs commands, so its calls are denied where no
    sandbox works.
    """

    switch: str = ""
    by_default: bool = False
    by_name_only: bool = False
    needs_sandbox: bool = False


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """How calls and output of a tool are shown: the type of a call's step, and how much output the model receives."""

    step_type: StepType = "tool_call"
    output: OutputLimit = field(default_factory=OutputLimit)


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """Base class of tools. Subclasses set name, kind, params and define ``run``; the model reads their docstring."""

    name: str
    kind: Kind
    params: type[P]
    effect: Effect
    """By default that of its kind."""
    aliases: tuple[str, ...] = ()
    origin: Origin = Origin()
    availability: Availability = Availability()
    display: DisplayOptions = DisplayOptions()
    trusted: bool = False
    """Whether the operator's configuration exempts it from approval."""
    needs_approval: bool = False
    """Whether its calls need approval even where their effects stay in the workspace."""
    delegates: bool = False
    """Whether its calls start child delegations: side by side, within the run's budget, and nested only so deep."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls)
        if "needs_sandbox" in own:  # it would run without one
            raise TypeError(f"{cls.__name__}.needs_sandbox has no effect; set it in availability = Availability(…)")
        if "kind" in own and "effect" not in own:
            cls.effect = cls.kind.usual_effect

    @abstractmethod
    async def run(self, ctx: ToolContext, params: P) -> ToolResult:
        """Runs the call. Raises ``ToolError`` for what the model can correct; cancellation propagates."""

    def title(self, params: P) -> str:
        """Returns a one-line description of the call for users."""
        return self.name

    def touches(self, params: P) -> Touches:
        """Returns what the call will use: paths, command, hosts; by default its ``WorkspacePath`` parameters."""
        return Touches(paths=self.params.paths_of(params))

    async def preview(self, ctx: ToolContext, params: P) -> str:
        """Returns the change that the call would make as a unified diff, where it can be computed before."""
        return ""

    def configured(self, settings: Settings) -> AnyTool | None:
        """Returns the tool for a worker with these settings, or None if it is unavailable.

        Called once per worker, and for a tool that needs the sandbox once per profile.
        """
        return self

    async def ready(self, ctx: InitContext) -> AnyTool | None:
        """Returns the tool, or an instance made for this run, or None if this run may not use it."""
        return self

    @property
    def side_by_side(self) -> bool:
        """Whether consecutive calls run concurrently."""
        return self.kind in (Kind.READ, Kind.SEARCH, Kind.FETCH) or self.delegates

    @property
    def description(self) -> str:
        return cleandoc(type(self).__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without titles and with references resolved."""
        return schema_of(self.params)

    def parse(self, arguments: Mapping[str, Any]) -> P:
        """Returns validated arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` naming each mistake and known key."""
        try:
            return self.params.model_validate(dict(arguments))
        except ValidationError as error:
            raise invalid_arguments(self.name, explain(error, self.params), self.params.model_fields) from None


Probed = ToolResult | Literal[False] | None
"""What became of a call: its result if it happened, False if it can be run again, None if that is unknown."""


class Recoverable(Tool[P]):
    """A tool that can determine whether a call happened that was running when its attempt ended."""

    async def facts(self, ctx: ToolContext, params: P) -> dict[str, Any]:
        """Returns JSON recorded before the call, for ``probe``."""
        return {}

    @abstractmethod
    async def probe(self, ctx: ToolContext, params: P, facts: Mapping[str, Any]) -> Probed:
        """Determines whether the call happened."""


AnyTool = Tool[Any]
