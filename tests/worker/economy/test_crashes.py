"""Senders that are killed at every step: no request is paid for twice, and each turn gets its reply.

Issue 40, point 5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from deputize.shared.connection import connect
from deputize.shared.runs.store import RunStore
from deputize.worker.models import close_models
from tests.fake_model import FakeModel
from tests.waiting import until
from tests.worker.economy.killing import PACE, TURNS, Killed, Sent, run_with_kill


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


async def killed(sent: Sent, step: str, *, after: bool) -> None:
    """Places turns, and kills the process that sends them before or after its first call of this kind."""
    await sent.place(3)
    with pytest.raises(Killed):
        await sent.finish(sent.sender((1, after), only=step))


async def test_a_batch_of_another_client_with_the_same_size_is_not_taken_for_ours(
    store: RunStore, fake: FakeModel
) -> None:
    sent = Sent(store, fake)
    await killed(sent, "create", after=False)
    content = [{"type": "text", "text": "foreign"}]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    fake.batches.create({"requests": [{"custom_id": f"foreign-{number}", "params": body} for number in range(3)]})
    await sent.finish(sent.sender())
    assert await sent.results() == ["succeeded"] * 3
    assert sorted(sent.paid().values()) == [1, 1, 1, 3], "the other client's, and ours once"


async def test_a_batch_that_the_list_does_not_show_yet_is_waited_for(store: RunStore, fake: FakeModel) -> None:
    sent = Sent(store, fake)
    await killed(sent, "create", after=True)
    fake.batches.hidden = True
    sender = sent.sender()
    sender.pace = replace(PACE, doubt=60)

    async def looked() -> bool:
        await sender.step()
        return fake.batches.lists > 2

    await until(looked)
    assert await sent.results() == []
    fake.batches.hidden = False
    await sent.finish(sender)
    assert set(sent.paid().values()) == {1}
