"""The routes, one file a noun. A new one is a file here and a line in the list."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from orchestrator.routes import delegations, events, fleet, health

ROUTERS: list[APIRouter] = [delegations.router, events.router, fleet.router, health.router]

OPEN: list[APIRouter] = [health.router]
"""For probes, which carry no token. Every other router is behind it."""

BODIES: list[type[BaseModel]] = [*delegations.BODIES]
"""Every model that a request's body is read into."""
