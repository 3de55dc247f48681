"""MCP servers as tests configure, open and call them, the way a run does, and their processes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ToolError
from deputize.worker.mcp.source import McpServers
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools.base import AnyTool, ToolResult
from deputize.worker.tools.bounded_result import bounded
from tests.processes.leaks import descendants
from tests.runs.bench import Bench, open_bench
from tests.runs.toolbench import Toolbench

_there_before = set[int]()


@pytest.fixture
def look_around() -> None:
    """Other tests' servers, such as Redis, stay up for the whole session."""
    _there_before.clear()
    _there_before.update(descendants())


def started() -> set[int]:
    """The processes that this test has started and that are not yet gone."""
    return descendants() - _there_before


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def configure(folder: Path, **servers: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@asynccontextmanager
async def worker(redis_url: str, folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A worker that uses the mcp.json of ``folder``."""
    chosen = {"mcp_config": folder / "mcp.json", "tools": {"mcp_connect_seconds": 150}} | settings
    async with open_bench(redis_url, folder / "home", **chosen) as bench:
        yield bench


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
