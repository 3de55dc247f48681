"""Runs inside runs: scripts with a rule for each task, and a worker that carries out what runs hand over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Delegation
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import children_key
from deputize.shared.runs.store import RunStore
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call
from tests.waiting import until

LIFE = 3600


def by_task(folder: Path, price: dict[str, float] | None = None, **rules: list[Any]) -> str:
    """Writes a script whose rules are chosen by a word of the task, and returns the model's name that plays it."""
    path = folder / f"script-{new_id()}.json"
    written = [{"match": {"contains": word}, "turns": turns, "summary": "No more."} for word, turns in rules.items()]
    path.write_text(json.dumps({"rules": written, "price": price, "label": ""}))
    return f"scripted:{path}"


def delegate(task: str, **arguments: Any) -> dict[str, Any]:
    return call("call_subagent", task=task, **arguments)


@asynccontextmanager
async def carrying_out(bench: Bench) -> AsyncGenerator[list[asyncio.Task[Any]]]:
    """Carries out whatever the bench's runs send tickets for, all at once, as a fleet would."""
    doing: list[asyncio.Task[Any]] = []

    async def take() -> None:
        while True:
            await until(lambda: bench.sent, LIFE)
            doing.append(asyncio.create_task(carry_out(bench.services, bench.sent.pop(0).id)))

    taking = asyncio.create_task(take())
    try:
        yield doing
    finally:
        for task in (taking, *doing):
            task.cancel()
        await asyncio.gather(taking, *doing, return_exceptions=True)


async def begin(bench: Bench, **fields: Any) -> tuple[str, asyncio.Task[Any]]:
    """Accepts a delegation and begins to carry it out here. Returns its id and the task."""
    fields = {"task": "parent", "tools": ["*", "call_subagent"]} | fields
    id = await bench.accept(DelegationRequest.model_validate(fields))
    return id, asyncio.create_task(carry_out(bench.services, id))


async def children_of(store: RunStore, id: str) -> list[Delegation]:
    """In the order of their acceptance."""
    return await store.many(sorted(await store.redis.smembers(children_key(id))))


async def the_child_of(bench: Bench, id: str) -> Delegation:
    """The one child, as soon as its ticket was sent; the ticket is taken."""
    await until(lambda: bench.sent, 20)
    bench.sent.clear()
    (child,) = await children_of(bench.store, id)
    return child
