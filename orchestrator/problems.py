"""Error responses: every error is a problem document (RFC 9457), regardless of its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from inspect import getdoc
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..shared.errors import (
    InboxFull,
    Invalid,
    Refused,
    ScopeMissing,
    SpendCapReached,
    Unauthorized,
    Unavailable,
)
from ..shared.runs.spend_report import seconds_to_midnight
from ..shared.wire import LONGEST_SHOWN, MAX_MISTAKES, Wire

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5


class Mistake(Wire):
    pointer: str
    """RFC 6901: where in the body it is; below ``/query``, ``/header`` and ``/path`` for what is not in the body."""
    detail: str
    """The mistake there."""


class Problem(Wire):
    """An error, for programs (``type``) and for people (``detail``, with the next step)."""

    type: str
    """``urn:deputize:`` and the error's name, or ``about:blank`` where the status is enough."""
    title: str
    """The kind of problem in a few words, always the same for a ``type``."""
    status: int
    """The HTTP status of the response."""
    detail: str
    """The mistake in this request, and the next step."""
    errors: list[Mistake] = Field(default_factory=list[Mistake])
    """The mistakes in the request, at most 20; empty where it is not about single fields."""


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem.to_json(), problem.status, headers, MEDIA_TYPE)


def response_to(error: Refused | Unavailable) -> Response:
    headers: dict[str, str] = {}
    match error:
        case ScopeMissing(scopes=scopes):
            needed = f'error="insufficient_scope", scope="{" ".join(scopes)}"'
            headers["WWW-Authenticate"] = f'Bearer realm="deputize", {needed}'
        case Unauthorized():
            headers["WWW-Authenticate"] = 'Bearer realm="deputize"'
        case SpendCapReached():
            headers["Retry-After"] = str(seconds_to_midnight())
        case InboxFull() | Unavailable():
            headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        case _:
            pass
    mistakes = [Mistake(**mistake) for mistake in error.errors] if isinstance(error, Refused) else []
    kind = type_of(type(error))
    return answer(
        Problem(type=kind, title=error.title, status=error.status, detail=str(error), errors=mistakes), headers
    )


def type_of(error: type[Refused | Unavailable]) -> str:
    """Returns the problem type: ``urn:deputize:key-reused`` for ``KeyReused``."""
    return "urn:deputize:" + re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower()


def list_of_types() -> str:
    """Returns the problem types with status and meaning, as a list in Markdown."""
    kinds: list[type[Refused | Unavailable]] = [Refused, Unavailable]
    for kind in kinds:
        kinds += kind.__subclasses__()  # grows while it is iterated over
    lines = (f"- `{type_of(kind)}` ({kind.status}): {str(getdoc(kind)).splitlines()[0]}" for kind in kinds)
    return "\n".join(sorted(lines))


async def _handle(_: Request, error: Any) -> Response:
    return response_to(error)


async def _handle_parameters(_: Request, error: RequestValidationError) -> Response:
    """Handles errors in the query, the path or a header; ``orchestrator.dependencies`` handles bodies."""
    mistakes: list[dict[str, str]] = []
    for mistake in error.errors()[:MAX_MISTAKES]:
        detail = str(mistake["msg"]).removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            detail = f"unknown parameter {str(mistake['loc'][-1])[:LONGEST_SHOWN]!r}"
        mistakes.append({"pointer": "".join(f"/{part}" for part in mistake["loc"])[:LONGEST_SHOWN], "detail": detail})
    return response_to(Invalid(summarize(mistakes), mistakes))


def summarize(mistakes: list[dict[str, str]]) -> str:
    """Returns one sentence, for clients that show only the detail."""
    first = ": ".join(part for part in (mistakes[0]["pointer"], mistakes[0]["detail"]) if part)
    return first if len(mistakes) == 1 else f"{len(mistakes)} mistakes, the first is {first}"


async def _handle_http(request: Request, error: HTTPException) -> Response:
    """Handles the router's own errors: an unknown path, a method that is not allowed."""
    status, headers = HTTPStatus(error.status_code), error.headers
    detail = status.description
    if status is HTTPStatus.NOT_FOUND:
        detail = "there is nothing at this path; /openapi.json lists all paths"
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        detail = "this path does not support the method; the Allow header lists those it supports"
        # The router reports only the methods of its first route.
        methods = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if _is_allowed(request, method)]
        headers = {"Allow": ", ".join(methods)}
    return answer(Problem(type="about:blank", title=status.phrase, status=status, detail=detail), headers)


def _is_allowed(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def internal_error_response(request_id: str) -> Response:
    """Returns the response to an internal error. Its cause is only in the log."""
    detail = f"an internal error occurred; the service's log has the details under request id {request_id}"
    return answer(Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail))


HANDLERS: dict[int | type[Exception], Any] = {
    Refused: _handle,
    Unavailable: _handle,
    RequestValidationError: _handle_parameters,
    HTTPException: _handle_http,
}


DESCRIPTIONS: dict[int | str, str] = {
    400: "The body is not JSON",
    401: "No token, one that is not the service's, or one that has expired",
    403: "The token lacks the scope of this operation, or a page of another origin sent the request",
    404: "No such delegation",
    408: "The body did not come in time",
    409: "It is finished, or its files are out of the reach of this service",
    413: "Over a size cap; the detail names it",
    415: "The body is not sent as JSON",
    422: "A field is wrong, or the idempotency key stands for another body",
    429: "The day's cap on spending is reached, or too many messages are unread; Retry-After has the seconds to wait",
    503: "Redis is away, or no worker is alive; try again after Retry-After seconds",
    "default": "Any other problem",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns a route's ``responses``: its own problems besides those of every route."""
    return {code: problem_response(code) for code in (*sorted({401, 403, 503, *statuses}), "default")}


def problem_response(code: int | str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {"description": DESCRIPTIONS[code], "content": {MEDIA_TYPE: {"schema": schema}}}
