"""Results: ToolAgentResult and its parts, and the delegation that has one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from operator import add, sub
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, computed_field, model_validator

from .errors import DeputizeError
from .facts import TESTS_PASS, FileChange, GitFacts, MergeFacts, StepChange, TournamentFacts, Trust, Verification
from .instructions import InstructionFile
from .limits import Limits
from .marks import Mark
from .message import Message
from .request import DelegationRequest
from .text import count
from .wire import Timestamp, Wire

Data = TypeVar("Data")

MAX_CALL_ERRORS = 50
"""Maximum errors of calls in a result; one more line has the number of the others."""


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


FinalStatus = Literal[Status.SUCCEEDED, Status.FAILED, Status.CANCELLED]


class TerminationReason(StrEnum):
    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    LOOP_DETECTED = "loop_detected"
    REFUSED = "refused"
    MODEL_UNAVAILABLE = "model_unavailable"
    WORKER_LOST = "worker_lost"
    WRAPPED_UP = "wrapped_up"
    CHECKS_CANNOT_START = "checks_cannot_start"
    ENVIRONMENT_FAILED = "environment_failed"
    ERROR = "error"

    @property
    def is_limit(self) -> bool:
        """A limit or budget ended the run (exit code 5)."""
        return self.value in ("max_turns", "max_tool_calls", "timeout", "budget")


class Usage(Wire):
    """Tokens and money of one call or of a whole run. Both amounts of money are null where the price is not known."""

    input_tokens: int = 0
    """Prompt tokens that were neither read from the cache nor written to it."""
    output_tokens: int = 0
    """Tokens that the model wrote, its thinking included."""
    cache_read_tokens: int = 0
    """Prompt tokens that were read from the cache."""
    cache_write_tokens: int = 0
    """Prompt tokens that were written to the cache."""
    cache_write_1h_tokens: int = 0
    """The part of ``cacheWriteTokens`` that the cache keeps for an hour; it keeps the rest for 5 minutes."""
    cost_usd: float | None = 0.0
    """US dollars; null where the price is not known."""
    cache_saved_usd: float | None = 0.0
    """How much more the same tokens would have cost without caching; negative where caching cost more than it saved."""
    batch_tokens: int = Field(default=0, exclude_if=lambda tokens: not tokens)
    """How many of all tokens were in message batches."""

    @computed_field
    @property
    def cached_share(self) -> float | None:
        """The part of the prompt tokens that was read from the cache, from 0 to 1; null without prompt tokens."""
        prompt = self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
        return round(self.cache_read_tokens / prompt, 4) if prompt else None

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: Usage) -> Usage:
        return self._with(other, add)

    def __sub__(self, other: Usage) -> Usage:
        return self._with(other, sub)

    def _with(self, other: Usage, combine: Callable[[Any, Any], Any]) -> Usage:
        theirs = vars(other)  # faster than an attribute for each name: each call to a model adds usages
        sums = {
            name: None if value is None or (other_value := theirs[name]) is None else combine(value, other_value)
            for name, value in vars(self).items()
        }
        return Usage.model_validate(sums)


class Artifact(Wire):
    name: str
    """The name that the run chose."""
    version: int
    """The latest version, from 1."""
    size: int
    """Bytes of the latest version."""


class ToolAgentResult(Wire):
    """The outcome of a delegation: its work, its cost and the reason of its end."""

    delegation_id: str
    """The delegation whose result it is."""
    status: FinalStatus
    """How the delegation ended."""
    termination_reason: TerminationReason
    """Why the run ended."""
    summary: str = ""
    """The model's last words: what was done and what was found out."""
    details: str = ""
    """A readable log, one line per step."""
    files_modified: list[str] = Field(default_factory=list)
    """Paths of the changed files, relative to the workspace."""
    file_changes: list[FileChange] = Field(default_factory=list)
    """One entry per changed file: a comparison of the files, whatever the model reports."""
    truncated: bool = False
    """Whether ``file_changes`` or the patch are incomplete; ``left_out`` lists what is missing."""
    left_out: list[str] = Field(default_factory=list)
    """What ``fileChanges`` or the patch do not contain, each with the reason."""
    ignored_files: list[str] = Field(default_factory=list)
    """New files that the project's .gitignore names, the first 1,000; not counted as changes, not in the patch."""
    ignored_count: int = 0
    """How many there are."""
    errors: list[str] = Field(default_factory=list)
    """The errors, in the order of their occurrence."""
    tool_call_count: int = 0
    """Tool calls of the run."""
    failed_call_count: int = 0
    """How many of its calls failed, the denied ones included; their errors are the last ones of ``errors``."""
    recovered_call_count: int = 0
    """How many of the failed calls were followed by a success of the same call, or of an edit of the same file."""
    denied_call_count: int = 0
    """How many calls the policy or a person denied, those of child delegations included."""
    only_denied: bool = Field(default=False, exclude_if=lambda only: not only)
    """Whether calls were denied and none but those that hand in the output succeeded; left out where it is not so."""
    turn_count: int = 0
    """Replies of the model."""
    execution_time_ms: int = 0
    """Milliseconds of work; time in the queue does not count."""
    attempts: int = 1
    """How often a worker executed the run: more than once where one was lost or stopped."""
    usage: Usage = Usage()
    """Tokens and cost of the run and its child delegations."""
    output: Any = None
    """The data of ``submit_result``, valid by the request's ``outputSchema``; null where there is none."""
    output_status: Literal["valid", "missing", "invalid"] | None = None
    """Null where no output was asked for. Missing: nothing was handed in; invalid: nothing of it was valid."""
    verification: Verification = Verification()
    """The findings of the requested checks."""
    git: GitFacts | None = None
    """Null where its workspace was not cloned from a git repository."""
    merge: MergeFacts | None = Field(default=None, exclude_if=lambda merge: merge is None)
    """Left out of all results but those of merges."""
    tournament: TournamentFacts | None = Field(default=None, exclude_if=lambda facts: facts is None)
    """Left out of all results but those of requests with `attempts`."""
    instructions: list[InstructionFile] = Field(default_factory=list, exclude_if=lambda files: not files)
    """The files with instructions of the project that the model has read; left out where there are none."""
    trust: Trust = Trust()
    """The sources that the conversation had read by its end."""
    artifacts: list[Artifact] = Field(default_factory=list)
    """Texts that the run produced for its caller."""
    reaped: list[str] = Field(default_factory=list)
    """Commands that still ran when the run ended, and were killed."""
    undelivered: list[Message] = Field(default_factory=list)
    """Messages that came too late for the model to read them."""

    @computed_field
    @property
    def success(self) -> bool:
        """Whether the run completed and, with checks, the verdict on its result is the one that was required."""
        return self.termination_reason is TerminationReason.COMPLETED and self.verification.is_met

    @computed_field
    @property
    def mark(self) -> Mark:
        """The mark before all words: ``ok``, ``unproven``, ``failed`` or ``cancelled``."""
        verdict = self.verification.verdict
        if self.status is Status.CANCELLED and verdict != "refuted":
            return "cancelled"
        if self.termination_reason is not TerminationReason.COMPLETED or verdict == "refuted":
            return "failed"
        claims = self.refuted_claims  # the checks answer for the files, and for tests only where they ran some
        is_contradicted = bool(claims) if verdict == "unverified" else TESTS_PASS in claims
        is_undone = verdict != "verified" and self.only_denied
        return "unproven" if self.verification.shortfall() or is_contradicted or is_undone else "ok"

    @property
    def headline(self) -> str:
        """Returns the word after the mark: the verdict of the checks of a completed run, else how it ended."""
        if self.termination_reason is TerminationReason.COMPLETED and self.verification.verdict != "unverified":
            return self.verification.verdict
        return self.mark if self.mark == "unproven" else self.status

    @property
    def trouble(self) -> list[str]:
        """Returns the errors that still matter: where it succeeded, it went on without the calls that failed."""
        calls = min(self.failed_call_count, MAX_CALL_ERRORS + 1) if self.success else 0
        return self.errors[: len(self.errors) - calls]

    @property
    def refuted_claims(self) -> list[str]:
        """Returns the words of the summary that the run's own steps or file changes refute."""
        return [each.claim for each in self.verification.claims if each.verdict == "refuted"]

    @property
    def notes(self) -> list[str]:
        """Returns `1 claim refuted`, `3 calls denied`, `1 step failed, then recovered` and others, if so."""
        denied, recovered = self.denied_call_count, self.recovered_call_count
        failed = self.failed_call_count - denied - recovered
        verdict, required = self.verification.verdict, self.verification.require
        notes = [str(verdict)] if verdict not in ("unverified", self.headline) else []
        notes += [f"{required} required"] if verdict in ("passed", "improved") and not self.verification.is_met else []
        notes += [f"{tried.passed} of {count(tried.of, 'attempt')} passed"] if (tried := self.tournament) else []
        notes += [f"{count(len(self.refuted_claims), 'claim')} refuted"] if self.refuted_claims else []
        notes += [f"{count(denied, 'call')} denied"] if denied else []
        notes += [f"{count(len(self.undelivered), 'message')} not read"] if self.undelivered else []
        notes += [f"{count(recovered, 'step')} failed, then recovered"] if self.success and recovered else []
        return [*notes, f"{count(failed, 'step')} failed"] if self.success and failed > 0 else notes

    @model_validator(mode="after")
    def _status_agrees(self) -> ToolAgentResult:
        if (self.status is Status.SUCCEEDED) != self.success:
            raise ValueError("status is succeeded exactly when the run completed with the verdict that was required")
        return self

    @property
    def ending(self) -> str:
        """Returns `inconclusive (completed, 1 claim refuted)`: words of ours alone."""
        return f"{self.headline} ({', '.join((self.termination_reason, *self.notes))})"

    def __repr__(self) -> str:
        from .notebook import line  # few programs show it

        return line("ToolAgentResult", self.delegation_id, self.ending, self.summary, self.file_changes)

    def _repr_html_(self) -> str:
        from .notebook import cell

        why = self.verification.why or "".join(self.trouble[-1:] if not self.success else ())
        return cell(self.mark, (self.ending, why, self.delegation_id), self.summary, self.file_changes)

    def output_as(self, kind: type[Data]) -> Data:
        """Returns the output as an instance of this type, whose schema was the request's ``output_schema``.

        Raises ``DelegationFailed`` where there is none, and where the type has demands that no schema states; then it
        is caused by pydantic's ``ValidationError``.
        """
        if self.output_status != "valid":
            raise DelegationFailed(self)
        try:
            return TypeAdapter(kind).validate_python(self.output)
        except ValidationError as error:
            reason = f"its output is valid by the schema, and not for the type: {error.errors()[0]['msg']}"
            raise DelegationFailed(self, reason) from error

    def raise_for_status(self) -> Self:
        """Returns the result itself. Raises ``DelegationFailed`` if it is not a success."""
        if not self.success:
            raise DelegationFailed(self)
        return self


class DelegationFailed(DeputizeError):
    """A delegation failed, was cancelled or hit a limit, or lacks the output. ``result`` is what it did until then."""

    def __init__(self, result: ToolAgentResult, reason: str = "") -> None:
        if not reason:
            reason = result.errors[-1] if result.errors else result.summary or "there is no summary"
            if result.output_status not in (None, "valid"):
                reason = f"its output is {result.output_status}; {reason}"
        super().__init__(f"{result.delegation_id} {result.headline} ({result.termination_reason}): {reason}")
        self.result = result
        self.delegation_id = result.delegation_id
        self._reason = reason

    def __reduce__(self) -> tuple[type[Self], tuple[ToolAgentResult, str]]:
        return type(self), (self.result, self._reason)


class StepStatus(StrEnum):
    PENDING = "pending"
    AWAITING_CONFIRMATION = "awaiting-confirmation"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


StepType = Literal["bash", "bash-confirm", "read", "write", "edit", "glob", "grep", "skill", "delegate", "tool_call"]


class Step(Wire):
    """One tool call's life, the same id from start to end."""

    id: str
    """The id of the model's tool call."""
    type: StepType
    """The kind of the call, for display."""
    title: str
    """The call in a few words."""
    description: str | None = None
    """The purpose of the call, where it is known."""
    status: StepStatus
    """Where the call stands."""
    tool_name: str
    """The name of the tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the call."""
    turn_index: int
    """The turn that contains the call, from 1."""
    timestamp: Timestamp
    """When the call began."""
    thinking: str | None = None
    """The model's thinking in the turn of the call."""
    result: str | None = None
    """The outcome as people read it; null until the call has ended."""
    summary: str | None = None
    """The outcome in a few words, where there are any."""
    error: str | None = None
    """Why the call failed; null where it did not."""
    denied: bool = Field(default=False, exclude_if=lambda denied: not denied)
    """Whether it was not executed because the policy or a person denied it; left out where it was not."""
    tool_agent_result: dict[str, Any] | None = None
    """For a call of `call_subagent`: the result of the child delegation."""
    changes: list[StepChange] = Field(default_factory=list, exclude_if=lambda changes: not changes)
    """The first files that changed since the step before; left out where none did, as are the next two."""
    more_changes: int = Field(default=0, exclude_if=lambda more: not more)
    """How many more changed."""
    diff: str | None = Field(default=None, exclude_if=lambda diff: diff is None)
    """The beginning of the diff of those that are texts."""


class Progress(Wire):
    turn: int = 0
    """The turn under way, from 1; 0 before the first one."""
    tool_calls: int = 0
    """Tool calls so far."""
    last_tool: str | None = None
    """The tool of the latest call."""
    last_step: str | None = None
    """The latest call in a few words, as its step's title has them."""
    elapsed_ms: int = 0
    """Milliseconds of work so far."""
    cost_usd: float | None = None
    """US dollars so far; null where the price is not known."""


def shortfall_of(request: DelegationRequest, result: ToolAgentResult) -> str:
    """Returns why the checks of a request do not allow to act on its result; "" where they do, or there are none."""
    return result.verification.shortfall(request.require if request.verify else None)


class Delegation(Wire):
    """The resource: a request, where it stands, and its result once there is one."""

    id: str
    """``dlg_`` and 26 characters; later ids sort after earlier ones."""
    status: Status
    """Where it stands. The last three are final."""
    created_at: Timestamp
    """When it was accepted."""
    started_at: Timestamp | None = None
    """When a worker first began with it; null until then."""
    finished_at: Timestamp | None = None
    """When it ended; null until then."""
    attempt: int = 0
    """The number of the worker's execution, from 1; 0 before the first one."""
    worker: str | None = None
    """The worker that executes it, or did so last."""
    owner: str | None = None
    """The owner of the token that made it, or of its parent; null for the service's main token."""
    request: DelegationRequest
    """The accepted request: the submitted one, with what its agent sets."""
    effective_limits: Limits
    """The limits of the request, lowered to the server's caps."""
    progress: Progress = Progress()
    """How far the run has come."""
    paused: bool = False
    """Whether it waits to be resumed: a stack that is gone left it, and another one started since."""
    waits_for: list[str] = Field(default_factory=list)
    """The ids of its `after`, until all of them have ended; then it is queued, or has ended, too."""
    pending_permissions: list[str] = Field(default_factory=list)
    """Ids of permission requests that wait for an answer."""
    disk_bytes: int | None = None
    """The size of its workspace and artifacts on its worker's disk, measured at its end; 0 when they were removed."""
    result: ToolAgentResult | None = None
    """Null until it has ended."""

    def __repr__(self) -> str:
        from .notebook import line

        return line("Delegation", self.id, self.result.ending if self.result else self.status, self.request.title)
