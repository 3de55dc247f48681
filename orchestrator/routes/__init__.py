"""The routes, one file per resource. A new one is a file here and a line in the list."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from . import delegations, operations, permissions, runs

ROUTERS: list[APIRouter] = [
    delegations.router,
    delegations.follow_up_router,
    permissions.router,
    runs.events_router,
    runs.files_router,
    operations.cost_router,
    operations.audit_router,
    operations.fleet_router,
    operations.health_router,
]

OPEN: list[APIRouter] = [operations.health_router]
"""For probes, which send no token. Every other router requires it."""

BODIES: list[type[BaseModel]] = [*delegations.BODIES, *delegations.FOLLOW_UP_BODIES, *permissions.BODIES]
"""Every model of a request body."""
