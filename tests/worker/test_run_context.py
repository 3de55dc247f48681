"""A run that waits releases its one slot, however many things it waits for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from deputize.worker.emit import Emitter
from deputize.worker.run_context import RunContext
from tests.worker.claimed import claimed


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
    slots, seen = Slots(), list[Any]()
    async with claimed() as (store, pipe, claim):
        emit = Emitter(pipe, claim, [], lambda: None)
        run = RunContext.of(claim, emit, free_slot=slots.waiting)

        async def look() -> None:
            await emit.settled()
            seen.append((slots.free, (await store.get(claim.id)).status))

        async def stopped() -> None:
            with run.waiting("permission"):
                await look()
                raise ValueError("stopped")

        for _ in range(2):
            with run.waiting("permission"):
                await look()
                with pytest.raises(ValueError, match="stopped"):
                    await stopped()
                await look()
            await look()
        emit.close()
    assert seen == [(1, "waiting"), (1, "waiting"), (1, "waiting"), (0, "running")] * 2
