"""The table of the service's operations: one row each, for all who call them.

The request that ``Client`` sends, the route with its scope and its entry in the OpenAPI document, the methods of
``Orchestrator`` and the scopes of MCP's tools follow from a row and from the signature of its name in ``service``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote

from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from ..shared.request import DelegationRequest
from ..shared.wire import Request
from .scopes import MCP_PATH, Scope

K = TypeVar("K", bound=type[Any])

BODY = (400, 408, 413, 415, 422)
"""What may be wrong with a request that has a body."""
OF_SENDER = "by"
"""The parameter with the name of the sender's token, which is not part of a body: the service knows it."""
_ONCE = (*BODY, 404, 409)
_OUT_OF_REACH = (404, 409, 422)
_LONG = 300.0
_READ, _SUBMIT, _APPROVE, _ADMIN = Scope.READ, Scope.SUBMIT, Scope.APPROVE, Scope.ADMIN
_NEW = (*BODY, 404, 409, 429)
"""What may be wrong with a request for a delegation that begins with others."""
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


@dataclass(frozen=True, slots=True)
class Operation:
    """A row. Parameters and answer are those of the signature."""

    name: str
    """That of the service's function."""
    route: str
    """Method and path; the path's parameters are those of the signature."""
    scope: Scope
    id: str
    """Its name in the OpenAPI document."""
    status: int = 200
    """That of the answer of a success."""
    refused: tuple[int, ...] = ()
    """The statuses of its refusals, besides those of every operation."""
    tag: str = "delegations"
    """Its group in the OpenAPI document."""
    whole: str | None = None
    """The parameter that is the whole body; without one all that are not in the path are its fields."""
    seconds: float = 60.0
    """How long a client waits for an answer."""

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]

    def request(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any], str | None]:
        """Returns the path, the query and the body of a request with these arguments."""
        rest = dict(given)

        def value(found: re.Match[str]) -> str:
            return quote(rest.pop(found[1] if found[1] in rest else "id"), safe="")

        path = _PARAMETER.sub(value, self.path)
        if self.whole is not None:
            return path, {}, _whole(rest[self.whole])
        plain: dict[str, Any] = to_jsonable_python({name: each for name, each in rest.items() if each is not None})
        if self.method == "GET":
            return path, plain, None
        fields = {to_camel(name): each for name, each in plain.items() if name != OF_SENDER}
        return path, {}, json.dumps(fields) if rest else None


def _whole(value: Request | None) -> str:
    if value is None:
        return "{}"
    if isinstance(value, DelegationRequest):
        return value.given_json()
    return value.model_dump_json(by_alias=True, exclude_unset=True)


OPERATIONS = (
    Operation("create", "POST /v1/delegations", _SUBMIT, "create_delegation", 202, (*BODY, 429), whole="request"),
    Operation("create_many", "POST /v1/delegations:batch", _SUBMIT, "create_delegations", 202, (*BODY, 429)),
    Operation("prune", "POST /v1/delegations:prune", _ADMIN, "prune_delegations", 200, BODY),
    Operation("list", "GET /v1/delegations", _READ, "list_delegations", 200, (422,)),
    Operation("counts", "GET /v1/delegations:count", _READ, "count_delegations"),
    Operation("get", "GET /v1/delegations/{id}", _READ, "get_delegation", 200, (404, 422)),
    Operation("cancel", "POST /v1/delegations/{id}/cancel", _SUBMIT, "cancel_delegation", 202, (404,)),
    Operation("send", "POST /v1/delegations/{id}/messages", _SUBMIT, "send_message", 202, _NEW),
    Operation("resume", "POST /v1/delegations/{id}/resume", _SUBMIT, "resume_delegation", 202, (404, 409)),
    Operation("steps", "GET /v1/delegations/{id}/steps", _READ, "list_steps", 200, (404,)),
    Operation("patch", "GET /v1/delegations/{id}/patch", _READ, "get_patch", 200, (404,)),
    Operation("artifact", "GET /v1/delegations/{id}/artifacts/{name}", _READ, "get_artifact", 200, (404, 422)),
    Operation("continue_", "POST /v1/delegations/{id}/continue", _SUBMIT, "continue_delegation", 202, _NEW),
    Operation("retry", "POST /v1/delegations/{id}/retry", _SUBMIT, "retry_delegation", 202, _NEW),
    Operation(
        "deliver",
        "POST /v1/delegations/{id}/deliver",
        _SUBMIT,
        "deliver_delegation",
        200,
        _ONCE,
        whole="wanted",
        seconds=_LONG,
    ),
    Operation("merge", "POST /v1/merges", _SUBMIT, "merge_delegations", 202, _NEW, whole="wanted", seconds=_LONG),
    Operation("permissions", "GET /v1/permissions", _READ, "list_permissions", 200, (422,), "permissions"),
    Operation(
        "answer_permission",
        "POST /v1/permissions/{permissionId}",
        _APPROVE,
        "answer_permission",
        204,
        _ONCE,
        "permissions",
    ),
    Operation("events", "GET /v1/delegations/{id}/events", _READ, "stream_events", 200, (404, 422), "events"),
    Operation("follow_all", "GET /v1/events", _READ, "stream_all_events", tag="events"),
    Operation("disk", "GET /v1/disk", _READ, "get_disk_usage", tag="files"),
    Operation("files", "GET /v1/delegations/{id}/files", _READ, "list_files", 200, _OUT_OF_REACH, "files"),
    Operation("file", "GET /v1/delegations/{id}/files/{path:file}", _READ, "get_file", 200, _OUT_OF_REACH, "files"),
    Operation("upload", "PUT /v1/uploads", _SUBMIT, "put_upload", 201, (408, 413, 415, 422), "files"),
    Operation("webhooks", "GET /v1/webhooks", _READ, "list_notifications", 200, (404, 422), "webhooks"),
    Operation(
        "redeliver",
        "POST /v1/delegations/{id}/webhooks:redeliver",
        _SUBMIT,
        "redeliver_notifications",
        204,
        (404, 409),
        "webhooks",
    ),
    Operation("cost", "GET /v1/cost", _READ, "get_cost", 200, (422,), "cost"),
    Operation("audit", "GET /v1/audit", _ADMIN, "list_audit_entries", 200, (422,), "audit"),
    Operation("tools", "GET /v1/tools", _READ, "list_tools", tag="fleet"),
    Operation("workers", "GET /v1/workers", _READ, "list_workers", tag="fleet"),
    Operation("drain", "POST /v1/workers/{name}/drain", _ADMIN, "drain_worker", 202, (404,), "fleet"),
)
"""All of them, in the order of the OpenAPI document. ``follow`` is the stream of ``events``."""

ROUTES: Mapping[tuple[str, str], frozenset[Scope]] = {
    **{(each.method, each.path): frozenset({each.scope}) for each in OPERATIONS},
    ("GET", "/metrics"): frozenset({Scope.METRICS}),
    # The messages of MCP are all alike to HTTP, so its tools and resources are checked one by one.
    **{(method, MCP_PATH): frozenset[Scope]() for method in ("GET", "POST", "DELETE")},
}
"""The scopes by method and path. A route that is not here is refused to every token."""

BY_NAME = {each.name: each for each in OPERATIONS}
_LATE = {"DiskUsage": "disk", "Pruned": "disk", "Notification": "webhooks"}
"""Types of ``shared.runs`` whose modules import the Redis client, which most commands do not need."""


@cache
def answer_of(function: Any) -> Any:
    """Returns the type of an operation's answer."""
    annotations: dict[str, str] = inspect.unwrap(function).__annotations__
    late = {
        name: getattr(import_module(f"..shared.runs.{module}", __package__), name)
        for name, module in _LATE.items()
        if any(name in text for text in annotations.values())
    }
    return get_type_hints(function, localns=late)["return"]


def performed(kind: K) -> K:
    """Lets the class's ``_perform`` carry out each of its methods that is in the table; signatures stay as they are."""
    for name in vars(kind).keys() & BY_NAME.keys():
        if inspect.iscoroutinefunction(function := vars(kind)[name]):
            setattr(kind, name, _performed(BY_NAME[name], function))
    return kind


def _performed(row: Operation, function: Any) -> Any:
    signature = inspect.signature(function)

    @wraps(function)
    async def perform(self: Any, *args: Any, **fields: Any) -> Any:
        bound = signature.bind(self, *args, **fields)
        bound.apply_defaults()
        _, *given = bound.arguments.items()
        return await self._perform(row, dict(given))

    return perform
