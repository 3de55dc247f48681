"""`deputize mcp`: the MCP server for a client on this machine, over standard input and output."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..mcp import SKILL
from . import output
from .connect import Service, connect, lacks_endpoint, load_settings, stack_here

if TYPE_CHECKING:
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings
    from ..client import Client


@click.command()
@click.option("--skill", is_flag=True, help="Print a SKILL.md that teaches an agent when and how to delegate.")
def mcp(skill: bool) -> None:
    """Serve delegations as tools to an MCP client, over standard input and output.

    The client starts it: `claude mcp add deputize -- deputize mcp`. The first call uses the service of DEPUTIZE_URL
    or this machine's stack, or starts one.
    """
    if skill:
        output.content(SKILL.read_text("utf-8"))
        return
    asyncio.run(_serve(load_settings()))


async def _serve(settings: Settings) -> None:
    from ..mcp import stdio

    async with LazyService(settings) as source:
        serving = asyncio.create_task(stdio.serve(source))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        try:
            await asyncio.wait({serving})
            if not serving.cancelled():
                serving.result()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


class LazyService(AsyncExitStack):
    """Connects on first use: clients start their servers with every session, and most sessions delegate nothing."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._connecting = asyncio.Lock()
        self._service: Service | None = None

    @property
    def folder(self) -> Path:
        return Path.cwd()

    @property
    def stays(self) -> bool:
        return self._service is None or self._service.stays

    async def service(self, requests: Sequence[DelegationRequest] = ()) -> Client:
        async with self._connecting:
            if self._service is None or (requests and not self._service.has_workers) or self._has_ended(self._service):
                lacks_model = lacks_endpoint(requests, self._settings)
                connecting = connect(self._settings, workers=int(bool(requests)), lacks_model=lacks_model)
                self._service = await self.enter_async_context(connecting)
            return self._service.client

    async def if_open(self) -> Client | None:
        return None if self._service is None else self._service.client

    def _has_ended(self, service: Service) -> bool:
        """Returns whether the stack in use was stopped; another one has another address."""
        if self._settings.url:
            return False
        there = stack_here(self._settings)
        return there is None or there.url != service.client.url
