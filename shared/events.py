"""The events of a run: a closed union, and the Envelope with their time and order.

Durable events are stored in the delegation's stream and published in one step; transient ones are only published.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from .delegation import Step, TerminationReason, ToolAgentResult, Usage
from .facts import GitFacts, Ground
from .limits import Limits
from .permission import PermissionQuestion
from .request import DelegationRequest
from .tool_traits import ToolTraits
from .wire import Timestamp, Wire


class Event(Wire):
    durable: ClassVar[bool] = True


class Transient(Event):
    durable: ClassVar[bool] = False


# The run


class RunQueued(Event):
    type: Literal["run_queued"] = "run_queued"
    request: DelegationRequest
    """The accepted request: the submitted one, with what its agent sets."""


class RunStarted(Event):
    type: Literal["run_started"] = "run_started"
    worker: str
    """The worker that executes the run."""
    model: str
    """The name of the model."""
    tools: list[str]
    """Names of the tools that the model is offered."""
    limits: Limits
    """The limits that hold."""
    further_tools: list[ToolTraits] = Field(default_factory=list)
    """Those of the tools that are not built in: of MCP servers, and discovered ones."""


class RunResumed(Event):
    type: Literal["run_resumed"] = "run_resumed"
    worker: str
    """The worker that goes on with the run."""
    from_turn: int
    """The turn with which it goes on."""
    reason: str
    """Why the previous attempt ended."""


class RunRetried(Event):
    """The run failed and is done again from the start, as its request asks; its files and step ids are new."""

    type: Literal["run_retried"] = "run_retried"
    reason: TerminationReason
    """Why the previous try ended."""
    error: str
    """The error of the try."""
    retry: int
    """The number of the new try, from 1."""
    of: int
    """How often the run is done again, at most."""
    delay_seconds: float
    """Seconds until it starts."""


class RunFinished(Event):
    """Always the last event."""

    type: Literal["run_finished"] = "run_finished"
    result: ToolAgentResult
    """The result of the delegation."""


# A turn


class TurnStarted(Event):
    type: Literal["turn_started"] = "turn_started"
    turn: int
    """The number of the turn, from 1."""
    tainted_by: list[str] = Field(default_factory=list)
    """What the policy judges this turn's calls by, as ``taintedBy`` of the result's ``trust``."""


class TextDelta(Transient):
    type: Literal["text_delta"] = "text_delta"
    turn: int
    """The turn whose reply it is part of."""
    text: str
    """The next part of the text."""


class ThinkingDelta(Transient):
    type: Literal["thinking_delta"] = "thinking_delta"
    turn: int
    """The turn whose reply it is part of."""
    text: str
    """The next part of the thinking."""


class AskedCall(Wire):
    """A tool call as the model asked for it."""

    id: str
    """The id of the call, and of its step."""
    name: str
    """The name of the tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the call."""


class Replied(Event):
    type: Literal["replied"] = "replied"
    turn: int
    """The turn that the reply belongs to."""
    text: str = ""
    """The whole text of the reply."""
    thinking: str = ""
    """The whole thinking of the reply."""
    stop_reason: str
    """Why the model stopped, as the endpoint reports it: ``end_turn``, ``tool_use``, …"""
    usage: Usage
    """Tokens and cost of this reply."""
    tool_calls: list[AskedCall] = Field(default_factory=list)
    """The tool calls of the reply, in its order."""
    cache_miss: str | None = None
    """Why the prompt cache was not read as far as the previous prompt goes, if known: ``tools_changed``, …"""


class ModelRetried(Event):
    type: Literal["model_retried"] = "model_retried"
    turn: int
    """The turn whose model call failed."""
    error: str
    """Why it failed."""
    delay_seconds: float
    """Seconds until the next try."""


class Waiting(Event):
    """The run does nothing until something outside changes; ``resumed_waiting`` follows."""

    type: Literal["waiting"] = "waiting"
    why: Literal["permission", "subagent", "shared_prefix", "rate", "budget", "batch"]
    """``rate``: the model's endpoint fails or limits calls. ``shared_prefix``: another run writes the prompt cache.
    ``batch``: the reply is in a message batch."""
    detail: str = ""
    """More about it, for people."""


class ResumedWaiting(Event):
    type: Literal["resumed_waiting"] = "resumed_waiting"
    seconds: float
    """Seconds that the run has waited."""


# A message


class MessageReceived(Event):
    """A message to the run has arrived."""

    type: Literal["message_received"] = "message_received"
    message_id: str
    """The id of the message."""
    text: str
    """The text that the model reads."""
    by: str | None = None
    """The name of the sender's token; null where no token is required."""


class WrapUpRequested(Event):
    """The work ends at once, with one last turn for the report."""

    type: Literal["wrap_up_requested"] = "wrap_up_requested"
    message_id: str
    """The id of the message."""
    by: str | None = None
    """The name of the sender's token; null where no token is required."""
    reason: str = ""
    """The text of the message."""


class MessageRead(Event):
    """The receipt of a message: it is in the conversation."""

    type: Literal["message_read"] = "message_read"
    message_id: str
    """The id of the message."""
    turn: int
    """The first turn that has the message."""


# A step


class StepStarted(Event):
    type: Literal["step_started"] = "step_started"
    step: Step
    """The call at its start."""


class StepUpdated(Transient):
    type: Literal["step_updated"] = "step_updated"
    step_id: str
    """The id of the step."""
    title: str | None = None
    """The new title; null where it stays."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The live report of the tool, such as its latest output."""


class PermissionRequested(PermissionQuestion, Event):
    """A call of the run waits for a person, or one of a child: then ``path`` ends with the child."""

    type: Literal["permission_requested"] = "permission_requested"


class PermissionAnswered(Event):
    """The end of a question."""

    type: Literal["permission_answered"] = "permission_answered"
    permission_id: str
    """The id of the permission request."""
    path: list[str] = Field(default_factory=list)
    """The ids of the delegations from the root of the run tree to the one that asked."""
    outcome: str
    """The answer, ``cancel`` also where the time was over."""
    reason: str | None = None
    """Why, as the answer states it."""
    by: str | None = None
    """The name of the token that answered; null where the time was over, or no token is required."""


class StepCompleted(Event):
    type: Literal["step_completed"] = "step_completed"
    step: Step
    """The call at its end, with its outcome."""


# A check


class CheckCompleted(Event):
    """A check of the request ran on one of its grounds."""

    type: Literal["check_completed"] = "check_completed"
    check: int
    """The number of the check in the request, from 0."""
    on: Ground
    """The files on which it ran."""
    ok: bool
    """Whether it succeeded there: on the base that is not needed, and on the canary it must not."""
    exit_code: int | None = None
    """The exit code of a command."""
    output_tail: str = ""
    """The end of what the command printed."""


# Between


class ProgressMade(Event):
    type: Literal["progress"] = "progress"
    message: str
    """The present work of the run, for people."""


class ErrorSeen(Event):
    """Something went wrong that the run survives, or the reason it does not."""

    type: Literal["error"] = "error"
    message: str
    """The error, in words."""
    kind: str
    """The class of trouble, for programs."""


class Delivered(Event):
    """The changes were pushed to the repository that they began with; ``run_finished`` follows."""

    type: Literal["delivered"] = "delivered"
    git: GitFacts
    """The branch, the commit and the pull request."""


class Heartbeat(Transient):
    type: Literal["heartbeat"] = "heartbeat"
    turn: int
    """The turn under way."""
    tool_calls: int
    """Tool calls so far."""
    last_tool: str | None = None
    """The tool of the latest call."""
    elapsed_ms: int
    """Milliseconds of work so far."""
    cost_usd: float | None = None
    """US dollars so far; null where the price is not known."""


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
    | MessageReceived
    | WrapUpRequested
    | MessageRead
    | PermissionRequested
    | PermissionAnswered
    | StepCompleted
    | CheckCompleted
    | ProgressMade
    | ErrorSeen
    | Delivered
    | Heartbeat,
    Field(discriminator="type"),
]

_event: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


class _Head(Wire):
    delegation_id: str
    seq: int | None = None
    at: Timestamp
    attempt: int


class Envelope(_Head):
    """One event of one delegation. ``seq`` counts from 1 without gaps; transient frames have none."""

    event: AnyEvent

    def __hash__(self) -> int:
        return id(self)  # not all values of events have a hash

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
        # A request inside, of a newer version, may have more fields.
        return cls.model_construct(**dict(head), event=_event.validate_json(text, extra="ignore"))

    @classmethod
    def read(cls, text: str | bytes) -> Envelope | None:
        """Parses the flat form; None for an event that only a newer version knows."""
        try:
            return cls.from_json(text)
        except ValidationError:
            return None
