"""The error tree, by the reader of each message.

    DeputizeError
    ├── Refused                  the caller: the request cannot be accepted as it is (HTTP 400)
    │   ├── Invalid              a field is wrong (HTTP 422, exit code 2)
    │   ├── TooLarge             over a size cap (HTTP 413, exit code 2)
    │   ├── NotJson              the content type of the body is not JSON (HTTP 415)
    │   ├── TooSlow              the body did not arrive in time (HTTP 408)
    │   ├── TooManyHeaders       more headers than a request may have (HTTP 431)
    │   ├── NotFound             no such delegation (HTTP 404, exit code 2)
    │   ├── Conflict             already decided (HTTP 409)
    │   │   └── KeyReused        the same idempotency key with another body (HTTP 422)
    │   ├── InboxFull                too many messages that a delegation has not read (HTTP 429, exit code 2)
    │   ├── SpendCapReached      the day's cap on spending is reached (HTTP 429, exit code 5)
    │   ├── Unauthorized         no or wrong token (HTTP 401, exit code 3)
    │   │   └── ScopeMissing     the token is not meant for this (HTTP 403, exit code 3)
    │   └── Forbidden            sent by a page of another origin (HTTP 403, exit code 2)
    ├── Unavailable              the operator and the caller: Redis or the service is away (HTTP 503, exit code 3)
    │   ├── OutOfSpace           the operator: Redis cannot write, because its disk is full (HTTP 507, exit code 3)
    │   └── Unacknowledged       the operator: too few replicas of Redis have a write (HTTP 503, exit code 3)
    ├── DelegationFailed         the caller, who asked with ``raise_for_status``: the result is not a success
    ├── Misconfigured            the operator: a setting is wrong (exit code 3)
    ├── ToolError                the model: it is the tool's result, so that the model can correct itself
    ├── ModelUnavailable         the operator: the model's endpoint does not answer or refuses access
    │   ├── SpendLimitReached    the operator: the account's limit on spending is reached, until its day ends
    │   └── ContextFull          the loop: the conversation exceeds the model's window; it continues from a summary
    ├── LimitReached             the caller: a limit ended the run; the result names it
    │   └── CapReached           the run itself: it waits until the cap on money has room again
    ├── RepositoryFailed         the caller and the operator: a git repository cannot be used; ``kind`` is the reason
    ├── EnvironmentFailed        the operator and the caller: what the commands of a run need cannot be prepared
    ├── WorkspaceLost            the caller and the operator: an earlier attempt's files are not on this machine
    └── Fenced                   the worker itself: it lost its lease and must stop at once

Others cross files of the worker or the command line and become a result or one of the above there:

    Exception
    ├── StartsNothing            a delivery of another service is verified, and begins no work
    ├── Unsuccessful             Celery and Flower: a delegation failed or was cancelled
    ├── Failure                  the retries of the model's client: one attempt failed
    │   └── BrokenStream         its response is not a stream of JSON events
    ├── RunCancelled             the run: its caller has cancelled the delegation
    ├── ServerUnavailable        the run: an MCP server cannot be used
    ├── NotPlain                 the policy: a command line is not plain, so it needs approval
    ├── CallSyntaxError          a tool call in XML cannot be parsed
    ├── SourceUnreadable         a file cannot be copied into the workspace
    ├── NumberTaken              another attempt has files of the number that this attempt was given
    ├── BadEntry                 an archive has an entry that is not extracted, or is damaged
    ├── SourceTooLarge           there is more to copy than ``sandbox.disk_bytes``
    ├── CopyStopped              a copy was cancelled
    ├── ContentDiffers           a file has another content than the change that is applied
    ├── GitStopped               a command of git was cancelled
    ├── GroundError              the files of a run cannot be laid out for its checks
    ├── GoesAlone                the worker: a run gets a process of its own
    ├── NotDelegated             the worker: there is no control group for the commands of its runs
    └── CannotApply              a file cannot take a run's change without losing other work
    ValueError
    ├── InvalidSchema            a tool's parameters are not a valid JSON Schema
    └── TooManySteps             a tool's arguments would take too long to validate
    ConnectError
    └── ForbiddenTarget          ``web_fetch`` must not connect to that address

Messages state what was wrong and, where their reader can do something about it, what to do next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Self


def placed(mistake: Mapping[str, str]) -> str:
    """Returns `where: what` of a mistake; of one that concerns the whole only what it is."""
    return ": ".join(filter(None, (mistake["pointer"], mistake["detail"])))


class DeputizeError(Exception):
    """The root of all errors but those that stay inside of the worker or the command line: see above."""

    delegation_id: str | None = None
    """The delegation that was waited for, if there is one: it goes on, and can be waited for again."""
    results: Sequence[Any] = ()
    """Where several were waited for: their results until then, in the order of the requests; None for the others."""


class Refused(DeputizeError):
    """The request cannot be accepted as it is: its body is not valid JSON, for one.

    ``errors`` holds ``{pointer, detail}`` pairs (RFC 9457).
    """

    status = 400
    title = "Request refused"

    def __init__(self, detail: str, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []


class Invalid(Refused):
    """A field, a parameter or a header is wrong; `errors` names each."""

    status = 422
    title = "Invalid request"

    @classmethod
    def at(cls, pointer: str, detail: str) -> Self:
        """Returns the error of one field."""
        return cls(detail, [{"pointer": pointer, "detail": detail}])

    @classmethod
    def of(cls, mistakes: list[dict[str, str]]) -> Self:
        """Returns the error of fields, whose detail names each by its pointer."""
        return cls("; ".join(map(placed, mistakes)), mistakes)


class TooLarge(Refused):
    """The request, or a part of it, is over a size cap."""

    status = 413
    title = "Request too large"


class NotFound(Refused):
    """What the path names does not exist, or its record has been removed."""

    status = 404
    title = "Not found"


class Conflict(Refused):
    """The state of the delegation, or of its files, does not permit this."""

    status = 409
    title = "Conflict"


class KeyReused(Conflict):
    """The idempotency key was used before, with another body."""

    status = 422
    title = "Idempotency key reused"


class SpendCapReached(Refused):
    """What may be spent on one day is spent; delegations can be accepted again on the next."""

    status = 429
    title = "Spend cap reached"


class InboxFull(Refused):
    """A delegation has as many unread messages as it may; its model reads all of them before its next turn."""

    status = 429
    title = "Inbox full"


class Unauthorized(Refused):
    """There is no token, or it is not one of the service's, or it has expired."""

    status = 401
    title = "Unauthorized"


class ScopeMissing(Unauthorized):
    """The token is valid, but lacks the scopes that the request needs."""

    status = 403
    title = "Scope missing"

    def __init__(
        self, detail: str, errors: list[dict[str, str]] | None = None, *, scopes: Collection[str] = ()
    ) -> None:
        super().__init__(detail, errors)
        self.scopes = scopes


class Forbidden(Refused):
    """A page of another origin sent the request; credentials do not change that."""

    status = 403
    title = "Forbidden"


class Unavailable(DeputizeError):
    """A part of the service does not answer for now; a later retry may succeed."""

    status = 503
    title = "Service unavailable"


class OutOfSpace(Unavailable):
    """The disk of this machine's stack is full: all work stops until space is freed."""

    status = 507
    title = "Insufficient storage"


class Misconfigured(DeputizeError):
    """A setting, file or program on this machine is wrong or missing."""


def extra_remedy(extra: str) -> str:
    """Returns how what belongs to an extra of this package is installed, for an operator's message."""
    return f"`pip install '.[{extra}]'` in a clone of deputize; images of workers have it with EXTRAS=all"


class ErrorType(StrEnum):
    """The kind of a tool's error. Values equal the names, because callers read them in JSON."""

    FILE_NOT_FOUND = "FILE_NOT_FOUND"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    NOT_A_FILE = "NOT_A_FILE"
    NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
    NOT_TEXT = "NOT_TEXT"
    FILE_TOO_LARGE = "FILE_TOO_LARGE"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    INVALID_TOOL_PARAMS = "INVALID_TOOL_PARAMS"
    EDIT_NOT_FOUND = "EDIT_NOT_FOUND"
    EDIT_AMBIGUOUS = "EDIT_AMBIGUOUS"
    EDIT_NO_CHANGE = "EDIT_NO_CHANGE"
    TIMEOUT = "TIMEOUT"
    LIMIT_REACHED = "LIMIT_REACHED"
    CANCELLED = "CANCELLED"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    EXECUTION_FAILED = "EXECUTION_FAILED"
    DISCOVERED_TOOL_EXECUTION_ERROR = "DISCOVERED_TOOL_EXECUTION_ERROR"


class ToolError(DeputizeError):
    """A tool call failed. The message goes to the model and states what to try next."""

    def __init__(self, type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


class ModelUnavailable(DeputizeError):
    """The model cannot be used: down after all retries, wrong key, unknown model, spend limit.

    ``may_pass``: the same task may succeed at another time, so it is worth an automatic retry.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class ContextFull(ModelUnavailable):
    """The conversation exceeds the model's context window; a shorter one would be answered."""


_OfRepository = Literal["repository_not_found", "repository_forbidden", "repository_authentication", "repository_ref"]
_OfServer = Literal["repository_unreachable", "repository_rejected", "repository_never"]
_OfDelivery = Literal[
    "delivery_patch",
    "delivery_branch",
    "delivery_workflow",
    "delivery_signature",
    "delivery_pull_request",
]
RepositoryKind = _OfRepository | _OfServer | _OfDelivery


class RepositoryFailed(DeputizeError):
    """A git repository cannot be cloned from, or delivered to. The message begins with the kind.

    ``repository_unreachable`` alone may pass by itself; ``repository_rejected`` is the server's own rule, and
    ``repository_never`` fails in the same way each time.
    """

    def __init__(self, kind: RepositoryKind, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: RepositoryKind = kind


class EnvironmentFailed(DeputizeError):
    """The environment of a run cannot be prepared; the message ends with the end of its log."""

    reason = "environment_failed"


class WorkspaceLost(DeputizeError):
    """An earlier attempt changed files that this worker cannot read; continuing without them would be wrong."""

    reason = "worker_lost"


class GoesAlone(Exception):
    """The run of this id blocked its workers' event loops: it goes on in a process of its own."""


class Fenced(DeputizeError):
    """This worker's fence token is no longer the record's: another attempt owns the run."""
