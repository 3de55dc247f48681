"""All servers of one run: connected concurrently, their tools in the order of the file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import mcp_types as types

from ..threads import run_in_thread
from .connection import Connection, ServerUnavailable
from .entry import Server
from .tools import McpTool, tools_of
from .transport import RunScope

__all__ = ["OpenServers", "RunScope", "serving"]


@dataclass(slots=True)
class OpenServers:
    """The tools of the available servers, the problems, and the names of the unavailable servers."""

    tools: list[McpTool] = field(default_factory=list[McpTool])
    problems: list[str] = field(default_factory=list[str])
    down: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def serving(servers: Sequence[Server], caller: RunScope, seconds: float) -> AsyncGenerator[OpenServers]:
    """Yields the servers' tools, callable until the block ends; all servers are closed afterwards.

    ``seconds`` is the time to wait for all of them together, or the ``connect_timeout`` of a server that has one. The
    failure of a server does not affect the others.
    """
    links = [Connection(server, caller, server.connect_seconds or seconds) for server in servers]
    try:
        async with asyncio.TaskGroup() as side_by_side:
            reaching = [side_by_side.create_task(_reached(link)) for link in links]
        served, taken = OpenServers(), set[str]()
        for link, listed in zip(links, (each.result() for each in reaching), strict=True):
            if isinstance(listed, ServerUnavailable):
                served.problems.append(f"the MCP server {link.server.name!r} is left out: {listed}")
                served.down.append(link.server.name)
                continue
            tools, problems = await run_in_thread(tools_of, link, listed, taken)
            served.tools += tools
            served.problems += [f"the MCP server {link.server.name!r}: {each}" for each in link.left_out] + problems
        yield served
    finally:
        await asyncio.gather(*(link.end() for link in links))


async def _reached(link: Connection) -> list[types.Tool] | ServerUnavailable:
    begun = time.monotonic()
    try:
        await link.connect()
        return await link.tools(max(link.connect_seconds - (time.monotonic() - begun), 1))
    except ServerUnavailable as error:
        await link.close()
        return error
