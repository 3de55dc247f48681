"""The service from Python: delegate, gather, follow.

async with Orchestrator() as orchestrator:
    result = await orchestrator.delegate("Count the public classes", workspace="/path/to/project")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Self

from orchestrator.delegations import Delegations, open_service
from orchestrator.stack import stack_in_use
from shared.delegation import Delegation, DelegationRequest, ToolAgentResult
from shared.events import Envelope, RunFinished
from shared.settings import Settings

OnEvent = Callable[[Envelope], None]
"""Hears every event of a delegation, text deltas, progress and errors among them (P-22)."""


class Orchestrator:
    """A service in this process. Without ``DEPUTIZE_REDIS_URL`` it uses this machine's stack, or starts one.

    Raises ``Misconfigured`` and ``Unavailable`` on entering; its verbs raise the ``Refused`` tree.
    """

    def __init__(self, settings: Settings | None = None, *, workers: int = 1) -> None:
        self._settings = settings or Settings.load()
        self._workers = workers
        self._exit = AsyncExitStack()
        self._service: Delegations | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        async with AsyncExitStack() as opening:
            if settings.redis_url is None:
                stack = await opening.enter_async_context(stack_in_use(settings, workers=self._workers))
                settings = settings.model_copy(update={"redis_url": stack.redis_url, "local": True})
            assert settings.redis_url is not None
            self._service = await opening.enter_async_context(open_service(settings, settings.redis_url))
            self._exit = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    @property
    def service(self) -> Delegations:
        """All verbs of the service."""
        if self._service is None:
            raise RuntimeError("use it as `async with Orchestrator() as orchestrator:`")
        return self._service

    async def start(self, task: str | DelegationRequest, **fields: Any) -> Delegation:
        """Hands over a piece of work and returns at once. ``fields`` are those of ``DelegationRequest``."""
        return (await self.service.accept(_request(task, fields))).delegation

    async def delegate(
        self, task: str | DelegationRequest, *, on_event: OnEvent | None = None, **fields: Any
    ) -> ToolAgentResult:
        """Hands over a piece of work and waits for its result. Cancelling the wait does not cancel the work."""
        return await self.result((await self.start(task, **fields)).id, on_event)

    async def gather(
        self, requests: Sequence[str | DelegationRequest], *, on_event: OnEvent | None = None, **fields: Any
    ) -> list[ToolAgentResult]:
        """Hands over several pieces of work at once, all or none; gives their results in the order of asking."""
        accepted = await self.service.accept_batch([_request(request, fields) for request in requests])
        return await asyncio.gather(*(self.result(delegation.id, on_event) for delegation in accepted))

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Every event of a delegation, live; ends after ``run_finished``."""
        async with aclosing(self.service.follow(id, after)) as events:
            async for envelope in events:
                yield envelope

    async def result(self, id: str, on_event: OnEvent | None = None) -> ToolAgentResult:
        """Waits for the end of a delegation."""
        async with aclosing(self.service.follow(id)) as events:
            async for envelope in events:
                if on_event:
                    on_event(envelope)
                if isinstance(envelope.event, RunFinished):
                    break
        finished = await self.service.get(id)
        assert finished.result is not None
        return finished.result

    async def cancel(self, id: str) -> Delegation:
        """Asks for the end; idempotent."""
        return await self.service.cancel(id)


def _request(task: str | DelegationRequest, fields: dict[str, Any]) -> DelegationRequest:
    if isinstance(task, DelegationRequest):
        return task
    workspace = fields.get("workspace")
    if isinstance(workspace, str | Path):
        fields = fields | {"workspace": {"kind": "directory", "path": str(Path(workspace).absolute())}}
    return DelegationRequest(task=task, **fields)
