"""A sandbox over a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from tests.worker.sandbox.sandboxes import sandbox_over


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ws"


@pytest.fixture
def sandbox(place: Path) -> Iterator[Bubblewrap]:
    with sandbox_over(place) as sandbox:
        yield sandbox
