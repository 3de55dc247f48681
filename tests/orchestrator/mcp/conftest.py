"""What the MCP SDK leaves behind in a process that lives on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def no_watcher_left_behind(no_task_left_behind: None) -> AsyncIterator[None]:
    """Ends the task in which `sse_starlette` waits for the end of the process: here the server ends before that."""
    yield
    watchers = [task for task in asyncio.all_tasks() if "_shutdown_watcher" in repr(task.get_coro())]
    for task in watchers:
        task.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
