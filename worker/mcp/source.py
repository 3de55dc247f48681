"""MCP as a tool source: finds the configuration file and reports problems without failing the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path

from ...shared.errors import DeputizeError, Misconfigured
from ...shared.fleet import MCP
from ...shared.log import hide, log
from ...shared.settings import Settings, environment
from ...shared.settings.files import configuration_folder
from ..threads import run_in_thread
from ..toolkit.sources import ToolSourceContext
from ..tools.base import AnyTool
from .config import Config, find_config_file, prefix


class McpServers:
    """The servers of mcp.json. The file is read for every run, so that a change needs no restart.

    ``configured`` is the file named in the settings; a relative path is searched ``here``. ``environ`` supplies the
    file's variables.
    """

    def __init__(self, configured: Path | None, connect_seconds: float, environ: Mapping[str, str], here: Path) -> None:
        self._configured = configured
        self._seconds = connect_seconds
        self._environ = environ
        self._here = here

    @classmethod
    def of(cls, settings: Settings) -> list[McpServers]:
        """One source, or none where MCP is switched off."""
        if settings.tools.enable_mcp is False:
            return []
        return [cls(settings.mcp_file, settings.tools.mcp_connect_seconds, environment(), Path.cwd())]

    @asynccontextmanager
    async def open(self, context: ToolSourceContext) -> AsyncGenerator[Sequence[AnyTool]]:
        """Yields the tools of all servers that connect in time; warns about the others."""
        async with AsyncExitStack() as opened:
            tools: Sequence[AnyTool] = ()
            if context.wants(MCP):
                try:
                    tools = await self._load(context, opened)
                except (DeputizeError, OSError, ValueError, RecursionError) as error:  # the run continues without them
                    log.info("MCP tools cannot be loaded", exc_info=error)
                    context.add_missing(MCP)
                    context.warn(f"Failed to load MCP tools: {error}")
            yield tools

    async def _load(self, context: ToolSourceContext, opened: AsyncExitStack) -> Sequence[AnyTool]:
        try:
            own = configuration_folder(self._environ)
            found = find_config_file(self._configured, self._here, own)
        except Misconfigured as error:
            context.add_missing(MCP)
            context.warn(str(error))
            return ()
        if found is None:
            return ()
        config = await run_in_thread(Config.read, found, self._environ, context.files.root)
        for name, problem in config.problems.items():
            if context.wants(prefix(name)):
                context.add_missing(prefix(name))
                context.warn(problem)
        wanted = [server for server in config.servers if context.wants(prefix(server.name))]
        for remark in (each for server in wanted for each in config.remarks.get(server.name, ())):
            context.warn(remark)
        secrets = [secret for server in wanted for secret in server.secrets]
        hide(secrets)  # a server's messages may be logged, and they may quote its secrets
        context.hide(secrets)
        tools: Sequence[AnyTool] = ()
        if wanted:
            await asyncio.to_thread(import_module, "deputize.worker.mcp.tools")
            from .tools import RunScope, serving  # now that the SDK is loaded, off the event loop

            caller = RunScope(context.files, context.sandbox, self._environ, context.read_only)
            tools = await opened.enter_async_context(serving(wanted, caller, self._seconds, context))
        if not tools:
            context.warn("No available MCP tools found")
        servers = list(dict.fromkeys(str(tool.origin.server) for tool in tools))
        log.info("%d MCP tools of %s, from %s", len(tools), ", ".join(servers) or "no server", found)
        return tools
