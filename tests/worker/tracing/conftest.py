"""A worker whose traces are collected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.runs.bench import Bench, open_bench
from tests.runs.collector import Collector, collecting
from tests.runs.nesting import carrying_out


class OpenTraced(Protocol):
    def __call__(self, name: str = "worker-1", **settings: Any) -> AbstractAsyncContextManager[Bench]: ...


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        for name, value in collector.variables.items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
def traced(collector: Collector, redis_url: str, tmp_path: Path) -> OpenTraced:
    """Opens workers that share their files, and carry out what their runs hand over; closed, all spans are sent."""

    @asynccontextmanager
    async def opened(name: str = "worker-1", **settings: Any) -> AsyncIterator[Bench]:
        async with open_bench(redis_url, tmp_path / "home", name=name, **settings) as bench, carrying_out(bench):
            yield bench

    return opened
