"""The service's verbs over a dictionary: what tests of the front need to say what happens, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from orchestrator.delegations import AcceptedDelegation, Readiness
from shared.catalog import ToolCard, WorkerCard
from shared.delegation import (
    Delegation,
    DelegationRequest,
    FinalStatus,
    Limits,
    Status,
    TerminationReason,
    ToolAgentResult,
    ToolAgentStep,
)
from shared.errors import KeyReused, NotFound
from shared.events import AnyEvent, Envelope, Event, RunFinished, RunQueued, StepCompleted
from shared.ids import new_id
from shared.runs.store import Page
from shared.wire import now


class FakeService:
    """Does nothing by itself: a test calls ``happen`` and ``finish``."""

    def __init__(self, caps: Limits | None = None) -> None:
        self.caps = caps or Limits(max_turns=200, max_tool_calls=1000, timeout_seconds=86400)
        self.runs: dict[str, Delegation] = {}
        self.kept: dict[str, list[Envelope]] = {}
        self.patches: dict[str, str] = {}
        self.made: dict[tuple[str, str], list[str]] = {}
        """Artifacts: all versions by delegation and name."""
        self.following = 0
        """How many followers are open now."""
        self.waiting = 0
        self.fleet: list[WorkerCard] = []
        self.away: Exception | None = None
        """What the next verbs raise."""
        self._inboxes: set[asyncio.Queue[Envelope]] = set()

    # What a test says

    def happen(self, id: str, event: AnyEvent) -> Envelope:
        kept = self.kept[id]
        seq = len(kept) + 1 if isinstance(event, Event) and event.durable else None
        envelope = Envelope(delegation_id=id, seq=seq, at=now(), attempt=1, event=event)
        if seq:
            kept.append(envelope)
        for inbox in self._inboxes:
            inbox.put_nowait(envelope)
        return envelope

    def finish(self, id: str, reason: TerminationReason = TerminationReason.COMPLETED, **fields: Any) -> Envelope:
        endings: dict[TerminationReason, FinalStatus] = {
            TerminationReason.COMPLETED: Status.SUCCEEDED,
            TerminationReason.CANCELLED: Status.CANCELLED,
        }
        status = endings.get(reason, Status.FAILED)
        result = ToolAgentResult(delegation_id=id, status=status, termination_reason=reason, **fields)
        self.runs[id] = self.runs[id].model_copy(update={"status": status, "finished_at": now(), "result": result})
        return self.happen(id, RunFinished(result=result))

    # The verbs

    async def accept(self, request: DelegationRequest) -> AcceptedDelegation:
        self._check()
        for run in self.runs.values():
            if request.idempotency_key and run.request.idempotency_key == request.idempotency_key:
                if run.request != request:
                    raise KeyReused("the key stands for another body")
                return AcceptedDelegation(run, True)
        run = Delegation(
            id=new_id(),
            status=Status.QUEUED,
            created_at=now(),
            request=request,
            effective_limits=request.limits.capped(self.caps),
        )
        self.runs[run.id] = run
        self.kept[run.id] = []
        self.happen(run.id, RunQueued(request=request))
        return AcceptedDelegation(run, False)

    async def accept_batch(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        return [(await self.accept(request)).delegation for request in requests]

    async def get(self, id: str, wait: float = 0) -> Delegation:
        run = self._known(id)
        if wait and not run.status.finished:
            self.waiting += 1
            try:
                async with asyncio.timeout(wait):
                    async for _ in self.follow(id):
                        pass
            except TimeoutError:
                pass
            finally:
                self.waiting -= 1
        return self.runs[id]

    async def list(
        self, *, status: Status | None, session: str | None, labels: dict[str, str], limit: int, cursor: str | None
    ) -> Page:
        self._check()
        runs = [
            run
            for run in reversed(self.runs.values())
            if (status is None or run.status == status)
            and (session is None or run.request.session_id == session)
            and labels.items() <= run.request.labels.items()
        ]
        start = [run.id for run in runs].index(cursor) + 1 if cursor else 0
        page = runs[start : start + limit]
        return Page(page, page[-1].id if start + limit < len(runs) else None)

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        self._known(id)
        async with self._inbox() as inbox:
            for envelope in [*self.kept[id]][after:]:
                yield envelope
                if isinstance(envelope.event, RunFinished):
                    return
            while True:
                envelope = await inbox.get()
                if envelope.delegation_id == id:
                    yield envelope
                    if isinstance(envelope.event, RunFinished):
                        return

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        async with self._inbox() as inbox:
            while True:
                yield await inbox.get()

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        self._known(id)
        return self.kept[id][after:]

    async def steps(self, id: str) -> list[ToolAgentStep]:
        return [ToolAgentStep.of(e.event.step) for e in await self.events(id) if isinstance(e.event, StepCompleted)]

    async def patch(self, id: str) -> str:
        self._known(id)
        return self.patches.get(id, "")

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        self._known(id)
        if (versions := self.made.get((id, name))) is None:
            raise NotFound(f"delegation {id} has no artifact {name!r}")
        return versions[(version or len(versions)) - 1]

    async def cancel(self, id: str) -> Delegation:
        if not self._known(id).status.finished:
            self.finish(id, TerminationReason.CANCELLED)
        return self.runs[id]

    async def prune(self, older_than: float | None = None) -> int:
        self._check()
        latest = now() - timedelta(seconds=86400 if older_than is None else older_than)
        gone = [id for id, run in self.runs.items() if run.finished_at and run.finished_at <= latest]
        for id in gone:
            del self.runs[id], self.kept[id]
        return len(gone)

    async def workers(self) -> list[WorkerCard]:
        self._check()
        return self.fleet

    async def tools(self) -> list[ToolCard]:
        self._check()
        return [READ_FILE] if self.fleet else []

    async def ready(self) -> Readiness:
        return Readiness(str(self.away) if self.away else None, len(self.fleet))

    def _check(self) -> None:
        if self.away:
            raise self.away

    def _known(self, id: str) -> Delegation:
        self._check()
        if id not in self.runs:
            raise NotFound(f"there is no delegation {id}")
        return self.runs[id]

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator[asyncio.Queue[Envelope]]:
        inbox: asyncio.Queue[Envelope] = asyncio.Queue()
        self._inboxes.add(inbox)
        self.following += 1
        try:
            yield inbox
        finally:
            self._inboxes.remove(inbox)
            self.following -= 1


READ_FILE = ToolCard(name="read_file", description="Reads a file.", kind="read", effect="pure", parameters={})


def worker_card(**fields: Any) -> WorkerCard:
    return WorkerCard(
        **{
            "name": "worker@one",
            "pid": 7,
            "started_at": now(),
            "running": 0,
            "concurrency": 200,
            "model": "scripted",
            "sandbox": None,
            "tools": ["read_file"],
        }
        | fields
    )
