"""Error responses: every error is a problem document (RFC 9457), regardless of its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..shared.errors import (
    Invalid,
    OutOfSpace,
    Refused,
    ScopeMissing,
    SpendCapReached,
    Unauthorized,
    Unavailable,
)
from ..shared.runs.spend import seconds_to_midnight
from ..shared.wire import LONGEST_SHOWN, MAX_MISTAKES, Wire

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5


class Mistake(Wire):
    pointer: str
    """RFC 6901: where in the body it is; below ``/query``, ``/header`` and ``/path`` for what is not in the body."""
    detail: str


class Problem(Wire):
    """What went wrong, for programs (``type``) and for people (``detail``, with what to do next)."""

    type: str
    """``urn:deputize:`` and the error's name, or ``about:blank`` where the status is enough."""
    title: str
    status: int
    detail: str
    errors: list[Mistake] = Field(default_factory=list[Mistake])


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem.to_json(), problem.status, headers, MEDIA_TYPE)


def name_of(error: type[Exception]) -> str:
    """Returns an error's ``type`` on the wire: ``urn:deputize:key-reused`` for KeyReused."""
    return "urn:deputize:" + re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower()


async def _handle_refused(_: Request, error: Refused) -> Response:
    return refused_response(error)


def refused_response(error: Refused) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, ScopeMissing):
        scope = " ".join(error.scopes)
        headers = {"WWW-Authenticate": f'Bearer realm="deputize", error="insufficient_scope", scope="{scope}"'}
    elif isinstance(error, Unauthorized):
        headers = {"WWW-Authenticate": 'Bearer realm="deputize"'}
    elif isinstance(error, SpendCapReached):
        headers = {"Retry-After": str(seconds_to_midnight())}
    return answer(
        Problem(
            type=name_of(type(error)),
            title=error.title,
            status=error.status,
            detail=error.detail,
            errors=[Mistake(**mistake) for mistake in error.errors],
        ),
        headers,
    )


async def _handle_unavailable(_: Request, error: Unavailable) -> Response:
    return unavailable_response(error)


def unavailable_response(error: Unavailable) -> Response:
    status = HTTPStatus.INSUFFICIENT_STORAGE if isinstance(error, OutOfSpace) else HTTPStatus.SERVICE_UNAVAILABLE
    return answer(
        Problem(type=name_of(type(error)), title=status.phrase.capitalize(), status=status, detail=str(error)),
        {"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


async def _handle_parameters(request: Request, error: RequestValidationError) -> Response:
    """Handles errors in the query, the path or a header; ``orchestrator.dependencies`` handles bodies."""
    mistakes = [
        {"pointer": "".join(f"/{part}" for part in mistake["loc"])[:LONGEST_SHOWN], "detail": _detail(mistake)}
        for mistake in error.errors()[:MAX_MISTAKES]
    ]
    return await _handle_refused(request, Invalid(summarize(mistakes), mistakes))


def _detail(mistake: Mapping[str, Any]) -> str:
    if mistake["type"] == "extra_forbidden":
        return f"unknown parameter {str(mistake['loc'][-1])[:LONGEST_SHOWN]!r}"
    return str(mistake["msg"]).removeprefix("Value error, ")


def summarize(mistakes: list[dict[str, str]]) -> str:
    """Returns one sentence, for clients that show only the detail."""
    first = ": ".join(part for part in (mistakes[0]["pointer"], mistakes[0]["detail"]) if part)
    return first if len(mistakes) == 1 else f"{len(mistakes)} mistakes, the first is {first}"


async def _handle_http(request: Request, error: HTTPException) -> Response:
    """Handles the router's own errors: an unknown path, a method that is not allowed."""
    status = HTTPStatus(error.status_code)
    headers = {"Allow": ", ".join(_allowed(request))} if status is HTTPStatus.METHOD_NOT_ALLOWED else error.headers
    return answer(Problem(type="about:blank", title=status.phrase, status=status, detail=_next_step(status)), headers)


def _allowed(request: Request) -> list[str]:
    """Returns all methods of the path. The router reports only those of its first route."""

    def known(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if known(method)]


def _next_step(status: HTTPStatus) -> str:
    if status is HTTPStatus.NOT_FOUND:
        return "there is nothing at this path; /openapi.json lists what there is"
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        return "this path does not support the method; the Allow header lists those it supports"
    return status.description


def internal_error_response(request_id: str) -> Response:
    """Returns the response to an internal error. Its cause is only in the log."""
    return answer(
        Problem(
            type="about:blank",
            title="Internal Server Error",
            status=500,
            detail=f"an internal error occurred; the service's log has the details under request id {request_id}",
        )
    )


def install(app: FastAPI) -> None:
    handlers: dict[type[Exception], Any] = {
        Refused: _handle_refused,
        Unavailable: _handle_unavailable,
        RequestValidationError: _handle_parameters,
        HTTPException: _handle_http,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


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
    429: "The day's cap on spending is reached; Retry-After is the time until the next day",
    503: "Redis is away, or no worker is alive; try again after Retry-After seconds",
    "default": "Any other problem",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns a route's ``responses``: its own problems besides those of every route."""
    return {code: problem_response(code) for code in (*sorted({401, 403, 503, *statuses}), "default")}


def problem_response(code: int | str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {"description": DESCRIPTIONS[code], "content": {MEDIA_TYPE: {"schema": schema}}}
