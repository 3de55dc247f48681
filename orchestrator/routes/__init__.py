"""The routes, one file per resource. A new one is a file here and a line in the list."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from . import audit, cost, delegations, events, files, fleet, follow_up, health, permissions

ROUTERS: list[APIRouter] = [
    delegations.router,
    follow_up.router,
    permissions.router,
    events.router,
    files.router,
    cost.router,
    audit.router,
    fleet.router,
    health.router,
]

OPEN: list[APIRouter] = [health.router]
"""For probes, which send no token. Every other router requires it."""

BODIES: list[type[BaseModel]] = [*delegations.BODIES, *follow_up.BODIES, *permissions.BODIES]
"""Every model of a request body."""
