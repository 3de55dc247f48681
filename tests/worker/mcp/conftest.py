"""Servers of tests, and a user's configuration directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runs.toolbench import Toolbench
from tests.worker.mcp.opening import Opened, look_around, opened
from tests.worker.mcp.servers import raw

__all__ = ["look_around"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own configuration directory; no real one is looked into."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home/.config/deputize"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
async def server(desk: Toolbench) -> AsyncIterator[Opened]:
    """The raw server behind its tools, which are called ``mcp__raw__…``."""
    async with opened(desk, {"raw": raw()}) as found:
        yield found
