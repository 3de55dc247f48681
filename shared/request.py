"""The request: a task that a parent delegates, with its limits and its workspace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, TypedDict, Unpack

from pydantic import AfterValidator, Field, TypeAdapter, field_validator
from pydantic_core import to_json

from .checks import Glob, SuspicionKind, VerifyItem, VerifyItems
from .limits import LimitFields, Limits, bounded
from .request_options import ApprovalMode, Effort, OnCap, Require, ToolCallStyle
from .text import shortened
from .webhooks import Webhook
from .wire import Data, Request, Timestamp

MAX_TEXT_BYTES = 1024 * 1024
"""Cap on task + context, UTF-8 bytes."""
MAX_REQUEST_BYTES = 2 * 1024 * 1024
"""Cap on a whole request, bytes of JSON."""
MAX_ENTRIES = 100
"""Cap on each list and table of a request."""
MAX_TOOL_NAME = 200
MAX_NAME = 1000
"""Cap on ids and names that callers choose, in characters."""
MAX_AFTER = 50
"""Cap on the delegations that one waits for."""
MAX_BATCH = 1000
"""Cap on the requests of one batch."""
VERIFY_ROUNDS, VERIFY_SECONDS = 2, 300.0

RetryReason = Literal[
    "error", "model_unavailable", "worker_lost", "loop_detected", "timeout", "max_turns", "max_tool_calls"
]
"""The termination reasons after which a second try may end better."""
MAX_RETRIES = 10


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the task is blank; describe the work in words")
    return text


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name has no line ends and no other control characters")
    return name


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path contains no NUL character")
    return text


ModelName = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_printable)]


class AutomaticRetry(Request):
    """A failed run is done again from the start, with fresh files, under the same id; its cost counts as one.

    Never after a cancellation, a refusal, a spent budget, wrong credentials or a provider's spend limit. Tokens and
    money are limits of all tries together, the other limits hold for each.
    """

    attempts: int = Field(ge=1, le=MAX_RETRIES)
    """How often it is done again, at most."""
    on: list[RetryReason] = Field(default=["error", "model_unavailable", "worker_lost"], min_length=1, max_length=20)
    """The termination reasons after which it is done again."""


class Attempts(Request):
    """A task that is done several times over the same files, each time by a delegation of its own.

    The best result by the verdict of its checks is taken. Tokens, money and the deadline are limits of all attempts
    together, the other limits hold for each.
    """

    count: int = bounded(..., "attempts/count")
    """How many attempts there are, at most."""
    stop: Literal["verified", "all"] = "verified"
    """Whether the first verified attempt ends all others, or every attempt is made."""
    concurrency: int = bounded(1, "attempts/concurrency")
    """How many attempts there are at once."""
    models: list[ModelName] = Field(default_factory=list, max_length=MAX_ENTRIES)
    """The models of the attempts in turn. Empty: that of the request."""
    efforts: list[Effort] = Field(default_factory=list, max_length=MAX_ENTRIES)
    """The efforts of the attempts in turn. Empty: that of the request."""


class EmptyWorkspace(Request):
    kind: Literal["empty"] = "empty"


class DirectoryWorkspace(Request):
    """A private copy of a directory on the worker's machine, without what its .gitignore files name."""

    kind: Literal["directory"]
    path: Annotated[str, AfterValidator(_path)] = Field(min_length=1)
    """An absolute path on the worker's machine."""
    ignored: bool = False
    """Whether files that .gitignore files name are copied, too."""
    exclude: list[Annotated[str, Field(min_length=1, max_length=MAX_NAME)]] = Field(
        default_factory=list, max_length=MAX_ENTRIES
    )
    """Patterns of files that are not copied, in .gitignore's syntax."""


class GitWorkspace(Request):
    """A clone of a git repository: `https` of a host that the service's settings name, or a folder of the worker's."""

    kind: Literal["git"]
    url: str = Field(min_length=1, max_length=MAX_NAME)
    """Without credentials; the service's settings have those of each host."""
    ref: str | None = Field(default=None, min_length=1, max_length=255)
    """A branch, a tag or a whole commit id. Null is the repository's default branch."""
    depth: int = Field(default=1, ge=1, le=2**31 - 1)
    """How many commits of its history are there; nothing that came after it is."""


class ArchiveWorkspace(Request):
    """The files of an archive that was sent by `PUT /v1/uploads`: zip, or tar (plain, gzip, bzip2 or xz)."""

    kind: Literal["archive"]
    upload: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    """As the answer names it: sha256:…"""


WorkspaceSpec = Annotated[
    EmptyWorkspace | DirectoryWorkspace | GitWorkspace | ArchiveWorkspace, Field(discriminator="kind")
]


class PullRequest(Request):
    """A pull request for a delivered branch, by the API of GitHub, GitLab or Gitea."""

    title: str | None = Field(default=None, min_length=1, max_length=256)
    """Null is the first line of the task."""
    body: str = Field(default="", max_length=60_000)
    """Markdown."""
    draft: bool | None = Field(default=None, exclude_if=lambda draft: draft is None)
    """Whether it is opened as a draft. Null: unless the result is `verified`."""


class Deliver(Request):
    """A commit with the run's changes over the commit that was cloned, pushed as a new branch to the same repository.

    Branches that are there already are never changed, and a repeated delivery is the same commit.
    """

    branch: str = Field(default="deputize/{id}", min_length=1, max_length=200)
    """Its name; {id} is that of the delegation, and no other name in braces is allowed."""
    message: str | None = Field(default=None, min_length=1, max_length=10_000)
    """Of the commit; null is the first line of the task."""
    pull_request: PullRequest | None = None
    """A pull request for the branch. Null: none is opened."""
    with_protected: bool = Field(default=False, exclude_if=lambda given: not given)
    """Whether changed protected paths are delivered, too, which the checks have put back."""
    workflows: bool = Field(default=False, exclude_if=lambda given: not given)
    """Whether changes of what a git host executes, such as workflows of CI, are delivered; without it they fail."""
    attestation: Literal["git-notes"] | None = Field(default=None, exclude_if=lambda given: given is None)
    """Whether the commit gets the signed statement of a verified result as a note. Null: it does not."""

    def branch_of(self, id: str) -> str:
        return self.branch.replace("{id}", id)


class After(Request):
    """A delegation that has to end before another one starts."""

    id: str = Field(min_length=1, max_length=MAX_NAME)
    """The delegation that is waited for."""
    require: Literal["verified", "finished"] = "finished"
    """Whether it has to succeed (with checks its own `require` has to be met), or also to be `verified`."""


class RetryFields(TypedDict):
    """The fields of ``AutomaticRetry``."""

    attempts: int
    on: NotRequired[Sequence[RetryReason]]


class AttemptsFields(TypedDict):
    """The fields of ``Attempts``."""

    count: int
    stop: NotRequired[Literal["verified", "all"]]
    concurrency: NotRequired[int]
    models: NotRequired[Sequence[str]]
    efforts: NotRequired[Sequence[Effort]]


class AfterFields(TypedDict):
    """The fields of ``After``."""

    id: str
    require: NotRequired[Literal["verified", "finished"]]


class RequestFields(TypedDict, total=False):
    """The fields of ``DelegationRequest`` beside its task. A path as ``workspace`` stands for a copy of a directory."""

    context: str
    shared_context_length: int
    expected_outcome: str
    session_id: str | None
    message_id: str | None
    limits: Limits | LimitFields
    tools: Sequence[str] | None
    agent: str | None
    system_prompt: str | None
    approval_mode: ApprovalMode | Literal["ask", "sandboxed", "auto", "readOnly"]
    model: str | None
    effort: Effort | None
    economy: bool
    deadline: Timestamp | str | None
    tool_call_style: Literal["native", "xml"]
    workspace: str | Path | WorkspaceSpec | Mapping[str, Any]
    deliver: Deliver | Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | type[Any] | None
    verify: str | Sequence[VerifyItem | Mapping[str, Any] | str]
    protect: Sequence[str] | None
    require: Literal["passed", "verified", "improved"]
    accept: Sequence[str]
    attempts: Attempts | AttemptsFields | None
    max_verify_rounds: int
    verify_timeout_seconds: float
    verify_early: bool
    after: Sequence[After | AfterFields]
    labels: Mapping[str, str]
    priority: int
    webhook: Webhook | Mapping[str, Any] | None
    on_cap: OnCap
    retry: AutomaticRetry | RetryFields | None
    project_instructions: bool
    environment: str | None
    parent_id: str | None
    idempotency_key: str | None
    continues: str | None
    retry_of: str | None
    from_turn: int | None
    merges: Sequence[str]
    merge_with_protected: bool


class DelegationRequest(Request):
    """A piece of work handed over by a parent."""

    task: Annotated[str, AfterValidator(_not_blank)]
    """The task, in words that are complete without the conversation that they come from."""
    context: str = ""
    """Background that the work needs."""
    shared_context_length: int = bounded(0, "sharedContextLength")
    """How many characters at the beginning of `context` other delegations have, too. They are read from the prompt
    cache. 0: all of it may be shared. A batch sets it."""
    expected_outcome: str = ""
    """The state that must be reached at the end."""
    session_id: str | None = Field(default=None, max_length=MAX_NAME)
    """The caller's conversation, for its own use; lists can be filtered by it."""
    message_id: str | None = Field(default=None, max_length=MAX_NAME)
    """The caller's message in that conversation, for its own use."""
    limits: Limits = Limits()
    """Bounds of the run; the server's caps lower them."""
    tools: list[Annotated[str, Field(max_length=MAX_TOOL_NAME)]] | None = Field(default=None, max_length=MAX_ENTRIES)
    """The only tools it may use: names or patterns such as mcp__docs__*. Null is the default selection."""
    agent: str | None = Field(default=None, max_length=MAX_NAME)
    """A named agent of the service's settings; it fills in what this request leaves open."""
    system_prompt: str | None = Field(default=None, min_length=1)
    """Who the worker is and how it works; what it must know of its workspace and tools follows it."""
    approval_mode: ApprovalMode = ApprovalMode.SANDBOXED
    """What happens to calls that need approval: sandboxed allows what stays in the sandbox, auto everything, readOnly
    nothing that changes something, ask asks."""
    model: ModelName | None = None
    """A name that the model's endpoint knows, or that of a table ``models`` of the service's settings. Null is the
    configured one."""
    effort: Effort | None = Field(default=None, exclude_if=lambda effort: effort is None)
    """How much the model thinks and writes. Null: that of its table ``models``, else the model's own default."""
    economy: bool = Field(default=False, exclude_if=lambda given: not given)
    """Whether each reply comes in a message batch, at half the price. It may take up to a day."""
    deadline: Timestamp | None = Field(default=None, exclude_if=lambda given: given is None)
    """When the work has to be done. An economy run calls the model directly if that gets near, and several attempts
    end then. It bounds no other run."""
    tool_call_style: ToolCallStyle = "native"
    """How the model writes tool calls; xml is for models without native ones."""
    workspace: WorkspaceSpec = EmptyWorkspace()
    """The files to work on. It gets a copy of its own; the original is never changed. A string is a directory."""
    deliver: Deliver | None = Field(default=None, exclude_if=lambda deliver: deliver is None)
    """Where its changes go when it has finished: for a git workspace only. Null: nowhere, but they can be later."""
    output_schema: dict[str, Data] | None = None
    """The JSON Schema of `output` in the result, at most 64 KiB; references begin with #/. Formats are not checked."""
    verify: VerifyItems = Field(default_factory=list)
    """Checks that the service makes of the result itself, on files that the run cannot reach."""
    protect: list[Glob] | None = Field(default=None, max_length=MAX_ENTRIES)
    """Patterns of files that the checks see as they were before the run. Null: tests, the settings of their runners and
    of checkers, lock files, and what the commands of the checks name as their programs."""
    require: Require = "passed"
    """The verdict that makes a run with checks a success: passed accepts verified, improved accepts all three. What
    falls short of it is not applied, not delivered, and goes back to the model."""
    accept: list[SuspicionKind] = Field(default_factory=list, max_length=MAX_ENTRIES)
    """Kinds of suspicion (`verification.suspicions`) that do not make the verdict inconclusive."""
    attempts: Attempts | None = Field(default=None, exclude_if=lambda attempts: attempts is None)
    """How often the task is done, so that the best result is taken; only with checks. Null: once."""
    max_verify_rounds: int = bounded(VERIFY_ROUNDS, "maxVerifyRounds")
    """How often a result that falls short of `require` goes back to the model."""
    verify_timeout_seconds: float = bounded(VERIFY_SECONDS, "verifyTimeoutSeconds", allow_inf_nan=False)
    """Seconds for each execution of a check's command that has no `timeoutSeconds` of its own. All checks of a round
    together have ten times as long. The time of the run is paused meanwhile."""
    verify_early: bool = True
    """Whether the run ends before its first turn where a check's command cannot start on the files as they are."""
    after: list[After] = Field(default_factory=list, max_length=MAX_AFTER, exclude_if=lambda after: not after)
    """It starts when these have ended so, and reads their results; if one ends otherwise, it ends without a start."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=MAX_ENTRIES)
    """The caller's own names and values; lists can be filtered by them."""
    priority: int = bounded(5, "priority")
    """Higher is started first."""
    webhook: Webhook | None = Field(default=None, exclude_if=lambda webhook: webhook is None)
    """The webhook that is notified of its end and its permission requests. Null: that of the service's settings."""
    on_cap: OnCap = Field(default="report", exclude_if=lambda given: given == "report")
    """What it does at a cap on money. `wait`: it waits until the cap's window moves on, instead of a last report."""
    retry: AutomaticRetry | None = None
    """Whether it is done again by itself where it fails. Null: it is not."""
    project_instructions: bool = Field(default=True, exclude_if=lambda given: given)
    """Whether the model reads AGENTS.md, as it was before the run. Else it reads CLAUDE.md or GEMINI.md."""
    environment: str | None = Field(default=None, max_length=MAX_NAME, exclude_if=lambda given: given is None)
    """A prepared environment of the settings. Null: one that fits the workspace."""
    parent_id: str | None = Field(default=None, max_length=MAX_NAME)
    """The delegation whose run submits this one; null for every other caller."""
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=255)
    """A repeated request with the same key returns the first delegation instead of a second one."""
    continues: str | None = Field(default=None, max_length=MAX_NAME)
    """The finished delegation whose conversation and files this one goes on with; model and style are the same."""
    retry_of: str | None = Field(default=None, max_length=MAX_NAME)
    """The finished delegation that this one repeats; set by its retry."""
    from_turn: int | None = bounded(None, "fromTurn")
    """The turn of `retryOf` with which this one begins: its conversation and its files until then are kept."""
    merges: list[Annotated[str, Field(max_length=MAX_NAME)]] = Field(
        default_factory=list, max_length=MAX_ENTRIES, exclude_if=lambda ids: not ids
    )
    """The finished delegations over the same files whose changes it merges. That needs no model, and the task is only
    its title."""
    merge_with_protected: bool = Field(default=False, exclude_if=lambda given: not given)
    """Whether it merges the changed protected paths, too, which the checks of these delegations have put back."""

    if TYPE_CHECKING:  # the forms that validation takes, for those who write a request in Python

        def __init__(self, *, task: str, **fields: Unpack[RequestFields]) -> None: ...

    @property
    def title(self) -> str:
        """The task's first line, at most 80 characters, for lists and Flower."""
        return shortened(" ".join(self.task.strip().splitlines()[0].split()), 80)

    @property
    def needs_model(self) -> bool:
        """Whether its own run has a conversation: not that of a merge, and not that of several attempts."""
        return not self.merges and self.attempts is None

    @property
    def builds_on(self) -> str | None:
        """The id of the delegation whose conversation and files this one begins with."""
        return self.retry_of if self.from_turn else self.continues

    @classmethod
    def of_record(cls, text: str) -> Self:
        """Returns a stored request. In those of earlier versions ``deliver`` had a requirement of its own."""
        fields = json.loads(text)
        required = (fields.get("deliver") or {}).pop("require", "finished")  # null was: verified, if there are checks
        is_verified = required != "finished" and fields.get("verify")
        return cls.model_validate(fields | ({"require": "verified"} if is_verified else {}))

    @field_validator("output_schema", mode="before")
    @classmethod
    def _schema_of_type(cls, given: Any) -> Any:
        """In Python it may be a type, as a pydantic model."""
        kind: Any = given
        is_json = given is None or isinstance(given, Mapping | list | str | int | float)
        return given if is_json else TypeAdapter(kind).json_schema()

    @field_validator("workspace", mode="before")
    @classmethod
    def _named_directory(cls, given: Any) -> Any:
        return {"kind": "directory", "path": str(given)} if isinstance(given, str | Path) else given

    def given_json(self) -> str:
        """Returns the fields that were given as JSON: an agent may fill in the others."""
        fields = self.to_dict()
        given = {(kind.alias or name): name for name, kind in type(self).model_fields.items()}
        kept = {
            alias: fields[alias] for alias, name in given.items() if name in self.model_fields_set and alias in fields
        }
        if "limits" in kept:
            kept["limits"] = self.limits.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return to_json(kept).decode()
