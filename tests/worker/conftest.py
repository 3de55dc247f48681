"""Fixtures for tests that call tools in a workspace, and for runs that hand over work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.nesting import carrying_out
from tests.running import Bench
from tests.toolbench import bare_desk, desk

__all__ = ["bare_desk", "busy", "desk"]


@pytest.fixture
async def busy(bench: Bench) -> AsyncIterator[Bench]:
    """A bench that carries out what its runs hand over."""
    async with carrying_out(bench):
        yield bench
