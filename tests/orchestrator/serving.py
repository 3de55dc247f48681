"""A real server on loopback for tests of the front."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isfunction
from typing import Any

import uvicorn

from deputize.orchestrator.app import OpenService, create_app
from deputize.orchestrator.protocol import BoundedProtocol
from deputize.shared.settings import Settings
from tests.waiting import until


def settings(**fields: Any) -> Settings:
    """Settings of nobody's environment; a test that says nothing of a token needs none."""
    fields.setdefault("no_token", True)
    return Settings(**fields)


def opening(service: Any) -> OpenService:
    """What an application is given to open its service with, where there is one already."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield service

    return opened


@asynccontextmanager
async def served(
    service: Any,
    using: Settings | None = None,
    port: int = 0,
    protocol: type[asyncio.Protocol] = BoundedProtocol,
) -> AsyncIterator[str]:
    """The URL of an application over ``service``: an object with the verbs, or a function that opens one."""
    open_service: OpenService = service if isfunction(service) else opening(service)
    app = create_app(open_service, using or settings())
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=0, http=protocol
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    if serving.done():
        serving.result()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
