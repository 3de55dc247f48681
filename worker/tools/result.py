"""The result of a tool call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...shared.errors import ErrorType, ToolError
from ..text.output import Display


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
