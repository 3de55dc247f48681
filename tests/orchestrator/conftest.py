"""The front over a service that does only what a test decides, and over the real one on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.delegations import open_service
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.orchestrator.whole import Whole, open_whole


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def url(service: FakeService) -> AsyncIterator[str]:
    async with served(service) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=30) as client:
        yield client


@pytest.fixture
async def whole(redis_url: str, tmp_path: Path) -> AsyncIterator[Whole]:
    async with open_whole(redis_url, tmp_path / "home") as whole:
        yield whole


@pytest.fixture
async def real(redis_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """The API over the real service, without a worker."""
    using = settings(redis_url=redis_url)
    async with (
        served(lambda: open_service(using, redis_url), using) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=10) as client,
    ):
        yield client
