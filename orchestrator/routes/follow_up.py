"""What follows a finished delegation: go on with it, or do it again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response

from deputize.orchestrator.dependencies import Service, body_of, document
from deputize.orchestrator.problems import problem_responses
from deputize.shared.delegation import Delegation
from deputize.shared.request import MAX_REQUEST_BYTES, Limits
from deputize.shared.wire import Request

router = APIRouter(prefix="/v1", tags=["delegations"])


class Continue(Request):
    """What is to be done now, in the conversation and the files of a finished delegation."""

    text: str = Field(min_length=1)
    limits: Limits | None = None
    """Null: those that the finished delegation was given."""


BODIES: list[type[BaseModel]] = [Continue]


@router.post(
    "/delegations/{id}/continue",
    status_code=202,
    responses=problem_responses(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=document(Continue),
)
async def continue_delegation(
    service: Service,
    id: str,
    wanted: Annotated[Continue, Depends(body_of(Continue, MAX_REQUEST_BYTES))],
    response: Response,
) -> Delegation:
    """Submits a new delegation that goes on with a finished one: its conversation, its files, limits of its own.

    409 while the earlier one is not finished, and where its conversation or its files are gone.
    """
    return _located(await service.continue_(id, wanted.text, wanted.limits), response)


@router.post("/delegations/{id}/retry", status_code=202, responses=problem_responses(404, 409, 422))
async def retry(service: Service, id: str, response: Response) -> Delegation:
    """Submits the request of a finished delegation again, as a new one from the start. 409 while it is not finished."""
    return _located(await service.retry(id), response)


def _located(delegation: Delegation, response: Response) -> Delegation:
    response.headers["Location"] = f"/v1/delegations/{delegation.id}"
    return delegation
