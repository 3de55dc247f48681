"""The dependency of every route: the service of its application."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from orchestrator.delegations import Delegations


async def _service(request: Request) -> Delegations:
    return request.app.state.service


Service = Annotated[Delegations, Depends(_service)]
