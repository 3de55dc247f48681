"""Senders that are killed at every step: no request is paid for twice, and each turn gets its reply.

Issue 40, point 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from deputize.shared.connection import connect
from deputize.shared.runs.store import RunStore
from deputize.worker.economy.api import BatchApi
from deputize.worker.economy.sender import BatchSender
from deputize.worker.economy.turns import Collecting, Turns
from deputize.worker.models import close_models
from deputize.worker.models.retry import Failure
from tests.contracts.store.records import claimed
from tests.fake_model import FakeModel
from tests.waiting import until
from tests.worker.economy.conftest import QUICK
from tests.worker.models.asking import model_of, prompt_of

PACE = replace(QUICK, lease=0.001, collecting=Collecting(most=3, wait_seconds=0))
TURNS = 5
STEPS = ("lead", "state", "take", "created", "returned", "answer", "ended", "may_be", "now")
OF_API = ("create", "retrieve", "since")


class Killed(Exception):
    """Stands for the end of the process at this step."""


class Mortal:
    """Hands calls on, until the one at which the process is killed: before it, or when it has taken effect."""

    def __init__(self, inner: Any, names: tuple[str, ...], steps: Counter[str], dies: tuple[int, bool] | None) -> None:
        self._inner, self._names, self._steps, self._dies = inner, names, steps, dies

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._counted(found) if name in self._names else found

    def _counted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **more: Any) -> Any:
            self._steps["all"] += 1
            is_last = self._dies is not None and self._steps["all"] == self._dies[0]
            if is_last and self._dies and not self._dies[1]:
                raise Killed
            result = await call(*args, **more)
            if is_last:
                raise Killed
            return result

        return counted


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[RunStore]:
    async with connect(redis_url) as redis:
        yield RunStore(redis, 60)
    await close_models()


class Fleet:
    """Turns of several runs at one endpoint, and the processes that send them, one after the other."""

    def __init__(self, store: RunStore, fake: FakeModel) -> None:
        self.store, self.fake, self.model = store, fake, model_of(fake)
        self.turns = Turns(store.redis, self.model.account)
        self.names: dict[str, str] = {}
        self.steps = Counter[str]()

    async def place(self, count: int = TURNS) -> None:
        for number in range(count):
            claim = await claimed(self.store)
            body = self.model.body(prompt_of(f"task {number} of {claim.id}"), self.model.endpoint(), streamed=False)
            about = {"key": "k", "messages": 1, "tokens": 9, "again": ""}
            name = f"{claim.id}-1-1-token-1"
            await self.turns.place(claim.id, claim.fence, name, body=body, **about)
            self.names[claim.id] = name

    def sender(self, dies: tuple[int, bool] | None = None) -> BatchSender:
        api: Any = Mortal(BatchApi(self.model), OF_API, self.steps, dies)
        turns: Any = Mortal(self.turns, STEPS, self.steps, dies)
        return BatchSender(turns, api, PACE)

    async def results(self) -> list[str]:
        found = [await self.turns.result(id, name) for id, name in self.names.items()]
        return [result["type"] for result in found if result]

    async def finish(self, sender: BatchSender) -> None:
        """Lets the sender work until every turn has its result, or it is killed."""

        async def done() -> bool:
            with suppress(Failure):
                await sender.step()
            return len(await self.results()) == len(self.names)

        await until(done)

    def paid(self) -> Counter[str]:
        """How often each conversation was billed."""
        bodies = [
            asked.body["messages"][0]["content"][0]["text"] for asked in self.fake.journal if asked.path == "batch"
        ]
        return Counter(bodies)


async def run_with_kill(store: RunStore, fake: FakeModel, dies: tuple[int, bool] | None) -> tuple[Fleet, bool]:
    """Returns the fleet after all turns were answered, and whether the first process was killed."""
    fleet = Fleet(store, fake)
    await fleet.place()
    try:
        await fleet.finish(fleet.sender(dies))
        return fleet, False
    except Killed:
        await fleet.finish(fleet.sender())
        return fleet, True


async def test_a_kill_at_any_step_pays_for_nothing_twice(store: RunStore, fake: FakeModel) -> None:
    step, kills = 0, 0
    for step in range(1, 200):
        killed = False
        for after in (False, True):
            fake.journal.clear()
            fake.batches.all.clear()
            fleet, killed = await run_with_kill(store, fake, (step, after))
            assert await fleet.results() == ["succeeded"] * TURNS, (step, after)
            assert set(fleet.paid().values()) == {1}, (step, after)
            assert len(fleet.paid()) == TURNS
            state = await fleet.turns.state()
            assert (dict(state.sending), dict(state.batches)) == ({}, {})
            kills += killed
        if not killed:
            break
    assert kills > 20, step
