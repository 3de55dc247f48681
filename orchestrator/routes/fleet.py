"""The fleet: workers and their tools."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.problems import refusals
from orchestrator.wiring import Service
from shared.catalog import ToolCard, WorkerCard

router = APIRouter(prefix="/v1", tags=["fleet"])


@router.get("/tools", responses=refusals())
async def tools(service: Service) -> list[ToolCard]:
    """Returns every tool that workers have announced."""
    return await service.tools()


@router.get("/workers", responses=refusals())
async def workers(service: Service) -> list[WorkerCard]:
    """Returns the workers that are alive."""
    return await service.workers()
