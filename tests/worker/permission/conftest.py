"""A worker whose calls wait for a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.asking import asking_bench
from tests.running import Bench


@pytest.fixture
async def asking(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with asking_bench(redis_url, tmp_path / "home") as bench:
        yield bench
