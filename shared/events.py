"""The events of a run: a closed union, and the Envelope with their time and order.

Durable events are stored in the delegation's stream and published in one step; transient ones are only published.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, TypeAdapter

from .delegation import Step, TerminationReason, ToolAgentResult, Usage
from .facts import GitFacts, Ground
from .fleet import ToolTraits
from .permission import PermissionQuestion
from .request import DelegationRequest, Limits
from .text import CUT_NOTE, clip
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


# A message


class MessageReceived(Event):
    """A message to the run has arrived; ``by`` is the name of the sender's token."""

    type: Literal["message_received"] = "message_received"
    message_id: str
    text: str
    by: str | None = None


class WrapUpRequested(Event):
    """The work ends at once, with one last turn for the report; ``reason`` is the text of the message."""

    type: Literal["wrap_up_requested"] = "wrap_up_requested"
    message_id: str
    by: str | None = None
    reason: str = ""


class MessageRead(Event):
    """The receipt of a message: it is in the conversation, and ``turn`` is the first one that has it."""

    type: Literal["message_read"] = "message_read"
    message_id: str
    turn: int


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


# A check


class CheckCompleted(Event):
    """A check of the request ran on one of its grounds; ``check`` is its number, from 0.

    ``ok`` is whether it succeeded there: on the base that is not needed, and on the canary it must not.
    """

    type: Literal["check_completed"] = "check_completed"
    check: int
    on: Ground
    ok: bool
    exit_code: int | None = None
    output_tail: str = ""


# Between


class ProgressMade(Event):
    type: Literal["progress"] = "progress"
    message: str


class ErrorSeen(Event):
    """Something went wrong that the run survives, or the reason it does not. ``kind`` is a class of trouble."""

    type: Literal["error"] = "error"
    message: str
    kind: str


class Delivered(Event):
    """The changes were pushed to the repository that they began with; ``run_finished`` follows."""

    type: Literal["delivered"] = "delivered"
    git: GitFacts


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
        return cls.model_construct(**dict(head), event=_event.validate_json(text))


SIZES = (0, 1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000, 4000, 8000, 16_000)
"""Lengths to try for texts (characters), lists and objects (entries); the last one that fits is used."""
SHORTEST_TEXT = 64
"""No text is cut below this length, so that times, ids and type names stay intact."""


def capped(text: str) -> str:
    """Returns the JSON of an envelope, cut to at most ``MAX_EVENT_BYTES`` bytes.

    Texts, lists and objects are truncated; required fields stay, so that the result can always be parsed.
    """
    if not _too_long(text):
        return text
    event, whole = Envelope.from_json(text).event, json.loads(text)
    fits = ""
    for size in SIZES:
        try:
            text = json.dumps(_Cut(size).of(event, whole), ensure_ascii=False)
        except _TooLongError:
            break
        if fits and _too_long(text):
            break
        fits = text
    return fits


def _too_long(text: str) -> bool:
    # A character has 4 bytes at the most, so that most events are not encoded a second time.
    return len(text) > MAX_EVENT_BYTES // 4 and len(text.encode()) > MAX_EVENT_BYTES


class _TooLongError(Exception):
    """The truncated value would exceed the cap. Ends the work early: its time must not grow with the event."""


class _Cut:
    """Copies a value with every text and list truncated to ``size``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = MAX_EVENT_BYTES

    def of(self, value: Any, dumped: Any) -> Any:
        """Returns the copy. ``dumped`` is the JSON form of ``value``, which shows what is a field and what is data."""
        if isinstance(value, BaseModel):
            names = {field.alias or name: name for name, field in type(value).model_fields.items()}
            return {
                key: self.of(getattr(value, names[key]), part) if key in names else part for key, part in dumped.items()
            }
        if isinstance(value, list):
            return [self.of(part, shown) for part, shown in islice(zip(value, dumped, strict=True), self._size)]
        return self._free(dumped)

    def _free(self, value: Any) -> Any:
        self._take(1)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            kept = {self._text(key): self._free(part) for key, part in islice(value.items(), self._size)}
            return kept | ({"…": self._note(value)} if len(value) > self._size else {})
        if isinstance(value, list):
            kept = [self._free(part) for part in value[: self._size]]
            return kept + ([self._note(value)] if len(value) > self._size else [])
        return value

    def _text(self, text: str) -> str:
        kept = clip(text, max(self._size, SHORTEST_TEXT))
        self._take(len(kept))
        return kept

    def _note(self, cut: dict[str, Any] | list[Any]) -> str:
        return f"{CUT_NOTE}{len(cut)} entries, {self._size} allowed]"

    def _take(self, characters: int) -> None:
        self._room -= characters
        if self._room < 0:
            raise _TooLongError
