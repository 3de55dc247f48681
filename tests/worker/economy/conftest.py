"""A worker whose message batches are quick, at an endpoint that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_model import FakeModel
from tests.runs.bench import Bench, open_bench
from tests.worker.economy.killing import QUICK

MODEL = "claude-sonnet-5-5"


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        yield fake


@pytest.fixture
async def bench(fake: FakeModel, redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    settings = {"model_endpoint": fake.variables, "model": MODEL}
    async with open_bench(redis_url, tmp_path / "home", **settings) as bench:
        bench.services.batches.pace = QUICK
        yield bench
