"""``BaseTool``: a class made with name, description and permission that lists its parameters; ``async execute``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from shared.errors import ErrorType, Invalid, Misconfigured, ToolError
from worker.adapters.foreign import (
    AbortSignal,
    Adapted,
    Listed,
    ToolParameter,
    answered,
    as_text,
    called,
    failed,
    json_schema,
    part,
)
from worker.schemas.declared import check, valid_schema
from worker.toolkit.registry import Registry
from worker.tools import base
from worker.tools.base import Effect, Kind
from worker.tools.context import ToolContext


class ToolPermission(StrEnum):
    """Whether a call runs without asking."""

    AUTO = "auto"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """``success``, ``data``, ``error`` and ``metadata``."""

    success: bool
    data: Any = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        """The same as a mapping."""
        return asdict(self)


class BaseTool(ABC):
    """The base class. What else the constructor is given is kept as ``config``."""

    def __init__(
        self, name: str, description: str, permission: ToolPermission = ToolPermission.AUTO, **config: Any
    ) -> None:
        self.name = name
        self.description = description
        self.permission = permission
        self.config = config

    @abstractmethod
    def get_parameters(self) -> list[ToolParameter]: ...

    @abstractmethod
    async def execute(self, **params: Any) -> ToolResult: ...

    def validate_params(self, params: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, or None: missing, unknown and ill-typed ones."""
        try:
            schema = {"additionalProperties": False, **json_schema(self.get_parameters())}
            check(self.name, valid_schema(self.name, schema), params)
        except ToolError as error:
            return error.message
        return None

    async def __call__(self, **params: Any) -> ToolResult:
        """Validates, then executes."""
        if error := self.validate_params(params):
            return ToolResult(False, error=error)
        return await self.execute(**params)


@runtime_checkable
class ListingTool(Protocol):
    """Whatever has these is a tool of this design, whoever's base class it has."""

    name: str
    description: str

    def get_parameters(self) -> Sequence[Listed]: ...
    def validate_params(self, params: Mapping[str, Any]) -> str | None: ...
    async def execute(self, **params: Any) -> Any: ...


class AdaptedBaseTool(Adapted):
    """AUTO is the operator's word that nobody need be asked; CONFIRM asks about every call, wherever it acts."""

    def __init__(self, tool: ListingTool, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool.name, tool.description, tool.get_parameters(), kind, effect)
        self.tool = tool
        permission = str(part(getattr(tool, "permission", None), "value", ""))
        self.trusted = permission == ToolPermission.AUTO
        self.needs_approval = permission == ToolPermission.CONFIRM

    def converted(self, arguments: dict[str, Any]) -> Any:
        """The arguments, checked by the tool's own ``validate_params``, too."""
        checked = super().converted(arguments)
        with answered(self.name):
            if error := self.tool.validate_params(checked):
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, error)
        return checked

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        answer = await called(self.tool.execute, **params)
        data, metadata = part(answer, "data"), dict(part(answer, "metadata") or {})
        if part(answer, "success"):
            return base.ToolResult(as_text(data), data=data, metadata=metadata)
        return failed(part(answer, "error"), as_text(data), data=data, metadata=metadata)


class AgentToolkit:
    """The tools of one agent. Permission is not its business: a run's loop asks."""

    def __init__(self, agent_name: str, tools: Iterable[BaseTool] = ()) -> None:
        self.agent_name = agent_name
        self.tools: dict[str, BaseTool] = {}
        self.add_tools(tools)

    def add_tool(self, tool: BaseTool) -> None:
        self.tools[tool.name] = tool

    def add_tools(self, tools: Iterable[BaseTool]) -> None:
        for tool in tools:
            self.add_tool(tool)

    def get_tool(self, name: str) -> BaseTool | None:
        return self.tools.get(name)

    def list_tools(self) -> list[BaseTool]:
        return list(self.tools.values())

    async def execute_tool(self, name: str, params: Mapping[str, Any]) -> ToolResult:
        """The tool validates and executes; one that is not in the kit is an answer."""
        tool = self.get_tool(name)
        if tool is None:
            return ToolResult(False, error=f"Tool '{name}' not available in {self.agent_name}'s toolkit")
        return await tool(**params)


class ToolRegistry:
    """The library and the toolkits. ``registry`` is what a worker is given: it holds the same tools."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.tool_library: dict[str, BaseTool] = {}
        self.agent_toolkits: dict[str, AgentToolkit] = {}

    def register_tool_to_library(self, tool: BaseTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        self.registry.register(AdaptedBaseTool(tool))
        self.tool_library[tool.name] = tool

    def create_agent_toolkit(self, agent: str, tool_names: Sequence[str] | None = None) -> AgentToolkit:
        """An agent's own subset of the library, kept under its name.

        Raises ``Misconfigured`` for a name that is not in the library, with the closest ones.
        """
        try:
            names = self.registry.kit(tool_names or ())
        except Invalid as unknown:
            raise Misconfigured(f"the toolkit of {agent}: {unknown.detail}") from None
        toolkit = AgentToolkit(agent, (self.tool_library[name] for name in names))
        self.agent_toolkits[agent] = toolkit
        return toolkit

    def get_agent_toolkit(self, agent: str) -> AgentToolkit | None:
        """The agent's toolkit, or None."""
        return self.agent_toolkits.get(agent)


def initialize_tools(
    tools: Iterable[BaseTool],
    agents: Mapping[str, Sequence[str]],
    artifact_tools: Callable[[Any], Iterable[BaseTool]] | None = None,
    artifact_manager: Any = None,
) -> ToolRegistry:
    """What that design does at start-up: all tools into the library, those for artifacts only where somebody keeps
    artifacts, then a toolkit for each agent that requires tools."""
    library = ToolRegistry()
    artifacts = artifact_tools(artifact_manager) if artifact_tools and artifact_manager is not None else ()
    for tool in (*tools, *artifacts):
        library.register_tool_to_library(tool)
    for agent, required in agents.items():
        if required:
            library.create_agent_toolkit(agent, required)
    return library
