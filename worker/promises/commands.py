"""The promises about commands, tried with this worker's settings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from ...shared.errors import DeputizeError
from ...shared.settings import Settings
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.canaries import Canaries
from ..sandbox.limit_protections import try_limits
from ..sandbox.project_tools import tools_for
from ..sandbox.protections import Make, try_egress, try_isolation

_LOOKUP_SECONDS = 1.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BY_COMMANDS = ("secrets", "files", "network", "kernel", "bounds")
"""The promises that are tried with commands."""


@dataclass(slots=True)
class Found:
    """What was tried so far."""

    problems: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By promise; an empty list where all is well."""
    untried: dict[str, str] = field(default_factory=dict[str, str])
    """The reason, by promise."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, promise: str, problems: list[str]) -> None:
        self.problems.setdefault(promise, []).extend(problems)

    async def attempt(self, promise: str, work: Awaitable[list[str]]) -> None:
        """Adds the problems that the work returns, or why it could not be done."""
        try:
            self.add(promise, await work)
        except (DeputizeError, OSError) as error:
            self.untried[promise] = str(error)


async def try_commands(settings: Settings, canaries: Canaries, found: Found, make: Make = Bubblewrap) -> None:
    """Tries what can be tried with commands, all at once."""
    async with asyncio.TaskGroup() as together:
        together.create_task(_isolation(settings, canaries, found, make))
        together.create_task(_egress(settings, canaries, found, make))
        together.create_task(found.attempt("bounds", _limits(canaries, found)))


async def _isolation(settings: Settings, canaries: Canaries, found: Found, make: Make) -> None:
    servers = await _redis(settings.redis_url) if settings.redis_url else []
    try:
        tools = await asyncio.to_thread(tools_for, settings, None)
        tried = await try_isolation(canaries, servers, settings.secrets, tools, make)
    except (DeputizeError, OSError) as error:
        found.untried |= dict.fromkeys(BY_COMMANDS[:4], str(error))
        return
    for promise, problems in tried.problems.items():
        found.add(promise, problems)
    found.more["variables"] = tried.variables
    found.more["redis"] = any(name in tried.reached for name, *_ in servers)


async def _egress(settings: Settings, canaries: Canaries, found: Found, make: Make) -> None:
    from ..web.egress_proxy import EgressProxy  # its libraries take a while

    async with _answering() as port:
        own = settings.sandbox
        reach = EgressProxy(
            "sandbox.allowed_hosts",
            ["localhost", *own.allowed_hosts],
            own.network_bytes,
            private_hosts=[*settings.tools.private_hosts, f"localhost:{port}"],
        )
        other = next((address[1] for name, *_, address in canaries.servers if name.endswith("127.0.0.1")), 1)
        others = [f"http://127.0.0.1:{other}/", f"http://localhost:{other}/", "http://169.254.169.254/"]
        await found.attempt("network", try_egress(canaries, reach, f"http://localhost:{port}/", others, make))


async def _limits(canaries: Canaries, found: Found) -> list[str]:
    problems, found.more["groups"] = await try_limits(canaries.workspace)
    return problems


@asynccontextmanager
async def _answering() -> AsyncGenerator[int]:
    """Serves HTTP on a port of this machine, which it yields."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "localhost", 0, family=socket.AF_INET)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _redis(url: str) -> list[list[Any]]:
    """Returns name, family, kind and address of the server; none if its name is unknown."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return [["Redis", socket.AF_UNIX, socket.SOCK_STREAM, unquote(parts.path)]]
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_LOOKUP_SECONDS):
            look_up = asyncio.get_running_loop().getaddrinfo
            found = await look_up(parts.hostname or "localhost", parts.port or 6379, type=socket.SOCK_STREAM)
        return [["Redis", family, kind, address] for family, kind, _, _, address in found]
    return []
