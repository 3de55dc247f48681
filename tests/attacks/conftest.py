"""A worker for attacks, started once: as root, and as an ordinary user.

It has small limits and a run under way, which is measured many times a second, so it stays no longer than they need it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.attacks.stage import RUN_A_COMMAND, Stage, open_stage, uid_of
from tests.processes.leaks import descendants, kept, stacks
from tests.waiting import until

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)


async def opened(user: str) -> AsyncIterator[Stage]:
    before = descendants()
    folder = Path(tempfile.mkdtemp(prefix="deputize-", dir="/tmp"))  # those of pytest are closed to other users
    try:
        async with open_stage(folder, uid_of(user)) as stage:
            for tool in RUN_A_COMMAND:  # the first run by each starts what later ones share
                assert "agent" in (await stage.shell("id", tool=tool))[0]
            kept.update(started := descendants() - before)
            stacks.add(stage.pid)  # it may start its standby anew
            yield stage
        kept.difference_update(started)
        stacks.remove(stage.pid)
        await until(lambda: descendants() - kept <= before)
    finally:
        shutil.rmtree(folder)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def root() -> AsyncIterator[Stage]:
    async for stage in opened("root"):
        yield stage


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def ordinary() -> AsyncIterator[Stage]:
    async for stage in opened("ordinary"):
        yield stage


@pytest.fixture(params=USERS)
def stage(request: pytest.FixtureRequest) -> Stage:
    """The worker of that user."""
    return request.getfixturevalue(request.param)
