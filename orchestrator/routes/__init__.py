"""The routes of the operations, those of their own in files by theme, and what only HTTP has."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from ...shared.compound_requests import Batch, MergeRequest
from ...shared.message import MessageRequest
from ...shared.permission import PermissionReply
from ...shared.request import DelegationRequest
from ...shared.webhooks import Webhook
from . import delegations, handlers, operators, runs, triggers

ROUTERS: list[APIRouter] = [
    handlers.router(delegations, runs, operators),
    operators.metrics_router,
    operators.health_router,
    triggers.router,
]

BODIES: list[type[BaseModel]] = [
    *(DelegationRequest, Batch, delegations.Prune, delegations.Continue, delegations.Retry),
    *(PermissionReply, MessageRequest, MergeRequest, Webhook),
]
"""Every model of a request body."""
