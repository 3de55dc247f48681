"""What a tool is: a name, a docstring the model reads, a params model, a kind, and ``run``.

A tool does not register itself, ask permission, cut its output or publish events; the loop does that for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import cleandoc
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ValidationError

from shared.delegation import StepType
from shared.errors import ErrorType, ToolError
from shared.settings import Settings
from shared.text import did_you_mean
from shared.wire import explain
from worker.display import Display
from worker.output import OutputLimit
from worker.schemas.arguments import invalid_arguments, plain_schema
from worker.tools.context import InitContext, ToolContext, Touches
from worker.tools.params import Params

ENDINGS = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""What ends a task or a process on purpose. Any other ``BaseException`` is the panic of a library that is not Python:
no ``except Exception`` sees it."""
_MAX_NAME = 100
"""Characters of what the model wrote wrongly that are worth repeating to it."""


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
        """Kinds that change something and so are asked about."""
        return self in (Kind.EDIT, Kind.DELETE, Kind.MOVE, Kind.EXECUTE)

    @property
    def looks(self) -> bool:
        """Kinds that change nothing and stay at home."""
        return self in (Kind.READ, Kind.SEARCH, Kind.THINK)


class Effect(StrEnum):
    """What doing it twice would mean: nothing, the same again, or a second effect."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"


P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """One answer to one call. ``error`` is set exactly when ``success`` is False."""

    content: str = ""
    title: str = ""
    display: Display = ""
    data: Any = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str | None = None
    error_type: ErrorType | None = None

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def for_model(self) -> str:
        """What goes into the history. A failure keeps the output it had, below the error."""
        if self.error is None:
            return self.content or "(no output)"
        return f"Error: {self.error}" + (f"\n{self.content}" if self.content else "")

    @classmethod
    def failed(cls, error: ToolError, content: str = "", **more: Any) -> ToolResult:
        return cls(content=content, error=error.message, error_type=error.type, **more)


class Tool(ABC, Generic[P]):
    """The contract. Subclasses set the class variables; their docstring is the description the model reads."""

    name: str
    kind: Kind
    effect: Effect
    step_type: StepType = "tool_call"
    aliases: tuple[str, ...] = ()
    needs_sandbox: bool = False
    """Whether it can do nothing at all where commands cannot be run safely."""
    output: OutputLimit = OutputLimit()
    source: Literal["builtin", "discovered", "mcp"] = "builtin"
    server: str | None = None
    """The MCP server it comes from; identity never comes from splitting the name."""
    remote: str | None = None
    """What that server calls it."""
    trusted: bool = False
    """Whether the operator's configuration says that it needs nobody's approval."""
    needs_approval: bool = False
    """Whether its calls are asked about even where their effects stay in the workspace."""
    switch: str = ""
    """The field of ``ToolSettings`` that switches it on and off."""
    by_default: bool = False
    """Whether every run gets it where it is offered: what an operator has set up for it is meant to be used."""
    by_name_only: bool = False
    """Whether a request gets it only by naming it, and not by a pattern such as ``*``."""
    polls: ClassVar[bool] = False
    """Whether asking the same again and again is how it is used, and no going in circles."""
    params: type[P]

    def configured(self, settings: Settings) -> AnyTool | None:
        """The tool as a worker with these settings offers it, or None where it cannot be had. Asked once a worker."""
        return self

    async def ready(self, ctx: InitContext) -> AnyTool | None:
        """The tool as one run uses it; None where that run may not have it. One whose description or parameters must
        first be found out, or that works for this run alone, becomes the tool it is here."""
        return self

    @property
    def side_by_side(self) -> bool:
        """Whether calls that follow each other are carried out at the same time."""
        return self.kind in (Kind.READ, Kind.SEARCH)

    @property
    def description(self) -> str:
        return cleandoc(type(self).__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as models read it best: no titles, no references left unresolved."""
        return plain_schema(self.params.model_json_schema())

    def to_schema(self) -> dict[str, Any]:
        """The tool as the Messages API wants it declared."""
        return {"name": self.name, "description": self.description, "input_schema": self.schema}

    def parse(self, arguments: Mapping[str, Any]) -> P:
        """Validated arguments. Raises ``ToolError(INVALID_TOOL_PARAMS)`` that names each mistake and the known keys."""
        try:
            return self.params.model_validate(dict(arguments))
        except ValidationError as error:
            raise invalid_arguments(self.name, explain(error, self.params), self.params.model_fields) from None

    async def accept(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> P:
        """``parse`` for a call of a run. Whose judgement may take long makes it off the event loop here."""
        return self.parse(arguments)

    def title(self, params: P) -> str:
        """One short line for people: what this call does."""
        return self.name

    def touches(self, params: P) -> Touches:
        return Touches()

    async def facts(self, ctx: ToolContext, params: P) -> dict[str, Any]:
        """What must be known before the call, so that ``probe`` can tell afterwards whether it happened; JSON."""
        return {}

    async def probe(self, ctx: ToolContext, params: P, facts: Mapping[str, Any]) -> ToolResult | Literal[False] | None:
        """Of a call that was under way when its attempt ended: its result where it happened, False where it did
        not, None where nobody can know. Only asked of tools that are not pure. What is idempotent is done again."""
        return False if self.effect is Effect.IDEMPOTENT else None

    @abstractmethod
    async def run(self, ctx: ToolContext, params: P) -> ToolResult:
        """Does the work. Raises ToolError for anything the model can correct; cancellation passes through."""


AnyTool = Tool[Any]


def unknown_tool(name: str, known: Mapping[str, AnyTool]) -> ToolError:
    near = did_you_mean(name[:_MAX_NAME], known)
    hint = near.replace("did", "Did", 1) if near else f"Available tools: {', '.join(known)}."
    return ToolError(ErrorType.UNKNOWN_TOOL, f"there is no tool {name[:_MAX_NAME]!r} in this run. {hint}")
