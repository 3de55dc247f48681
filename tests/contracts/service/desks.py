"""The service and its fake, and what a test lets happen to their delegations: by a worker's writes, or by saying so."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Artifact, Status, TerminationReason, ToolAgentResult
from deputize.shared.events import AnyEvent, Envelope, Event, ProgressMade, RunFinished
from deputize.shared.fleet import Fleet, ToolCard, WorkerCard
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import channel
from deputize.shared.runs.record import DISK, PROOF, Claim, fields_of
from deputize.shared.runs.store import RECORD, WRITING
from deputize.shared.settings import Settings
from deputize.shared.wire import now
from deputize.worker.core.emit import RunUpdate
from deputize.worker.redis_record import script_call
from tests.orchestrator.fake_service import FakeService

WORKER = "worker-1"
RETENTION = 60
Artifacts = Mapping[tuple[str, int], str]
"""Contents by name and version."""


class Desk(Protocol):
    """A service without workers, and the hand that moves its delegations."""

    service: Delegations

    async def happen(self, id: str, *events: AnyEvent) -> None:
        """Lets a worker have the delegation, if none has it yet, and say this of it."""
        ...

    async def finish(
        self,
        id: str,
        *,
        patch: str = "",
        proof: str | None = None,
        artifacts: Artifacts | None = None,
        disk: int = 0,
        **fields: Any,
    ) -> None:
        """Ends it as completed."""
        ...

    async def announce(self, card: WorkerCard, *tools: ToolCard) -> None: ...


class FakeDesk:
    def __init__(self, service: FakeService) -> None:
        self.fake = service
        self.service = cast("Delegations", service)

    async def happen(self, id: str, *events: AnyEvent) -> None:
        for event in events:
            self.fake.happen(id, event)

    async def finish(
        self,
        id: str,
        *,
        patch: str = "",
        proof: str | None = None,
        artifacts: Artifacts | None = None,
        disk: int = 0,
        **fields: Any,
    ) -> None:
        self.fake.patches[id], self.fake.proofs[id] = patch, proof
        for (name, _), content in sorted((artifacts or {}).items()):
            self.fake.made.setdefault((id, name), []).append(content)
        self.fake.begin(id)
        self.fake.finish(id, **fields)
        self.fake.runs[id] = self.fake.runs[id].model_copy(update={"disk_bytes": disk})

    async def announce(self, card: WorkerCard, *tools: ToolCard) -> None:
        if not self.fake.fleet:
            self.fake.announced = []
        self.fake.fleet.append(card)
        self.fake.announced += tools


class RealDesk:
    """The real service, and a worker's writes without the worker."""

    def __init__(self, service: Delegations, pipe: Pipe, fleet: Fleet) -> None:
        self.service = service
        self._pipe = pipe
        self._fleet = fleet
        self._claims: dict[str, Claim] = {}
        self._seqs: dict[str, int] = {}
        self._writes = Counter[str]()

    async def happen(self, id: str, *events: AnyEvent) -> None:
        claim = await self._claim(id)
        for event in events:
            if isinstance(event, Event) and event.durable:
                await self._write(claim, RunUpdate(events=[self._next(claim, event)]))
            else:
                json = Envelope(delegation_id=id, at=now(), attempt=claim.attempt, event=event).to_json()
                self._pipe.publish(channel(id), json)
        self._pipe.flush()

    async def finish(
        self,
        id: str,
        *,
        patch: str = "",
        proof: str | None = None,
        artifacts: Artifacts | None = None,
        disk: int = 0,
        **fields: Any,
    ) -> None:
        claim, contents = await self._claim(id), artifacts or {}
        result = ToolAgentResult(
            delegation_id=id, status=Status.SUCCEEDED, termination_reason=TerminationReason.COMPLETED, **fields
        )
        kept = {"status": "succeeded", "result": result.to_json(), "finished": now().isoformat(), "patch": patch} | {
            DISK: str(disk)
        }
        kept |= {PROOF: proof} if proof else {}
        versions = {name: max(v for other, v in contents if other == name) for name, _ in contents}
        latest = [Artifact(name=name, version=version, size=0) for name, version in versions.items()]
        last = self._next(claim, RunFinished(result=result))
        await self._write(
            claim, RunUpdate(events=[last], fields=kept, artifacts=fields_of(latest, contents), retention=RETENTION)
        )

    async def announce(self, card: WorkerCard, *tools: ToolCard) -> None:
        await self._fleet.announce(card, list(tools))

    async def _claim(self, id: str) -> Claim:
        if id not in self._claims:
            claim = await self.service.store.claim(id, "token", WORKER, 10)
            assert claim is not None
            self._claims[id], self._seqs[id] = claim, claim.seq
        return self._claims[id]

    def _next(self, claim: Claim, event: AnyEvent) -> tuple[int, str]:
        seq = self._seqs[claim.id] = self._seqs[claim.id] + 1
        envelope = Envelope(delegation_id=claim.id, seq=seq, at=now(), attempt=claim.attempt, event=event)
        return seq, envelope.to_json()

    async def _write(self, claim: Claim, update: RunUpdate) -> None:
        update.number = self._writes[claim.id] = self._writes[claim.id] + 1
        answer = self._pipe.script(RECORD, *script_call(update, claim.id, claim.fence))
        self._pipe.flush()
        assert await answer == "written"


@asynccontextmanager
async def real_desk(redis_url: str, home: Path) -> AsyncGenerator[Desk]:
    settings = Settings(redis_url=redis_url, home=home)
    async with (
        open_service(settings, redis_url) as service,
        connect(redis_url) as redis,
        connect(redis_url) as writing,
        Pipe(writing, WRITING) as pipe,
    ):
        yield RealDesk(service, pipe, Fleet(redis))


async def accepted(service: Delegations, task: str = "do it", **fields: Any) -> str:
    return (await service.create(DelegationRequest(task=task, **fields))).delegation.id


async def listed(service: Delegations, **filters: Any) -> list[str]:
    return [item.request.task for item in (await service.list(**EVERYTHING | filters)).items]


EVERYTHING: dict[str, Any] = {"status": None, "session": None, "labels": {}, "limit": 50, "cursor": None}


def progress(*messages: str) -> list[ProgressMade]:
    return [ProgressMade(message=message) for message in messages]


async def all_of(events: AsyncGenerator[Envelope], into: list[tuple[int | None, str]]) -> None:
    async with aclosing(events):
        async for envelope in events:
            into.append((envelope.seq, envelope.event.type))
