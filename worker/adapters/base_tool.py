"""The ``BaseTool`` style: a class with a permission, ``get_parameters()`` and ``async execute(**params)``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from ...shared.errors import ErrorType, Invalid, Misconfigured, ToolError
from ..schemas.arguments import ArgumentSchema
from ..toolkit.registry import Registry
from ..tools import base
from ..tools.base import Effect, Kind
from ..tools.context import ToolContext
from .adapter import (
    AbortSignal,
    ParameterLike,
    ToolAdapter,
    ToolParameter,
    as_text,
    call_function,
    failure_result,
    get_field,
    json_schema,
    report_as_invalid,
)


class ToolPermission(StrEnum):
    """Whether a call runs without approval."""

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
        """Returns the fields as a mapping."""
        return asdict(self)


class BaseTool(ABC):
    """The base class. Further keyword arguments of the constructor are stored as ``config``."""

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
        """Returns the error for missing, unknown or ill-typed arguments, or None."""
        try:
            schema = {"additionalProperties": False, **json_schema(self.get_parameters())}
            ArgumentSchema(self.name, schema, closed=False).check(params)
        except ToolError as error:
            return error.message
        return None

    async def __call__(self, **params: Any) -> ToolResult:
        """Validates the arguments, then executes the tool."""
        if error := self.validate_params(params):
            return ToolResult(False, error=error)
        return await self.execute(**params)


@runtime_checkable
class BaseToolLike(Protocol):
    """An object with these members is a tool of this style, whatever its base class."""

    name: str
    description: str

    def get_parameters(self) -> Sequence[ParameterLike]: ...
    def validate_params(self, params: Mapping[str, Any]) -> str | None: ...
    async def execute(self, **params: Any) -> Any: ...


class BaseToolAdapter(ToolAdapter):
    """Adapts a ``BaseTool``. AUTO: no call needs approval. CONFIRM: every call does, whatever it touches."""

    def __init__(self, tool: BaseToolLike, kind: Kind = Kind.OTHER, effect: Effect | None = None) -> None:
        super().__init__(tool.name, tool.description, tool.get_parameters(), kind, effect)
        self.tool = tool
        permission = str(get_field(getattr(tool, "permission", None), "value", ""))
        self.trusted = permission == ToolPermission.AUTO
        self.needs_approval = permission == ToolPermission.CONFIRM

    def convert(self, arguments: dict[str, Any]) -> Any:
        """Returns the arguments, validated by the tool's own ``validate_params``, too."""
        converted = super().convert(arguments)
        with report_as_invalid(self.name):
            if error := self.tool.validate_params(converted):
                raise ToolError(ErrorType.INVALID_TOOL_PARAMS, error)
        return converted

    async def call(self, ctx: ToolContext, params: Any, signal: AbortSignal) -> base.ToolResult:
        answer = await call_function(self.tool.execute, **params)
        data, metadata = get_field(answer, "data"), dict(get_field(answer, "metadata") or {})
        if get_field(answer, "success"):
            return base.ToolResult(as_text(data), data=data, metadata=metadata)
        return failure_result(get_field(answer, "error"), as_text(data), data=data, metadata=metadata)


class AgentToolkit:
    """The tools of one agent. It does not check permissions; a run's loop does."""

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
        """Calls a tool by name. An unknown name is a failed result, not an exception."""
        tool = self.get_tool(name)
        if tool is None:
            return ToolResult(False, error=f"Tool '{name}' not available in {self.agent_name}'s toolkit")
        return await tool(**params)


class ToolRegistry:
    """A library of tools, and the agents' toolkits. ``registry`` holds the same tools for a worker."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.tool_library: dict[str, BaseTool] = {}
        self.agent_toolkits: dict[str, AgentToolkit] = {}

    def register_tool_to_library(self, tool: BaseTool) -> None:
        """Adds a tool; one of the same name is replaced, with a warning."""
        self.registry.register(BaseToolAdapter(tool))
        self.tool_library[tool.name] = tool

    def create_agent_toolkit(self, agent: str, tool_names: Sequence[str] | None = None) -> AgentToolkit:
        """Creates and stores an agent's subset of the library; by default it is empty.

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
        """Returns the agent's toolkit, or None."""
        return self.agent_toolkits.get(agent)


def initialize_tools(
    tools: Iterable[BaseTool],
    agents: Mapping[str, Sequence[str]],
    artifact_tools: Callable[[Any], Iterable[BaseTool]] | None = None,
    artifact_manager: Any = None,
) -> ToolRegistry:
    """Returns a registry with all tools, and with a toolkit for each agent that requires tools.

    ``artifact_tools`` is used only if there is an ``artifact_manager``.
    """
    library = ToolRegistry()
    artifacts = artifact_tools(artifact_manager) if artifact_tools and artifact_manager is not None else ()
    for tool in (*tools, *artifacts):
        library.register_tool_to_library(tool)
    for agent, required in agents.items():
        if required:
            library.create_agent_toolkit(agent, required)
    return library
