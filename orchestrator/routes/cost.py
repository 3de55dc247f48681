"""What delegations cost."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, field_validator

from ...shared.request import MAX_NAME
from ...shared.runs.cost import CostReport, check_group
from ...shared.wire import Request
from ..dependencies import Service
from ..problems import problem_responses

router = APIRouter(prefix="/v1", tags=["cost"])


class CostFilter(Request):
    """Whose cost to add up, and how."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # FastAPI reads a parameter's description here

    by: str = Field(default="day", max_length=MAX_NAME)
    """``day``, ``model``, ``session``, ``label`` or ``label:KEY``."""
    since: datetime | None = None
    """Only delegations accepted since then; without an offset it is UTC."""

    @field_validator("by")
    @classmethod
    def _known(cls, by: str) -> str:
        return check_group(by)


@router.get("/cost", responses=problem_responses(422))
async def get_cost(service: Service, wanted: Annotated[CostFilter, Query()]) -> CostReport:
    """Returns what delegations cost, from the records that exist; each counts what it spent itself."""
    return await service.cost(wanted.by, wanted.since)
