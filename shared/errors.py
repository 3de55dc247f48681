"""The error tree, sorted by who reads it.

    DeputizeError
    ├── Refused                  the caller reads it: the request cannot be accepted as it is
    │   ├── Invalid              a field is wrong (HTTP 422, exit code 2)
    │   ├── TooLarge             over a size cap (HTTP 413, exit code 2)
    │   ├── NotJson              the body does not say that it is JSON (HTTP 415)
    │   ├── TooSlow              the body did not come in time (HTTP 408)
    │   ├── NotFound             no such delegation (HTTP 404, exit code 2)
    │   ├── Conflict             already decided (HTTP 409)
    │   │   └── KeyReused        the same idempotency key with another body (HTTP 422)
    │   ├── Unauthorized         no or wrong token (HTTP 401, exit code 3)
    │   └── Forbidden            sent by a page of another origin (HTTP 403, exit code 2)
    ├── Unavailable              the operator and the caller: Redis or the service is away (HTTP 503, exit code 3)
    │   └── OutOfSpace           the operator: Redis cannot write, because its disk is full (HTTP 507, exit code 3)
    ├── Misconfigured            the operator: a setting is wrong (exit code 3)
    ├── ToolError                the model reads it as the tool's result and can correct itself
    ├── ModelUnavailable         the operator: the model's endpoint does not answer or does not let us in
    │   └── ContextFull          the loop: the conversation is longer than the model's window; it goes on from a summary
    ├── LimitReached             the caller: a limit ended the run; the result says which
    ├── WorkspaceLost            the caller and the operator: an earlier attempt's files are not on this machine
    └── Fenced                   nobody: this worker lost its lease and must stop at once

Others go from one file of the worker to another and become an answer or one of the above there:

    Exception
    ├── Unsuccessful             Celery and Flower: a delegation failed or was cancelled
    ├── Failure                  the retries of the model's client: one try failed
    │   └── BrokenStream         its answer is no stream of JSON events
    ├── ServerUnavailable        the run: an MCP server cannot be used
    ├── TooSlow                  a tool's parameters took too long to check
    ├── Unreadable               a call written as XML cannot be understood
    ├── Unreadable               a file cannot be copied into the workspace
    ├── TooMuch                  there is more to copy than ``workspace_max_bytes``
    └── Stopped                  a copy was cancelled
    ValueError
    └── Misdeclared              a tool's parameters are no JSON Schema
    ConnectError
    └── Forbidden                ``web_fetch`` must not dial that address

Every message says what was wrong and what to do next.
"""

from __future__ import annotations

from enum import StrEnum


class DeputizeError(Exception):
    """The root of every error this project raises on purpose."""


class Refused(DeputizeError):
    """The request is not accepted. ``errors`` holds ``{pointer, detail}`` pairs (RFC 9457)."""

    status = 400
    title = "Request refused"

    def __init__(self, detail: str, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []


class Invalid(Refused):
    status = 422
    title = "Invalid request"


class TooLarge(Refused):
    status = 413
    title = "Request too large"


class NotFound(Refused):
    status = 404
    title = "Not found"


class Conflict(Refused):
    status = 409
    title = "Conflict"


class KeyReused(Conflict):
    status = 422
    title = "Idempotency key reused"


class Unauthorized(Refused):
    status = 401
    title = "Unauthorized"


class Forbidden(Refused):
    """A page of another origin sent the request; who is behind it does not matter."""

    status = 403
    title = "Forbidden"


class Unavailable(DeputizeError):
    """A part of the service is away for now; trying again later is right."""


class OutOfSpace(Unavailable):
    """The disk of this machine's stack is full: nothing goes on until there is room again."""


class Misconfigured(DeputizeError):
    """A setting, file or program on this machine is wrong or missing."""


class ErrorType(StrEnum):
    """What kind of mistake a tool's error is. Values equal the names, because callers read them in JSON."""

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
    """A tool could not do what was asked. The message goes to the model and says what to try next."""

    def __init__(self, type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


class ModelUnavailable(DeputizeError):
    """The model cannot be used: down after all retries, wrong key, unknown model, spend limit."""


class ContextFull(ModelUnavailable):
    """The conversation is longer than the model takes; a shorter one would be answered."""


class WorkspaceLost(DeputizeError):
    """Work was done in files that this worker cannot see; going on without them would be a lie."""


class Fenced(DeputizeError):
    """This worker's fence token is no longer the record's: another attempt owns the run."""
