"""What makes a signature an operation of the service, which ``operations`` declares.

The request that ``Client`` sends, the route with its scope and its entry in the OpenAPI document, the methods of
``Orchestrator`` and the scopes of MCP's tools follow from an ``Operation`` and the signature below it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote

from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from ..shared.request import DelegationRequest
from ..shared.wire import Request
from .scopes import Scope

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type[Any])

OF_SENDER = "by"
"""The parameter with the name of the sender's token, which is not part of a body: the service knows it."""
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_OPERATION = "_operation"
"""The attribute of a function that has its operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Declares a function as an operation, whose parameters and answer are those of its signature."""

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
    name: str = ""
    """That of the function."""

    def __call__(self, function: F) -> F:
        """Makes a function this operation."""
        setattr(function, _OPERATION, replace(self, name=function.__name__))
        return function

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


@cache
def types_of(function: Any) -> Mapping[str, Any]:
    """Returns the types of an operation's parameters, and that of its answer as ``return``."""
    return get_type_hints(function)


def operations_of(kind: type[Any]) -> tuple[Operation, ...]:
    """Returns the operations that a class declares, in its order."""
    return tuple(getattr(each, _OPERATION) for each in vars(kind).values() if hasattr(each, _OPERATION))


def performed(kind: K) -> K:
    """Lets the class's ``_perform`` carry out each of its operations; signatures stay as they are."""
    for row in operations_of(kind):
        if inspect.iscoroutinefunction(function := vars(kind)[row.name]):
            setattr(kind, row.name, _performed(row, function))
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
