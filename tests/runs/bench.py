"""A worker without Celery: its real services over a real Redis, so that a test can carry out one delegation."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import Envelope, StepCompleted
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.queue import Ticket, create_app
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES
from deputize.shared.runs.store import RunStore
from deputize.shared.settings import Settings
from deputize.worker.attempts import Attempt
from deputize.worker.celery_pool.process import ProgressEvents
from deputize.worker.core.part import Part
from deputize.worker.models import close_models
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.services import Services, checked_rules, offer_of, open_services
from deputize.worker.standby.process import Standby
from deputize.worker.task import carry_out
from deputize.worker.tools.base import AnyTool
from deputize.worker.tools.builtin import BUILTIN
from deputize.worker.verification.own_checks import CheckKind
from tests.fake_model import FakeModel, Turn
from tests.waiting import until

E = TypeVar("E")


def script(
    folder: Path, *turns: Any, summary: str = "Nothing more to say.", price: dict[str, float] | None = None
) -> str:
    """Writes a script of these turns (a list of blocks, or a whole turn) and returns the model's name that plays it."""
    path = folder / f"script-{new_id()}.json"
    rules = [{"turns": list(turns), "summary": summary}]
    path.write_text(json.dumps({"rules": rules, "price": price, "label": ""}))
    return f"scripted:{path}"


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"call": tool, "arguments": arguments}


def say(text: str) -> dict[str, Any]:
    return {"text": text}


class Bench:
    """One worker's services, and delegations carried out by them, one by one."""

    def __init__(self, services: Services, settings: Settings, sent: list[Ticket]) -> None:
        self.services = services
        self.bus = services.leases.bus
        self.sent = sent
        """Tickets that this worker's janitor has sent."""
        self.settings = settings
        self.store: RunStore = services.store

    async def accept(self, request: DelegationRequest, owner: str = "") -> str:
        limits = request.limits.capped(self.settings.caps)
        return (await self.store.accept([(new_id(), request, limits)], 30, owner=owner))[0].id

    async def run(self, task: str = "do it", **fields: Any) -> ToolAgentResult:
        """Accepts a delegation, carries it out here and returns its result."""
        if isinstance(limits := fields.get("limits"), dict):
            fields["limits"] = Limits(**limits)
        id = await self.accept(DelegationRequest(task=task, **fields))
        await carry_out(self.services, id)
        return await self.result(id)

    async def result(self, id: str) -> ToolAgentResult:
        result = (await self.store.get(id)).result
        assert result is not None
        return result

    async def events(self, run: str | ToolAgentResult) -> list[Envelope]:
        return await self.store.events(run if isinstance(run, str) else run.delegation_id)

    async def seen(self, run: str | ToolAgentResult, *kinds: type[E]) -> list[E]:
        """The events of these kinds."""
        return [each.event for each in await self.events(run) if isinstance(each.event, kinds)]

    async def steps(self, run: str | ToolAgentResult) -> list[Any]:
        """The steps that have ended."""
        return [event.step for event in await self.seen(run, StepCompleted)]

    async def answers(self, id: str) -> list[str]:
        """The results of its calls, as the model read them."""
        history = [json.loads(entry) for entry in (await self.store.conversation(id))[0]]
        blocks = [block for entry in history if entry["role"] == "user" for block in entry["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]

    async def lose(self, id: str) -> None:
        """Leaves the run as a worker that was killed does; this bench's own janitor may be the one that requeues it."""
        await self.store.redis.zadd(LEASES, {id: 1})

        async def is_queued() -> bool:
            await self.store.reap(30)
            return (await self.store.get(id)).status == "queued"

        await until(is_queued)

    async def requeue(self, id: str) -> None:
        """Waits for a ticket of a run that may go on at once: the next look for such runs finds it."""
        if id not in [each.id for each in await self.store.reap(30)]:
            await until(lambda: id in [ticket.id for ticket in self.sent])

    async def interrupt(self, id: str, begun: Callable[[], Any], timeout: float = 60) -> None:
        """Carries out an attempt until it has ``begun`` what it is to be stopped in, and hands it over."""
        running = asyncio.create_task(carry_out(self.services, id))
        await until(begun, timeout)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()


@asynccontextmanager
async def open_bench(
    redis_url: str,
    home: Path,
    *,
    name: str = "worker-1",
    offered: Sequence[AnyTool] = BUILTIN,
    parts: Sequence[Callable[[Attempt], Part]] = (),
    checks: Sequence[CheckKind[Any]] = (),
    **settings: Any,
) -> AsyncGenerator[Bench]:
    """A worker's services with its files below ``home``. ``offered`` are the tools that its runs may have."""
    own = {
        "redis_url": redis_url,
        "home": home,
        "local": True,
        "scripts": tempfile.gettempdir(),
        "permission_timeout_seconds": 0,
    }
    chosen = Settings.load(environ={}, **(own | settings))
    app = create_app(chosen, redis_url)
    sent: list[Ticket] = []
    opening = open_services(
        redis_url,
        offer_of(chosen, sandbox_problem=await Bubblewrap.selftest(), tools=offered),
        name=name,
        concurrency=10,
        rules=checked_rules(chosen, offered),
        send=sent.extend,
        progress=ProgressEvents(app, name),
        standby=Standby(redis_url, chosen.lease_seconds),  # not entered, so it starts no process
    )
    async with opening as services:
        services.parts, services.checks = parts, {kind.name: kind for kind in checks}
        yield Bench(services, chosen, sent)
    app.close()


@asynccontextmanager
async def bench_at(model: FakeModel, redis_url: str, home: Path, **more: Any) -> AsyncGenerator[Bench]:
    """A worker at that endpoint, which has opened its model."""
    endpoint = Settings.load(environ=model.variables).model_endpoint
    async with open_bench(redis_url, home, model_endpoint=endpoint, **more) as bench:
        await bench.services.model(None)  # its client is imported once, which takes seconds of the first run
        yield bench


@asynccontextmanager
async def talking(
    redis_url: str, home: Path, *turns: Turn, offered: Sequence[AnyTool] = BUILTIN
) -> AsyncGenerator[tuple[Bench, FakeModel]]:
    """A worker whose model is an endpoint that plays these turns."""
    async with FakeModel(list(turns)) as fake:
        model = {"model_endpoint": fake.variables, "model": "claude-sonnet-5-5"}
        async with open_bench(redis_url, home, offered=offered, **model) as bench:
            yield bench, fake
            await close_models()


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench
