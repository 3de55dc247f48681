"""The fleet: workers and their tools."""

from __future__ import annotations

from fastapi import APIRouter

from ...shared.fleet import ToolCard, WorkerCard
from ..dependencies import Service
from ..problems import problem_responses

router = APIRouter(prefix="/v1", tags=["fleet"])


@router.get("/tools", responses=problem_responses())
async def list_tools(service: Service) -> list[ToolCard]:
    """Returns every tool that workers have announced."""
    return await service.tools()


@router.get("/workers", responses=problem_responses())
async def list_workers(service: Service) -> list[WorkerCard]:
    """Returns the workers that are alive."""
    return await service.workers()
