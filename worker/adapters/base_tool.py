"""``BaseTool``: a class made with name, description and permission that lists its parameters; ``async execute``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from shared.errors import ErrorType, ToolError
from worker.adapters.foreign import AbortSignal, Adapted, answered, as_text, called, failed, part
from worker.adapters.parameters import Listed, ToolParameter, json_schema
from worker.schemas.declared import check, valid_schema
from worker.tools import base
from worker.tools.base import Effect, Kind, ToolContext


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
