"""A real server on loopback for tests of the front."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from inspect import isfunction
from typing import Any

import uvicorn

from deputize.orchestrator.app import OpenService, create_app
from deputize.orchestrator.protocol import BoundedProtocol
from deputize.shared.settings import Settings
from tests.waiting import until


def settings(**fields: Any) -> Settings:
    """Settings without an environment, and without a token unless a test sets one."""
    fields.setdefault("no_token", True)
    return Settings(**fields)


def opening(service: Any) -> OpenService:
    """What an application is given to open its service with, where there is one already."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield service

    return opened


class Server(uvicorn.Server):
    """Stops as uvicorn's does, but without its pauses: two tenths of a second for each of very many tests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def main_loop(self) -> None:
        counter = 0
        while not (self._stopped.is_set() or await self.on_tick(counter)):
            counter += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in [*state.connections]:
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await until(lambda: not state.connections and not state.tasks)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


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
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    if serving.done():
        serving.result()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.stop()
        await serving
