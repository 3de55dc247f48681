"""A claimed delegation over a Redis of its own, for tests of the parts of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.record import Claim
from deputize.shared.runs.store import WRITING, RunStore
from deputize.worker.core.emit import Emitter
from deputize.worker.core.run_context import RunContext


def context_of(claim: Claim, emit: Emitter, **more: Any) -> RunContext:
    """The context of a claimed run."""
    return RunContext.of(claim, emit, **more)


REQUEST = DelegationRequest(task="do it")


@asynccontextmanager
async def claimed(request: DelegationRequest = REQUEST) -> AsyncGenerator[tuple[RunStore, Pipe, Claim]]:
    """The store, the pipe for the run's writes, and its claim."""
    server = FakeServer()
    async with (
        FakeAsyncRedis(server=server, decode_responses=True) as redis,
        FakeAsyncRedis(server=server, decode_responses=True) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        store = RunStore(redis, 60)
        id = (await store.accept([(new_id(), request, request.limits)], 30))[0].id
        claim = await store.claim(id, "token", "worker-1", 10)
        assert claim is not None
        yield store, pipe, claim
