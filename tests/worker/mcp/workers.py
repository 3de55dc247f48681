"""Workers that use the mcp.json of a test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.running import Bench, open_bench


def configure(folder: Path, **servers: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@asynccontextmanager
async def worker(redis_url: str, folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A worker that uses the mcp.json of ``folder``."""
    chosen = {"mcp_config": folder / "mcp.json", "tools": {"mcp_connect_seconds": 60}} | settings
    async with open_bench(redis_url, folder / "home", **chosen) as bench:
        yield bench
