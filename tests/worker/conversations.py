"""Runs whose model is the scripted endpoint."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from deputize.worker.models import close_models
from deputize.worker.tools import BUILTIN
from deputize.worker.tools.base import AnyTool
from tests.fake_model import FakeModel, Turn
from tests.running import Bench, open_bench


@asynccontextmanager
async def talking(
    redis_url: str, home: Path, *turns: Turn, offered: Sequence[AnyTool] = BUILTIN
) -> AsyncGenerator[tuple[Bench, FakeModel]]:
    async with FakeModel(list(turns)) as fake:
        own = fake.variables
        model = "claude-sonnet-5-5"
        async with open_bench(redis_url, home, offered=offered, model_endpoint=own, model=model) as bench:
            yield bench, fake
            await close_models()
