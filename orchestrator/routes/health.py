"""Health: liveness of the process, and readiness for new work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from ...shared.errors import Unavailable
from ...shared.fleet import own_version
from ...shared.wire import Wire
from ..dependencies import Service
from ..problems import problem_response
from ..readiness import NO_WORKER

router = APIRouter(tags=["health"])


class Alive(Wire):
    status: Literal["alive"] = "alive"


class Ready(Wire):
    status: Literal["ready"] = "ready"
    workers: int
    version: str
    """That of deputize."""


@router.get("/livez")
async def check_liveness() -> Alive:
    """Does not check Redis, so that a probe never restarts a healthy process because Redis is away."""
    return Alive()


@router.get("/readyz", responses={503: problem_response(503)})
async def check_readiness(service: Service) -> Ready:
    """Checks that Redis answers and at least one worker is alive."""
    ready = await service.ready()
    if ready.redis is not None:
        raise Unavailable(ready.redis)
    if not ready.workers:
        raise Unavailable(f"{NO_WORKER}; start one with `deputize worker` or `deputize up`")
    return Ready(workers=ready.workers, version=own_version())
