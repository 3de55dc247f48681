"""Permissions: the calls that wait for a person, and the answers to them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import ConfigDict, Field, field_validator

from ...shared.permission import PermissionReply, PermissionRequest
from ...shared.request import MAX_NAME
from ...shared.runs.permissions import delegation_of
from ...shared.wire import Request, Wire
from ..dependencies import Note, Service, body_of, document
from ..problems import problem_responses
from .delegations import ID

MAX_ANSWER_BYTES = 2 * 1024 * 1024

router = APIRouter(prefix="/v1", tags=["permissions"])


class PermissionItems(Wire):
    items: list[PermissionRequest]


class PermissionFilter(Request):
    """Which requests to list."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # FastAPI reads a parameter's description here

    delegation: str | None = Field(default=None, max_length=MAX_NAME)
    """Only those of this delegation and of those that it submitted itself."""

    @field_validator("delegation")
    @classmethod
    def _id(cls, delegation: str | None) -> str | None:
        if delegation is not None and not ID.fullmatch(delegation):
            raise ValueError("is not the id of a delegation")
        return delegation


@router.get("/permissions", responses=problem_responses(422))
async def list_permissions(service: Service, wanted: Annotated[PermissionFilter, Query()]) -> PermissionItems:
    """Lists the calls that wait for a person's answer, the oldest first."""
    return PermissionItems(items=await service.permissions(wanted.delegation))


@router.post(
    "/permissions/{permissionId}",
    status_code=204,
    responses=problem_responses(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=document(PermissionReply),
)
async def answer_permission(
    service: Service,
    id: Annotated[str, Path(alias="permissionId")],
    reply: Annotated[PermissionReply, Depends(body_of(PermissionReply, MAX_ANSWER_BYTES))],
    note: Note,
) -> None:
    """Answers a call that waits for permission, once. 409 where it has an answer, or does not wait any more."""
    note.ids += [asker] if (asker := delegation_of(id)) else []
    await service.answer_permission(id, reply.outcome, reason=reply.reason, arguments=reply.arguments, by=note.token)
