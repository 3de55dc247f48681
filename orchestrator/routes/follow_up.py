"""What follows a finished delegation: go on with it, or do it again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel, Field
from starlette.responses import Response

from ...shared.delegation import Delegation
from ...shared.request import MAX_REQUEST_BYTES, Limits
from ...shared.wire import Request
from ..dependencies import Note, Service, body_of, document, one_key
from ..problems import problem_responses
from .delegations import REPLAYED, located

MAX_RETRY_BYTES = 4096

router = APIRouter(prefix="/v1", tags=["delegations"])
KeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


class Continue(Request):
    """What is to be done now, in the conversation and the files of a finished delegation."""

    text: str = Field(min_length=1)
    limits: Limits | None = None
    """Null: those that the finished delegation was given."""
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=255)
    """A repeated request with the same key returns the first delegation instead of a second one."""


class Retry(Request):
    """How a finished delegation is done again."""

    from_turn: int | None = Field(default=None, ge=1)
    """The turn of its run to begin with: the conversation and the files from before it are kept. Null: from the start.

    Only files from its start and its end are kept, so turns between its first and its last change of files are 409.
    """
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=255)
    """A repeated request with the same key returns the first delegation instead of a second one."""


BODIES: list[type[BaseModel]] = [Continue, Retry]


@router.post(
    "/delegations/{id}/continue",
    status_code=202,
    responses={**REPLAYED, **problem_responses(400, 404, 408, 409, 413, 415, 422, 429)},
    openapi_extra=document(Continue),
)
async def continue_delegation(
    service: Service,
    id: str,
    wanted: Annotated[Continue, Depends(body_of(Continue, MAX_REQUEST_BYTES))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> Delegation:
    """Submits a new delegation that goes on with a finished one: its conversation, its files, limits of its own.

    409 while the earlier one is not finished, and where its conversation or its files are gone.
    """
    key = one_key(wanted.idempotency_key, header)
    return located(await service.continue_(id, wanted.text, wanted.limits, idempotency_key=key), response, note)


@router.post(
    "/delegations/{id}/retry",
    status_code=202,
    responses={**REPLAYED, **problem_responses(400, 404, 408, 409, 413, 415, 422, 429)},
    openapi_extra=document(Retry, required=False),
)
async def retry_delegation(
    service: Service,
    id: str,
    wanted: Annotated[Retry, Depends(body_of(Retry, MAX_RETRY_BYTES, required=False))],
    response: Response,
    note: Note,
    header: KeyHeader = None,
) -> Delegation:
    """Submits the request of a finished delegation again, as a new one, from the start or from a turn of its run.

    409 while it is not finished, and where its files from before that turn are not kept.
    """
    key = one_key(wanted.idempotency_key, header)
    return located(await service.retry(id, from_turn=wanted.from_turn, idempotency_key=key), response, note)
