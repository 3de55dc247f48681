"""The service and a worker beside it, over a real Redis, with a model that plays turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.delegation import Delegation, Status, ToolAgentResult
from deputize.shared.request import DelegationRequest
from deputize.shared.settings import Settings
from deputize.worker.task import carry_out
from tests.fake_model import FakeModel, Turn, call
from tests.runs.bench import Bench, open_bench


@dataclass
class Whole:
    """A service, and a worker whose model is the fake one."""

    service: Delegations
    bench: Bench
    model: FakeModel

    async def finished(self, delegation: Delegation) -> ToolAgentResult:
        await carry_out(self.bench.services, delegation.id)
        return await self.bench.result(delegation.id)

    async def queued(self, number: int) -> list[Delegation]:
        """The delegations that nothing works on yet, once there are so many."""
        found = (await self.service.list(status=Status.QUEUED)).items
        return found if len(found) == number else []

    async def continued(self, id: str, text: str) -> Delegation:
        return (await self.service.continue_(id, text)).delegation

    async def first(self, *turns: Turn, **fields: Any) -> ToolAgentResult:
        self.model.script("the first task", turns)
        request = DelegationRequest(task="the first task", **fields)
        return await self.finished((await self.service.create(request)).delegation)

    def sent(self) -> list[dict[str, Any]]:
        """The messages of the last request."""
        return self.model.journal[-1].body["messages"]


@asynccontextmanager
async def open_whole(redis_url: str, home: Path, **settings: Any) -> AsyncGenerator[Whole]:
    async with AsyncExitStack() as opened:
        model = await opened.enter_async_context(FakeModel())
        endpoint = Settings.load(environ=model.variables).model_endpoint
        bench = await opened.enter_async_context(open_bench(redis_url, home, model_endpoint=endpoint, **settings))
        yield Whole(await opened.enter_async_context(open_service(bench.settings, redis_url)), bench, model)


def writes(path: str) -> dict[str, Any]:
    return call("write_file", path=path, content=f"this is {path}\n")
