"""Runs that ask for permission, and a person who answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deputize.shared.delegation import Status
from deputize.shared.permission import PermissionAnswer, PermissionOutcome, PermissionRequest
from deputize.shared.request import ApprovalMode, DelegationRequest
from deputize.shared.runs.permissions import answer, pending
from deputize.shared.wire import now
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, call, open_bench
from tests.waiting import until

WRITE = call("write_file", path="a.txt", content="x\n")


@asynccontextmanager
async def asking_bench(redis_url: str, home: Path, **settings: Any) -> AsyncIterator[Bench]:
    """A worker whose runs ask; a test that has not answered after a minute has failed."""
    settings.setdefault("permission_timeout_seconds", 60)
    async with open_bench(redis_url, home, **settings) as bench:
        yield bench


async def begun(bench: Bench, model: str, **fields: Any) -> tuple[str, asyncio.Task[Any]]:
    """Accepts a delegation that asks before every change, and begins to carry it out here."""
    asked: dict[str, Any] = {"task": "do it", "model": model, "approval_mode": ApprovalMode.ASK}
    id = await bench.accept(DelegationRequest(**asked | fields))
    return id, asyncio.create_task(carry_out(bench.services, id))


async def questions(bench: Bench, number: int = 1) -> Sequence[PermissionRequest]:
    """The pending requests, as soon as there are so many."""

    async def there() -> list[PermissionRequest]:
        found = await pending(bench.store.redis)
        return [kept.request for kept in found] if len(found) == number else []

    return await until(there)


async def answered(bench: Bench, request: PermissionRequest, outcome: str, **fields: Any) -> None:
    given: dict[str, Any] = {"outcome": PermissionOutcome(outcome), "at": now(), "by": "ada"}
    await answer(bench.store.redis, request.permission_id, PermissionAnswer(**given | fields))


async def until_status(bench: Bench, id: str, status: Status) -> None:
    async def there() -> bool:
        return (await bench.store.get(id)).status is status

    await until(there)
