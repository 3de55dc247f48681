"""The keyword arguments of operations of Python, typed, and the requests of them, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from pydantic import ValidationError

from ..shared.errors import Invalid
from ..shared.request import DelegationRequest, Limits, RequestFields
from ..shared.wire import Request, explain

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
        return validated(DelegationRequest, {**given, **own}).located_in(Path()) if given else task
    return validated(DelegationRequest, {**given, "task": task}).located_in(Path())


def validated(kind: type[R], given: Mapping[str, Any]) -> R:
    """Returns the keyword arguments as a model. Raises ``Invalid`` with each mistake."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        mistakes = explain(error, kind, python=True)
        detail = "; ".join(f"{each['pointer'].lstrip('/')}: {each['detail']}" for each in mistakes)
        raise Invalid(detail, mistakes) from None
