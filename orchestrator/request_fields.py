"""The keyword arguments of operations of Python, typed, and the requests of them, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, cast

from pydantic import ValidationError

from ..shared.errors import Invalid, placed
from ..shared.limits import Limits
from ..shared.request import DelegationRequest, DirectoryWorkspace, RequestFields
from ..shared.text import plain_number
from ..shared.wire import Request, explain, sendable

R = TypeVar("R", bound=Request)


class MergeFields(TypedDict, total=False):
    """Further fields of ``MergeRequest``."""

    protect: Sequence[str] | None
    require: Literal["passed", "verified", "improved"]
    with_protected: bool
    timeout_seconds: float
    idempotency_key: str | None


class SubmitFields(RequestFields, total=False):
    """What a task is submitted with."""

    traceparent: str | None
    """The caller's trace, as W3C Trace Context writes it. Without it that of OpenTelemetry's current span."""


class ToolFields(RequestFields, total=False):
    """Name and description of a tool that delegates, and the fields of its requests that its model does not choose."""

    name: str
    description: str


def request_of(task: str | DelegationRequest, given: RequestFields) -> DelegationRequest:
    """Returns the request; a relative directory starts at the current one. Raises ``Invalid`` with each mistake.

    Fields beside a request are defaults: what it sets itself holds.
    """
    if isinstance(task, DelegationRequest):
        own = {name: getattr(task, name) for name in task.model_fields_set}
        if (limits := given.get("limits")) and "limits" in own:
            defaults = limits.model_dump(exclude_unset=True) if isinstance(limits, Limits) else limits
            own["limits"] = {**defaults, **task.limits.model_dump(exclude_unset=True)}
        return located_in(Path(), validated(DelegationRequest, {**given, **own})) if given else task
    return located_in(Path(), validated(DelegationRequest, {**given, "task": task}))


def each_of(name: str, given: Any) -> Iterable[Any]:
    """Returns several tasks or ids. Raises Invalid for one alone: of a text it would take each character."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise Invalid.of([{"pointer": f"/{name}", "detail": f"is a list of {name}; put a single one into a list"}])
    return cast("Iterable[Any]", given)


def check_counts(**given: Any) -> None:
    """Raises Invalid for the arguments that are not integers of at least 1."""
    wrong = [name for name, count in given.items() if type(count) is not int or count < 1]
    if wrong:
        detail = "is an integer of at least 1, because nothing would run otherwise"
        raise Invalid.of([{"pointer": f"/{name}", "detail": f"{detail}; it is {given[name]!r}"} for name in wrong])


def located_in(folder: Path, request: DelegationRequest) -> DelegationRequest:
    """Returns the request with a relative path of its directory made absolute, for callers on its machine."""
    if not isinstance(request.workspace, DirectoryWorkspace):
        return request
    path = str((folder / Path(request.workspace.path).expanduser()).absolute())
    check_sendable("/workspace/path", path)  # the name of the current directory may be in an old encoding
    return request.model_copy(update={"workspace": request.workspace.model_copy(update={"path": path})})


def check_sendable(pointer: str, value: Any) -> None:
    """Raises ``Invalid`` for a value that cannot be sent as JSON."""
    try:
        sendable(value)
    except ValueError as error:
        raise Invalid(f"{pointer.lstrip('/')}: {error}", [{"pointer": pointer, "detail": str(error)}]) from None


def lowered_limits(asked: Limits, held: Limits) -> list[str]:
    """Returns a sentence per limit that the server lowered to its cap, where ``held`` are those that hold."""
    pairs = ((field.alias, getattr(asked, name), getattr(held, name)) for name, field in Limits.model_fields.items())
    return [
        f"{alias} {plain_number(wanted)} is above the server's cap; {plain_number(cap)} holds"
        for alias, wanted, cap in pairs
        if wanted is not None and wanted != cap
    ]


def validated(kind: type[R], given: Mapping[str, Any]) -> R:
    """Returns the keyword arguments as a model. Raises ``Invalid`` with each mistake."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        mistakes = explain(error, kind, python=True)
        detail = "; ".join(placed(each).lstrip("/") for each in mistakes)
        raise Invalid(detail, mistakes) from None
