"""Every test of a model gets an endpoint, and its connections are closed after it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deputize.worker.models import close_models
from tests.fake_model import FakeModel
from tests.runs.toolbench import bare_desk, desk

__all__ = ["bare_desk", "desk", "fake"]


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server
        await close_models()
