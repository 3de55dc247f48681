"""Fixtures for tests that call tools in a workspace, and for runs that hand over work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runs.asking import asking_bench
from tests.runs.bench import Bench
from tests.runs.nesting import carrying_out
from tests.runs.toolbench import bare_desk, desk

__all__ = ["asking", "bare_desk", "busy", "desk"]


@pytest.fixture
async def asking(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench whose calls wait for a person."""
    async with asking_bench(redis_url, tmp_path / "home") as bench:
        yield bench


@pytest.fixture
async def busy(bench: Bench) -> AsyncIterator[Bench]:
    """A bench that carries out what its runs hand over."""
    async with carrying_out(bench):
        yield bench
