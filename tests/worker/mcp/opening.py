"""MCP servers opened for a toolbench, the way a run opens them, and their tools called the way the loop calls them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from deputize.shared.errors import ToolError
from deputize.worker.mcp.source import McpServers
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.tools.bounded_result import bounded
from tests.toolbench import Toolbench

CONNECT_SECONDS = 60
"""Much more than any server needs, however busy the machine is."""


@dataclass
class Opened:
    """The tools by name, and what was warned of."""

    desk: Toolbench
    tools: dict[str, AnyTool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        tool, context = self.tools[name], self.desk.context()
        try:
            result = await tool.run(context, tool.parse(arguments))
        except ToolError as error:
            result = ToolResult.failed(error)
        return await bounded(result, tool, context)

    def notes(self) -> list[str]:
        """What the raw server wrote down, in order."""
        path = self.desk.root / "notes"
        return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def opened(
    desk: Toolbench,
    servers: Mapping[str, Any],
    *,
    seconds: float = CONNECT_SECONDS,
    patterns: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Opened]:
    """The servers of an mcp.json that the operator named."""
    file = desk.root.parent / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    source = McpServers(file, seconds, {"PATH": os.environ["PATH"]} if environ is None else environ, desk.root.parent)
    found = Opened(desk)
    place = ToolSourceContext(
        "dlg_01k00000000000000000000000", patterns, desk.files, desk.sandbox, found.warnings.append
    )
    async with source.open(place) as tools:
        found.tools = {tool.name: tool for tool in tools}
        found.missing = place.missing
        yield found
