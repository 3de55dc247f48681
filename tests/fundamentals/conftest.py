"""What the chapters share: this machine's stack (Redis, the API and one worker), started once, and its clients."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from deputize import Orchestrator
from deputize.orchestrator.home import StackInfo
from deputize.orchestrator.stack import stack_in_use
from deputize.shared.settings import Settings
from tests.network.plain_http import PLAIN_HTTP
from tests.processes.leaks import descendants, kept, stacks
from tests.waiting import until


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def settings() -> AsyncIterator[Settings]:
    """Settings of a home whose stack runs until the last chapter has ended."""
    before = descendants()
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder, pytest.MonkeyPatch.context() as variables:
        # Where this user's own files lie; the chapter about MCP puts an mcp.json there.
        variables.setenv("XDG_CONFIG_HOME", folder)
        settings = Settings.load(
            environ={},
            home=Path(folder) / "home",
            model="scripted",
            scripts=tempfile.gettempdir(),
            permission_timeout_seconds=0,
        )
        kept.add(folder)
        async with stack_in_use(settings) as stack:
            stacks.add(stack.pid)
            yield settings
        stacks.remove(stack.pid)
        await until(lambda: descendants() - kept <= before)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def stack(settings: Settings) -> AsyncIterator[StackInfo]:
    """The address of the stack and its token."""
    async with stack_in_use(settings) as stack:
        yield stack


@pytest.fixture
async def orchestrator(settings: Settings) -> AsyncIterator[Orchestrator]:
    """The Python client."""
    async with Orchestrator(settings) as orchestrator:
        yield orchestrator


@pytest.fixture
async def http(stack: StackInfo) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the HTTP service that sends the token."""
    headers = {"Authorization": f"Bearer {stack.token}"}
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=stack.url, headers=headers, timeout=60) as client:
        yield client
