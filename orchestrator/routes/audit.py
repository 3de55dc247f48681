"""The audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, field_validator

from ...shared.wire import Request
from ..audit_log import CURSOR, AuditPage
from ..dependencies import Service
from ..problems import problem_responses

router = APIRouter(prefix="/v1", tags=["audit"])


class AuditFilter(Request):
    """Which page of the log."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # FastAPI reads a parameter's description here

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=64)

    @field_validator("cursor")
    @classmethod
    def _of_a_page(cls, cursor: str | None) -> str | None:
        if cursor is not None and not CURSOR.fullmatch(cursor):
            raise ValueError("is not the nextCursor of a page")
        return cursor


@router.get("/audit", responses=problem_responses(422))
async def list_audit_entries(service: Service, wanted: Annotated[AuditFilter, Query()]) -> AuditPage:
    """Lists the requests that changed something or were refused, newest first: who, when, what, with which status."""
    return await service.audit(wanted.limit, wanted.cursor)
