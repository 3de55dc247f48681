"""A worker's part that holds MCP servers until it is killed: ``python -m tests.worker.mcp.holding FOLDER``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from deputize.worker.mcp.source import McpServers
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import owner
from deputize.worker.toolkit.sources import ToolSourceContext
from deputize.worker.tools.context import ToolContext
from deputize.worker.workspace.files import Files
from tests.worker.mcp.servers import raw


async def hold(folder: Path) -> None:
    root, file = folder / "workspace", folder / "mcp.json"
    root.mkdir()
    if ids := owner():
        os.chown(root, *ids)
    file.write_text(json.dumps({"mcpServers": {"inside": raw(), "outside": raw(sandbox=False)}}))
    await Bubblewrap.selftest()
    with Files(root, owner=owner()) as files, Bubblewrap(root) as sandbox:
        source = McpServers(file, 60, os.environ, folder)
        async with source.open(ToolSourceContext("", None, files, sandbox, print)) as tools:
            for tool in tools:
                if tool.origin.remote == "leave a child":
                    await tool.run(ToolContext("", "", files, sandbox), {})
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1])))
