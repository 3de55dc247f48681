"""A run that waits gives its one slot back, however many things it waits for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from deputize.shared.connection import Pipe
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.store import WRITING, RunStore
from deputize.worker.emit import Emitter
from deputize.worker.run_context import RunContext


class Slots:
    """How many slots are given back at the moment."""

    def __init__(self) -> None:
        self.free = 0

    @contextmanager
    def waiting(self) -> Generator[None]:
        self.free += 1
        try:
            yield
        finally:
            self.free -= 1


async def test_a_run_waits_once_however_many_waits_it_has() -> None:
    server, slots, seen = FakeServer(), Slots(), list[Any]()
    redis, writing = (FakeAsyncRedis(server=server, decode_responses=True) for _ in range(2))
    store, request = RunStore(redis, 60), DelegationRequest(task="do it")
    id = (await store.accept([(new_id(), request, request.limits)], 30))[0].id
    claim = await store.claim(id, "token", "worker-1", 10)
    assert claim is not None
    async with Pipe(writing, WRITING) as pipe:
        emit = Emitter(pipe, claim, [], lambda: None)
        run = RunContext.of(claim, emit, free_slot=slots.waiting)

        async def look() -> None:
            await emit.settled()
            seen.append((slots.free, (await store.get(id)).status))

        async def stopped() -> None:
            with run.waiting():
                await look()
                raise ValueError("stopped")

        for _ in range(2):
            with run.waiting():
                await look()
                with pytest.raises(ValueError, match="stopped"):
                    await stopped()
                await look()
            await look()
        emit.close()
    assert seen == [(1, "waiting"), (1, "waiting"), (1, "waiting"), (0, "running")] * 2
    await redis.aclose()
    await writing.aclose()
