"""The events of a run: a closed union, and the Envelope with their time and order.

Durable events are stored in the delegation's stream and published in one step; transient ones are only published.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter

from .delegation import Step, TerminationReason, ToolAgentResult, Usage
from .fleet import ToolTraits
from .permission import PermissionQuestion
from .request import DelegationRequest, Limits
from .wire import Timestamp, Wire

MAX_EVENT_BYTES = 64 * 1024
"""Cap on one event's JSON."""


class Event(Wire):
    durable: ClassVar[bool] = True


class Transient(Event):
    durable: ClassVar[bool] = False


# The run


class RunQueued(Event):
    type: Literal["run_queued"] = "run_queued"
    request: DelegationRequest


class RunStarted(Event):
    type: Literal["run_started"] = "run_started"
    worker: str
    model: str
    tools: list[str]
    limits: Limits
    further_tools: list[ToolTraits] = Field(default_factory=list)
    """Those of the tools that are not built in: of MCP servers, and discovered ones."""


class RunResumed(Event):
    type: Literal["run_resumed"] = "run_resumed"
    worker: str
    from_turn: int
    reason: str


class RunRetried(Event):
    """The run failed and is done again from the start, as its request asks; its files are made anew.

    ``retry`` is the number of the new try, of at most ``of``; ids of steps are not used again.
    """

    type: Literal["run_retried"] = "run_retried"
    reason: TerminationReason
    error: str
    retry: int
    of: int
    delay_seconds: float


class RunFinished(Event):
    """Always the last event."""

    type: Literal["run_finished"] = "run_finished"
    result: ToolAgentResult


# A turn


class TurnStarted(Event):
    type: Literal["turn_started"] = "turn_started"
    turn: int
    tainted_by: list[str] = Field(default_factory=list)
    """What the policy judges this turn's calls by, as ``taintedBy`` of the result's ``trust``."""


class TextDelta(Transient):
    type: Literal["text_delta"] = "text_delta"
    turn: int
    text: str


class ThinkingDelta(Transient):
    type: Literal["thinking_delta"] = "thinking_delta"
    turn: int
    text: str


class AskedCall(Wire):
    """A tool call as the model asked for it."""

    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Replied(Event):
    type: Literal["replied"] = "replied"
    turn: int
    text: str = ""
    thinking: str = ""
    stop_reason: str
    usage: Usage
    tool_calls: list[AskedCall] = Field(default_factory=list)
    cache_miss: str | None = None
    """Why the prompt cache was not read as far as the previous prompt goes, if known: ``tools_changed``, …"""


class ModelRetried(Event):
    type: Literal["model_retried"] = "model_retried"
    turn: int
    error: str
    delay_seconds: float


class Waiting(Event):
    """The run does nothing until something outside changes; ``resumed_waiting`` follows."""

    type: Literal["waiting"] = "waiting"
    why: Literal["permission", "subagent", "shared_prefix", "rate", "budget"]
    detail: str = ""


class ResumedWaiting(Event):
    type: Literal["resumed_waiting"] = "resumed_waiting"
    seconds: float


# A step


class StepStarted(Event):
    type: Literal["step_started"] = "step_started"
    step: Step


class StepUpdated(Transient):
    type: Literal["step_updated"] = "step_updated"
    step_id: str
    title: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class PermissionRequested(PermissionQuestion, Event):
    """A call of the run waits for a person, or one of a child: then ``path`` ends with the child."""

    type: Literal["permission_requested"] = "permission_requested"


class PermissionAnswered(Event):
    """The end of a question; ``path`` is that of the request."""

    type: Literal["permission_answered"] = "permission_answered"
    permission_id: str
    path: list[str] = Field(default_factory=list)
    outcome: str
    reason: str | None = None
    by: str | None = None


class StepCompleted(Event):
    type: Literal["step_completed"] = "step_completed"
    step: Step


class StepSummarized(Event):
    type: Literal["step_summarized"] = "step_summarized"
    step_id: str
    summary: str


# Between


class ProgressMade(Event):
    type: Literal["progress"] = "progress"
    message: str


class ErrorSeen(Event):
    """Something went wrong that the run survives, or the reason it does not. ``kind`` is a class of trouble."""

    type: Literal["error"] = "error"
    message: str
    kind: str


class Heartbeat(Transient):
    type: Literal["heartbeat"] = "heartbeat"
    turn: int
    tool_calls: int
    last_tool: str | None = None
    elapsed_ms: int
    cost_usd: float | None = None


AnyEvent = Annotated[
    RunQueued
    | RunStarted
    | RunResumed
    | RunRetried
    | RunFinished
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | Replied
    | ModelRetried
    | Waiting
    | ResumedWaiting
    | StepStarted
    | StepUpdated
    | PermissionRequested
    | PermissionAnswered
    | StepCompleted
    | StepSummarized
    | ProgressMade
    | ErrorSeen
    | Heartbeat,
    Field(discriminator="type"),
]

_event: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


class Envelope(Wire):
    """One event of one delegation. ``seq`` counts from 1 without gaps; transient frames have none."""

    delegation_id: str
    seq: int | None = None
    at: Timestamp
    attempt: int
    event: AnyEvent

    def to_json(self) -> str:
        """Returns the flat wire form: the envelope's keys, then the event's own."""
        head = self.model_dump_json(by_alias=True, exclude={"event"}, exclude_none=True)
        return f"{head[:-1]},{self.event.model_dump_json(by_alias=True)[1:]}"

    def to_dict(self) -> dict[str, Any]:
        head = self.model_dump(by_alias=True, mode="json", exclude={"event"}, exclude_none=True)
        return head | self.event.to_dict()

    @classmethod
    def from_json(cls, text: str | bytes) -> Envelope:
        """Parses the flat form. Raises ``pydantic.ValidationError`` if it is not an event of this version."""
        head = _Head.model_validate_json(text)
        return cls.model_construct(**dict(head), event=_event.validate_json(text))


class _Head(Wire):
    delegation_id: str
    seq: int | None = None
    at: Timestamp
    attempt: int
