"""What operators ask: readiness, metrics, workers and their tools, what runs cost, who changed something."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import PlainTextResponse

from ...shared.errors import Unavailable
from ...shared.fleet import own_version
from ...shared.runs.cost import CostReport
from ...shared.wire import Wire
from ..audit_log import AuditPage
from ..dependencies import Service
from ..metrics.exposition import MEDIA_TYPE
from ..parameters import AuditCursor, Group, PageSize
from ..problems import problem_response, problem_responses
from .delegations import Filter
from .handlers import guarded_router, handles, open_router


class CostFilter(Filter):
    """Whose cost to add up, and how."""

    by: Group = "day"
    """``day``, ``model``, ``session``, ``label``, ``label:KEY`` or ``delegation``: the ten most expensive."""
    since: datetime | None = None
    """Only delegations accepted since then; without an offset it is UTC."""


@handles("cost")
async def get_cost(service: Service, wanted: Annotated[CostFilter, Query()]) -> CostReport:
    """Returns what delegations cost, from the records that exist; each counts what it spent itself.

    It also has the caps on money with what is spent, reserved and left, and forecasts of the delegations that run.
    """
    return await service.cost(wanted.by, wanted.since)


class AuditFilter(Filter):
    """Which page of the log."""

    limit: PageSize = 50
    """The most entries of a page."""
    cursor: AuditCursor | None = None
    """The ``nextCursor`` of the previous page."""


@handles("audit")
async def list_audit_entries(service: Service, wanted: Annotated[AuditFilter, Query()]) -> AuditPage:
    """Lists the requests that changed something or were refused, newest first: who, when, what, with which status."""
    return await service.audit(wanted.limit, wanted.cursor)


metrics_router = guarded_router("metrics")


class MetricsResponse(PlainTextResponse):
    media_type = MEDIA_TYPE


@metrics_router.get("/metrics", response_class=MetricsResponse, responses=problem_responses())
async def get_metrics(service: Service) -> MetricsResponse:
    """Returns the metrics of the whole fleet in the text format of Prometheus; any process returns the same."""
    return MetricsResponse(await service.metrics())


health_router = open_router("health")


class Alive(Wire):
    status: Literal["alive"] = "alive"


class Ready(Wire):
    status: Literal["ready"] = "ready"
    workers: int
    """How many workers are alive."""
    version: str
    """That of deputize."""


@health_router.get("/livez")
async def check_liveness() -> Alive:
    """Does not check Redis, so that a probe never restarts a healthy process because Redis is away."""
    return Alive()


@health_router.get("/readyz", responses={503: problem_response(503)})
async def check_readiness(service: Service) -> Ready:
    """Checks that Redis answers and at least one worker is alive."""
    if (why := await service.not_ready()) is not None:
        raise Unavailable(why)
    return Ready(workers=len(await service.workers()), version=own_version())
