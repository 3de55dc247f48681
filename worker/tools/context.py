"""The things that a call touches, its view of the run, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...shared.delegation import ToolAgentResult
from ...shared.errors import ErrorType, ToolError
from ...shared.request import DelegationRequest
from ..contracts import FileAccess, Sandbox
from ..text.output import Display


@dataclass(frozen=True, slots=True)
class Touches:
    """What a call will use; input of the policy and of the approval request.

    ``paths`` are as the model wrote them, neither normalized nor resolved; commands and MCP tools declare none. So a
    rule on paths informs, and only the sandbox enforces.
    """

    paths: tuple[str, ...] = ()
    command: str | None = None
    hosts: tuple[str, ...] = ()


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

    def but(self, error: ToolError) -> ToolResult:
        """Returns a copy of this result that is a failure, because its content is no longer true."""
        message = f"{error.message}\n{self.error}" if self.error else error.message
        return replace(self, error=message, error_type=self.error_type or error.type)


SUBMIT = "submit_result"
"""The name of the tool that hands in the typed output of a run."""


@dataclass(frozen=True, slots=True)
class Output:
    """A valid typed output, as the data of a result; the run ends with it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a child delegation, and the unified diff of its changes."""

    result: ToolAgentResult
    patch: str


class Subagents(Protocol):
    """The child delegations of a run."""

    async def delegate(self, ctx: ToolContext, request: DelegationRequest, *, copy: bool) -> Outcome:
        """Runs the request as a child delegation and returns its outcome.

        ``copy`` starts it with a copy of this run's current files. Raises ``ToolError`` for what the model can correct,
        and ``Fenced``.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The parts of a run that a call may use."""

    delegation_id: str
    call_id: str
    files: FileAccess
    sandbox: Sandbox
    session_id: str | None = None
    message_id: str | None = None
    reads: tuple[str, ...] = ()
    """The programs of a command line that only reads, as far as they do what their names say."""
    subagents: Subagents | None = None
    """None if the run may have none."""
    on_metadata: Callable[[str | None, Mapping[str, Any]], None] = lambda title, fields: None
    shown: Sequence[FileAccess] = ()
    """The directories outside of the workspace that may be read."""

    def reading(self, path: str) -> FileAccess:
        """Returns the files to which a path to be read belongs. Raises ToolError(PATH_NOT_ALLOWED)."""
        try:
            self.files.relative(path)
        except ToolError as error:
            if not path.startswith("/"):
                raise
            for each in self.shown:
                with suppress(ToolError):
                    each.relative(path)
                    return each
            advice = "The operator can show further directories for reading (sandbox.show)."
            raise ToolError(error.type, f"{error.message} {advice}") from None
        return self.files

    def metadata(self, title: str | None = None, **fields: Any) -> None:
        """Publishes progress of the call: a ``step_updated`` frame."""
        self.on_metadata(title, fields)


@dataclass(frozen=True, slots=True)
class InitContext:
    """The parts of a run that a tool may use when it is prepared for it."""

    delegation_id: str
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    """The available skills: name → description."""
    depth_left: int = 0
    """Levels of child delegations allowed below this run."""
