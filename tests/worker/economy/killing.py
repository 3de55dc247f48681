"""Turns of several runs, and processes that send them in message batches until they are killed at some step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from deputize.shared.runs.store import RunStore
from deputize.worker.economy.api import BatchApi
from deputize.worker.economy.sender import BatchSender
from deputize.worker.economy.turns import Collecting, Pace, Turns
from deputize.worker.models.retry import Failure
from tests.contracts.store.records import claimed
from tests.fake_model import FakeModel
from tests.waiting import until
from tests.worker.models.asking import model_of, prompt_of

QUICK = Pace(
    tick=0.01,
    first_look=0.01,
    longest_look=0.02,
    reply=0.01,
    list=0.02,
    doubt=0.3,
    longest_pause=0.01,
    collecting=Collecting(wait_seconds=0.02),
)
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


class Sent:
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

    def sender(self, dies: tuple[int, bool] | None = None, only: str = "") -> BatchSender:
        """Returns one that dies before or after a step: of all steps, or of those with one name."""
        of_api, of_turns = ((only,), ()) if only else (OF_API, STEPS)
        api: Any = Mortal(BatchApi(self.model), of_api, self.steps, dies)
        turns: Any = Mortal(self.turns, of_turns, self.steps, dies)
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


async def run_with_kill(store: RunStore, fake: FakeModel, dies: tuple[int, bool] | None) -> tuple[Sent, bool]:
    """Returns the fleet after all turns were answered, and whether the first process was killed."""
    fleet = Sent(store, fake)
    await fleet.place()
    try:
        await fleet.finish(fleet.sender(dies))
        return fleet, False
    except Killed:
        await fleet.finish(fleet.sender())
        return fleet, True
