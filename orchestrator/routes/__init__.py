"""The routes, in files by theme, one router per resource. A new router needs a line in the list."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from ...shared.message import MessageRequest
from ...shared.permission import PermissionReply
from ...shared.request import Batch, DelegationRequest, MergeRequest
from . import delegations, operations, runs

ROUTERS: list[APIRouter] = [
    delegations.router,
    runs.permissions_router,
    runs.events_router,
    runs.files_router,
    runs.webhooks_router,
    operations.cost_router,
    operations.audit_router,
    operations.fleet_router,
    operations.metrics_router,
    operations.health_router,
]

OPEN: list[APIRouter] = [operations.health_router]
"""For probes, which send no token. Every other router requires it."""

BODIES: list[type[BaseModel]] = [
    *(DelegationRequest, Batch, delegations.Prune, delegations.Continue, delegations.Retry),
    *(PermissionReply, MessageRequest, MergeRequest),
]
"""Every model of a request body."""
