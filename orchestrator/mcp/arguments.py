"""The arguments of the tools."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError, WithJsonSchema

from ...shared.compound_requests import Batch
from ...shared.delegation import Status
from ...shared.errors import Invalid
from ...shared.ids import ID
from ...shared.permission import ALIASES, Outcome, PermissionOutcome, PermissionReply
from ...shared.request import MAX_ENTRIES, MAX_NAME, DelegationRequest
from ...shared.runs.permission_fields import delegation_of
from ...shared.wire import LONGEST_SHOWN, Request, explain

MAX_MANY = 100
MAX_WAIT_SECONDS = 600.0


def _is_id(text: str) -> str:
    if not ID.fullmatch(text):
        raise ValueError(f"{text[:LONGEST_SHOWN]!r} is not the id of a delegation, dlg_…; `delegations` lists them")
    return text


DelegationId = Annotated[str, AfterValidator(_is_id)]
"""Checked here, because an id becomes a part of a path."""


def _is_permission_id(text: str) -> str:
    if delegation_of(text) is None:
        shown = text[:LONGEST_SHOWN]
        raise ValueError(f"{shown!r} is not the id of a permission request, prm_…; `pending_permissions` lists them")
    return text


class ManyArguments(Batch):
    """Several delegations at once; all are accepted or none."""

    requests: list[DelegationRequest] = Field(min_length=1, max_length=MAX_MANY)
    """The tasks, each with the fields of `delegate`."""
    wait: bool = True
    """Whether to wait for all results; false returns the ids at once."""


class ResultArguments(Request):
    id: DelegationId
    """The delegation, dlg_…"""
    wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)
    """How long to wait for its end; 0 returns at once."""
    patch: bool = False
    """Whether to return its changes of files, too, as a unified diff."""


class CancelArguments(Request):
    id: DelegationId
    """The delegation, dlg_…"""


class SendArguments(Request):
    id: DelegationId
    """The delegation, dlg_…"""
    text: str = Field(pattern=r"\S")
    """What its model reads before its next turn, at most 16 KiB."""


class WrapUpArguments(Request):
    id: DelegationId
    """The delegation, dlg_…"""
    text: str = ""
    """What its model reads for its report, at most 16 KiB."""


class ListArguments(Request):
    status: Status | None = None
    """Only those of this status."""
    session_id: str | None = Field(default=None, max_length=MAX_NAME)
    """Only those that were delegated with this sessionId."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=MAX_ENTRIES)
    """Only those that have all of these labels."""
    limit: int = Field(default=20, ge=1, le=100)
    """How many of them a page has."""
    cursor: DelegationId | None = None
    """The nextCursor of the page before."""


class PendingArguments(Request):
    delegation: DelegationId | None = None
    """Only those of this delegation, dlg_…, and of those below it."""


class AnswerArguments(PermissionReply):
    permission_id: Annotated[str, AfterValidator(_is_permission_id)]
    """The request, prm_…; `pending_permissions` lists them."""
    outcome: Annotated[Outcome, WithJsonSchema({"type": "string", "enum": [*PermissionOutcome, *ALIASES]})]
    """`proceed_always` and its like also allow what `remembers` of the request lists; `modify` needs `arguments`."""


def parsed(model: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
    """Returns the arguments as the model. Raises Invalid with a pointer per mistake."""
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        mistakes = explain(error, model)
        raise Invalid.of(mistakes) from None
