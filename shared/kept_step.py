"""A finished step, as it is kept by the parent that delegated."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .delegation import Step, StepStatus
from .facts import StepChange
from .wire import Timestamp, Wire


class ToolAgentStep(Wire):
    """A finished step as the parent's log keeps it: completed becomes success."""

    tool_name: str
    """The name of the tool."""
    arguments: dict[str, Any]
    """The arguments of the call."""
    result: str | None = None
    """The outcome as people read it."""
    status: Literal["success", "failed"]
    """Whether the call succeeded."""
    timestamp: Timestamp
    """When the call began."""
    error: str | None = None
    """Why the call failed; null where it did not."""
    thinking: str | None = None
    """The model's thinking in the turn of the call."""
    summary: str | None = None
    """The outcome in a few words, where there are any."""
    changes: list[StepChange] = Field(default_factory=list, exclude_if=lambda changes: not changes)
    """The first files that changed since the step before; left out where none did, as are the next two."""
    more_changes: int = Field(default=0, exclude_if=lambda more: not more)
    """How many more changed."""
    diff: str | None = Field(default=None, exclude_if=lambda diff: diff is None)
    """The beginning of the diff of those that are texts."""

    @classmethod
    def of(cls, step: Step) -> ToolAgentStep:
        same = step.model_dump(include=set(cls.model_fields) - {"status"})
        return cls(**same, status="success" if step.status is StepStatus.COMPLETED else "failed")
