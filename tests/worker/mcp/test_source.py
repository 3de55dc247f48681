"""MCP servers as a source of tools: what a bad file costs, and how they are switched off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.settings import Settings
from deputize.worker.mcp.source import McpServers
from deputize.worker.toolkit.sources import ToolSourceContext
from tests.toolbench import Toolbench
from tests.worker.mcp.configuration import ENVIRON


@asynccontextmanager
async def source(desk: Toolbench, configured: Path | None) -> AsyncIterator[tuple[list[str], ToolSourceContext]]:
    warnings: list[str] = []
    place = ToolSourceContext("", None, desk.files, desk.sandbox, warnings.append)
    async with McpServers(configured, 5, ENVIRON, desk.root.parent).open(place) as tools:
        assert tuple(tools) == ()
        yield warnings, place


@pytest.mark.requirement("S000-019", "S000-024")
async def test_a_configured_file_that_is_not_there_is_warned_of(bare_desk: Toolbench, home: Path) -> None:
    async with source(bare_desk, Path("/nowhere/mcp.json")) as (warnings, place):
        assert warnings == ["MCP config file not found: /nowhere/mcp.json"]
        assert place.may_be_missing("mcp__git__*")
        assert not place.may_be_missing("read_file")


async def test_where_no_file_is_nothing_is_said(bare_desk: Toolbench, home: Path) -> None:
    async with source(bare_desk, None) as (warnings, place):
        assert (warnings, place.missing) == ([], [])


@pytest.mark.requirement("S000-020", "S000-024")
@pytest.mark.parametrize("servers", [{}, {"off": {"command": "x", "disabled": True}}])
async def test_a_file_without_tools_is_warned_of(bare_desk: Toolbench, servers: Any) -> None:
    file = bare_desk.root.parent / "some.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    async with source(bare_desk, file) as (warnings, _):
        assert warnings == ["No available MCP tools found"]


@pytest.mark.requirement("S000-021", "S000-024")
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00", None])
async def test_whatever_goes_wrong_is_warned_of(bare_desk: Toolbench, content: bytes | None) -> None:
    file = bare_desk.root.parent / "some.json"
    file.write_bytes(content or b"")
    if content is None:
        file.write_text('{"mcpServers": ' + "[" * 100_000)
    async with source(bare_desk, file) as (warnings, place):
        (warning,) = warnings
        assert warning.startswith("Failed to load MCP tools: ")
        assert place.may_be_missing("mcp__any")


@pytest.mark.requirement("S000-104")
def test_mcp_is_switched_off_and_on_by_the_settings() -> None:
    assert McpServers.of(Settings.load(environ={"DEPUTIZE_TOOLS_ENABLE_MCP": "false"})) == []
    assert len(McpServers.of(Settings.load(environ={}))) == 1
