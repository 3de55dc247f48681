"""`python -m deputize.worker.promises [DIR]`: which promises hold on this machine, as one JSON object.

It is started as a worker is, and asks ``worker/sandbox`` about commands. It ends when its input does: what it has made
is gone by then.
"""

from __future__ import annotations

from ...shared import startup  # noqa: F401  # pyright: ignore[reportUnusedImport] - cheaper imports after it

# isort: split

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...shared.errors import DeputizeError
from ...shared.libc import is_memory_private, keep_memory_private
from ...shared.promises import REPORT, ProjectFacts, Report
from ...shared.settings import Settings, environment
from ..sandbox.bubblewrap import Bubblewrap
from ..sandbox.command import Command
from ..sandbox.project_tools import check_shown, tools_for
from ..sandbox.setup_command import SetupCache
from ..sandbox.trials import REDIS, Canaries, try_commands, try_egress, try_limits

_LOOKUP_SECONDS = 1.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PROGRAMS = {
    "python": "$(command -v python || command -v python3) --version",
    "pytest": "$(command -v python || command -v python3) -m pytest --version",
    **{name: f"{name} --version" for name in ("git", "node", "npm", "cargo", "uv", "make", "gcc")},
    "go": "go version",
    "java": "java -version",
}
_PROJECT_SECONDS = 120


async def find(settings: Settings, canaries: Canaries, directory: Path | None = None) -> Report:
    """Tries all promises at the same time. ``directory`` is a project whose tools commands are to find."""
    report = Report(is_memory_private=is_memory_private())
    async with asyncio.TaskGroup() as together:
        together.create_task(_try_calls(settings, canaries, report))
        together.create_task(_try_commands(settings, canaries, report, directory))
    return report


async def _try_calls(settings: Settings, canaries: Canaries, report: Report) -> None:
    environ = {name: text for name, text in environment().items() if name != "DEPUTIZE_CONFIG"}
    # In a thread, as it takes long, while commands run.
    await asyncio.to_thread(importlib.import_module, ".calls", __package__)
    from .calls import try_calls

    await try_calls(settings, canaries, report, environ)


async def _try_commands(settings: Settings, canaries: Canaries, report: Report, directory: Path | None) -> None:
    try:
        check_shown(settings)
    except DeputizeError as error:
        report.error = str(error)
        return
    switched_off = None if settings.sandbox.enabled else "switched off by DEPUTIZE_SANDBOX"
    report.sandbox = switched_off or await Bubblewrap.selftest(canaries.folder) or ""
    if report.sandbox:
        return
    async with asyncio.TaskGroup() as together:
        together.create_task(_isolation(settings, canaries, report))
        together.create_task(_egress(settings, canaries, report))
        together.create_task(_limits(canaries, report))
        if directory:
            together.create_task(_find_project(settings, directory, canaries, report))


async def _isolation(settings: Settings, canaries: Canaries, report: Report) -> None:
    redis = await _redis(settings.redis_url) if settings.redis_url else []
    with report.attempting("secrets", "files", "network", "kernel"):
        tools = await asyncio.to_thread(tools_for, settings, None)
        await try_commands(Bubblewrap, canaries, report, redis, settings.secrets, tools)


async def _egress(settings: Settings, canaries: Canaries, report: Report) -> None:
    from ..web.egress_proxy import EgressProxy  # its libraries take a while

    async with _answering() as port:
        own = settings.sandbox
        hosts = ["localhost", *own.allowed_hosts]
        private = [*settings.tools.private_hosts, f"localhost:{port}"]
        reach = EgressProxy("sandbox.allowed_hosts", hosts, own.network_bytes, private_hosts=private)
        other = next((address[1] for name, *_, address in canaries.servers if name.endswith("127.0.0.1")), 1)
        others = [f"http://127.0.0.1:{other}/", f"http://localhost:{other}/", "http://169.254.169.254/"]
        with report.attempting("network"):
            report.add(await try_egress(Bubblewrap, canaries, reach, f"http://localhost:{port}/", others))


async def _limits(canaries: Canaries, report: Report) -> None:
    with report.attempting("bounds"):
        await try_limits(Bubblewrap, canaries, report)


@asynccontextmanager
async def _answering() -> AsyncGenerator[int]:
    """Serves HTTP on a port of this machine, which it yields."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1 << 16)
            writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "localhost", 0, family=socket.AF_INET)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _redis(url: str) -> list[list[Any]]:
    """Returns name, family, kind and address of the server; none if its name is unknown."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return [[REDIS, socket.AF_UNIX, socket.SOCK_STREAM, unquote(parts.path)]]
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_LOOKUP_SECONDS):
            look_up = asyncio.get_running_loop().getaddrinfo
            found = await look_up(parts.hostname or "localhost", parts.port or 6379, type=socket.SOCK_STREAM)
        return [[REDIS, family, kind, address] for family, kind, _, _, address in found]
    return []


async def _find_project(settings: Settings, directory: Path, canaries: Canaries, report: Report) -> None:
    try:
        report.project = await find_project(settings, directory, canaries.workspace("project"))
    except DeputizeError as error:
        report.error = str(error)


async def find_project(settings: Settings, directory: Path, folder: Path) -> ProjectFacts:
    """Asks every program for its version, inside a sandbox over ``folder``. The directory itself is not shown to any.

    Raises ToolError if commands cannot be run.
    """
    tools = tools_for(settings, directory)
    with Bubblewrap(folder, tools=tools) as sandbox:
        programs = await _versions(sandbox)
    is_set_up = await SetupCache(settings).is_kept(tools, directory)
    venv = tools.variables.get("VIRTUAL_ENV")
    return ProjectFacts(venv, [*tools.dependencies], [*tools.notes], programs, is_set_up)


async def _versions(sandbox: Bubblewrap) -> dict[str, str | None]:
    """Returns the first line that each program prints about its version; None if it is not there or does not work."""
    asked = [f"v=$({line} 2>&1) && printf '%s' \"$v\" | head -n 1 >/tmp/{name}" for name, line in _PROGRAMS.items()]
    shown = [f"printf '%s\\n' \"$(cat /tmp/{name} 2>/dev/null)\"" for name in _PROGRAMS]
    script = "\n".join([*(f"({each}) &" for each in asked), "wait", *shown])
    done = await sandbox.run(Command(["bash", "--noprofile", "--norc", "-c", script], _PROJECT_SECONDS))
    lines = (line.strip() or None for line in done.stdout.decode("utf-8", "replace").split("\n"))
    return dict(zip(_PROGRAMS, lines, strict=False))


def _place(settings: Settings) -> Path | None:
    """Returns where the worker's own files lie; None if nothing can be written there."""
    places = (settings.workspaces, settings.home)
    return next((path for path in places if path.is_dir() and os.access(path, os.W_OK | os.X_OK)), None)


async def _while_input_is_open(work: Coroutine[Any, Any, Report]) -> Report:
    """Cancels the work when the input ends: the process that asked has gone."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, task.cancel)
    try:
        return await task
    finally:
        loop.remove_reader(0)


def main() -> int:
    keep_memory_private()
    directory = Path(sys.argv[1]) if sys.argv[1:] else None
    try:
        settings = Settings.load()
        with Canaries(_place(settings)) as canaries:  # removed when no thread uses them any more
            report = asyncio.run(_while_input_is_open(find(settings, canaries, directory)))
    except DeputizeError as error:
        report = Report(error=str(error))
    except asyncio.CancelledError:
        return 1
    sys.stdout.buffer.write(REPORT.dump_json(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
