"""The fields of requests as keyword arguments of Python: typed, so that a checker finds a misspelt one, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

from pydantic import ValidationError

from ..shared.errors import Invalid
from ..shared.facts import VerifyItem
from ..shared.request import (
    After,
    ApprovalMode,
    AutomaticRetry,
    DelegationRequest,
    Deliver,
    Limits,
    RetryReason,
    WorkspaceSpec,
)
from ..shared.webhooks import Webhook
from ..shared.wire import Request, explain

R = TypeVar("R", bound=Request)


class LimitFields(TypedDict, total=False):
    """The fields of ``Limits``."""

    max_turns: int
    max_tool_calls: int
    timeout_seconds: float
    max_tokens: int | None
    max_cost_usd: float | None


class MergeFields(TypedDict, total=False):
    """Further fields of ``MergeRequest``."""

    protect: Sequence[str] | None
    require: Literal["passed", "verified", "improved"]
    with_protected: bool
    timeout_seconds: float
    idempotency_key: str | None


class RetryFields(TypedDict):
    """The fields of ``AutomaticRetry``."""

    attempts: int
    on: NotRequired[Sequence[RetryReason]]


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
    tool_call_style: Literal["native", "xml"]
    workspace: str | Path | WorkspaceSpec | Mapping[str, Any]
    deliver: Deliver | Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | type[Any] | None
    verify: str | Sequence[VerifyItem | Mapping[str, Any] | str]
    protect: Sequence[str] | None
    require: Literal["passed", "verified", "improved"]
    accept: Sequence[str]
    max_verify_rounds: int
    verify_timeout_seconds: float
    verify_early: bool
    after: Sequence[After | AfterFields]
    labels: Mapping[str, str]
    priority: int
    webhook: Webhook | Mapping[str, Any] | None
    retry: AutomaticRetry | RetryFields | None
    parent_id: str | None
    idempotency_key: str | None
    continues: str | None
    retry_of: str | None
    from_turn: int | None
    merges: Sequence[str]
    merge_with_protected: bool


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
