"""A place where foreign tools are played."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.adapters.playing import Theatre


@pytest.fixture
def theatre(redis_url: str, tmp_path: Path) -> Theatre:
    return Theatre(redis_url, tmp_path)
