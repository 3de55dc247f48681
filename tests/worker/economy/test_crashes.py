"""Senders that are killed at every step: no request is paid for twice, and each turn gets its reply.

Issue 40, point 5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deputize.shared.connection import connect
from deputize.shared.runs.store import RunStore
from deputize.worker.models import close_models
from tests.fake_model import FakeModel
from tests.worker.economy.killing import TURNS, run_with_kill


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RunStore]:
    async with connect(redis_url) as redis:
        yield RunStore(redis, 60)
    await close_models()


async def test_a_kill_at_any_step_pays_for_nothing_twice(store: RunStore, fake: FakeModel) -> None:
    step, kills = 0, 0
    for step in range(1, 200):
        killed = False
        for after in (False, True):
            fake.journal.clear()
            fake.batches.all.clear()
            sent, killed = await run_with_kill(store, fake, (step, after))
            assert await sent.results() == ["succeeded"] * TURNS, (step, after)
            assert set(sent.paid().values()) == {1}, (step, after)
            assert len(sent.paid()) == TURNS
            state = await sent.turns.state()
            assert (dict(state.sending), dict(state.batches)) == ({}, {})
            kills += killed
        if not killed:
            break
    assert kills > 20, step
