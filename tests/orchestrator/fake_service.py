"""The service's verbs over a dictionary: what tests of the front need to say what happens, and when.

``tests/contracts/service`` holds it to what the service does. It checks no request: what is refused is the
service's own business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from deputize.orchestrator.continuation import continued_request, merge_request, repeated_request
from deputize.orchestrator.operations import AcceptedDelegation, MergeReport, PageOf
from deputize.orchestrator.request_checks import check_upload
from deputize.orchestrator.review_order import in_order_of_review
from deputize.orchestrator.stack import none_takes_work
from deputize.orchestrator.uploads import AcceptedUpload, receive
from deputize.orchestrator.workspace_files import FileList, OpenedFile, list_files, open_file
from deputize.shared.compound_requests import MergeRequest
from deputize.shared.delegation import Delegation, FinalStatus, Status, TerminationReason, ToolAgentResult, Usage
from deputize.shared.disk_usage import DiskUsage, Kept, Pruned
from deputize.shared.errors import Conflict, InboxFull, KeyReused, NotFound, TooLarge
from deputize.shared.events import AnyEvent, Envelope, Event, RunFinished, RunQueued, StepCompleted, TurnStarted
from deputize.shared.facts import MergeConflict, Verification
from deputize.shared.fleet import ToolCard, WorkerCard, own_version
from deputize.shared.ids import new_id
from deputize.shared.kept_step import ToolAgentStep
from deputize.shared.limits import Limits
from deputize.shared.message import MAX_UNREAD, Message, MessageMode, SentMessage
from deputize.shared.proof.file import Proof
from deputize.shared.request import MAX_BATCH, ArchiveWorkspace, DelegationRequest, Deliver
from deputize.shared.runs.cost import Bill, CostReport, added_up, bill_of
from deputize.shared.runs.disk import chosen
from deputize.shared.runs.messages import received
from deputize.shared.runs.record import not_found
from deputize.shared.runs.record_lists import brief, matches
from deputize.shared.runs.store import REUSED
from deputize.shared.settings import Settings
from deputize.shared.status_counts import StatusCounts
from deputize.shared.wire import now
from tests.orchestrator.fake_fleet import FakeFleet
from tests.orchestrator.fake_permissions import FakePermissions
from tests.orchestrator.fake_schedules import FakeSchedules
from tests.orchestrator.fake_webhooks import FakeWebhooks


class FakeService(FakeFleet, FakeSchedules, FakePermissions, FakeWebhooks):
    """Does nothing by itself: a test calls ``happen`` and ``finish``."""

    def __init__(self, caps: Limits | None = None) -> None:
        self.caps = caps or Limits(max_turns=200, max_tool_calls=1000, timeout_seconds=86400)
        self.runs: dict[str, Delegation] = {}
        self.kept: dict[str, list[Envelope]] = {}
        self.patches, self.proofs = dict[str, str](), dict[str, str | None]()
        self.inboxes: dict[str, list[Message]] = {}
        """The messages that were sent, all of them unread."""
        self.made: dict[tuple[str, str], list[str]] = {}
        """Artifacts: all versions by delegation and name."""
        self.notified, self.first_try = {}, {}
        """Notifications by delegation."""
        self.workspaces = Path("/nonexistent")  # of delegations
        self.conflicts, self.left_out = list[MergeConflict](), list[str]()
        self.asked_to_deliver: list[Deliver | None] = []
        """What excludes each other in every merge."""
        self._followers = [0]  # of all callers
        """How many followers are open now."""
        self.waiting, self.money = 0, dict[str, Any]()
        self.fleet: list[WorkerCard] = []
        self.announced: list[ToolCard] = [READ_FILE]
        """The tools of the fleet, once there is one."""
        self._owner, self._is_confined = "", False
        self._owners: dict[str, str] = {}
        """Whose idempotency key it was, by delegation."""
        super().__init__()
        self._inboxes: set[asyncio.Queue[Envelope]] = set()

    @property
    def following(self) -> int:
        return self._followers[0]

    def of(self, owner: str, *, is_confined: bool = False) -> Self:
        own = copy(self) if owner else self
        own._owner, own._is_confined = owner, is_confined
        return own

    def _is_own(self, run: Delegation) -> bool:
        return not self._is_confined or (run.owner or "") == self._owner

    def happen(self, id: str, event: AnyEvent) -> Envelope:
        """Lets a worker have the delegation, if none has it yet, and say this of it."""
        self.begin(id)
        if isinstance(event, TurnStarted):
            progress = self.runs[id].progress.model_copy(update={"turn": event.turn})
            self.runs[id] = self.runs[id].model_copy(update={"progress": progress})
        return self._say(id, event)

    def begin(self, id: str) -> None:
        if self.runs[id].status is Status.QUEUED:
            begun = {"status": Status.RUNNING, "waits_for": [], "attempt": 1, "worker": "worker-1", "started_at": now()}
            self.runs[id] = self.runs[id].model_copy(update=begun)

    def _say(self, id: str, event: AnyEvent) -> Envelope:
        kept = self.kept[id]
        seq = len(kept) + 1 if isinstance(event, Event) and event.durable else None
        envelope = Envelope(delegation_id=id, seq=seq, at=now(), attempt=self.runs[id].attempt, event=event)
        if seq:
            kept.append(envelope)
        for inbox in self._inboxes:
            inbox.put_nowait(envelope)
        return envelope

    def finish(self, id: str, reason: TerminationReason = TerminationReason.COMPLETED, **fields: Any) -> Envelope:
        """Ends a run. Its checks, if it has some, have verified the result unless ``fields`` has another verdict."""
        endings: dict[TerminationReason, FinalStatus] = {
            TerminationReason.COMPLETED: Status.SUCCEEDED,
            TerminationReason.CANCELLED: Status.CANCELLED,
            TerminationReason.WRAPPED_UP: Status.CANCELLED,
        }
        asked = self.runs[id].request
        checked = {"verdict": "verified", "require": asked.require} if asked.verify else {}
        found = Verification.model_validate(checked | dict(fields.pop("verification", {})))
        status = endings.get(reason, Status.FAILED)
        if status is Status.SUCCEEDED and not found.is_met:
            status = Status.FAILED
        result = ToolAgentResult(
            delegation_id=id, status=status, termination_reason=reason, verification=found, **fields
        )
        ended = {"status": status, "waits_for": [], "finished_at": now(), "result": result}
        self.runs[id] = self.runs[id].model_copy(update=ended)
        return self._say(id, RunFinished(result=result))

    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        self.check()
        return await receive(content, Settings(workspace_root=self.workspaces), sha256, self._owner)

    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        self.check()
        if isinstance(request.workspace, ArchiveWorkspace):
            check_upload(request.workspace.upload, Settings(workspace_root=self.workspaces), None)
        if (held := self._held(request)) is not None:
            return AcceptedDelegation(held, True)
        limits = request.limits.capped(self.caps)
        run = Delegation(
            id=new_id(),
            status=Status.QUEUED,
            created_at=now(),
            owner=self._owner or None,
            request=request,
            effective_limits=limits,
            waits_for=[*dict.fromkeys(each.id for each in request.after)],
        )
        self.runs[run.id] = run
        self.kept[run.id] = []
        self._owners[run.id] = self._owner
        self._say(run.id, RunQueued(request=request))
        return AcceptedDelegation(run, False)

    def _held(self, request: DelegationRequest) -> Delegation | None:
        owned = [self.runs[id] for id, owner in self._owners.items() if owner == self._owner and id in self.runs]
        for run in owned if request.idempotency_key else ():
            if run.request.idempotency_key == request.idempotency_key:
                if run.request != request:
                    error = {"pointer": "/idempotencyKey", "detail": REUSED["key_reused"]}
                    raise KeyReused(f"this idempotency key was {error['detail']}; send a new key", [error])
                return run
        return None

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        self.check()
        if len(requests) > MAX_BATCH:
            raise TooLarge(f"a batch holds at most {MAX_BATCH} requests, this one has {len(requests)}; send several")
        for request in requests:
            self._held(request)
        return [(await self.create(request)).delegation for request in requests]

    async def get(self, id: str, wait: float = 0) -> Delegation:
        run = self._known(id)
        if wait and not (run.status.finished or run.paused):
            self.waiting += 1
            try:
                async with asyncio.timeout(wait):
                    async for _ in self.follow(id):
                        pass
            except TimeoutError:
                pass
            finally:
                self.waiting -= 1
        return self.with_pending(self.runs[id])

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
        parent: str | None = None,
        for_review: bool = False,
    ) -> PageOf:
        self.check()
        rest = [run for id, run in sorted(self.runs.items(), reverse=True) if cursor is None or id < cursor]
        rest = [run for run in rest if parent is None or run.request.parent_id == parent]
        runs = [
            brief(self.with_pending(run))
            for run in rest
            if self._is_own(run) and matches(run, status=status, session=session, labels=labels or {})
        ]
        if for_review:
            found = in_order_of_review(runs)[:limit]
            return PageOf(items=[each for each, _ in found], reasons=[reason for _, reason in found])
        return PageOf(items=runs[:limit], next_cursor=runs[limit - 1].id if len(runs) > limit else None)

    async def counts(self) -> StatusCounts:
        self.check()
        paused = sum(run.paused for run in self.runs.values())
        return StatusCounts(**Counter(run.status.value for run in self.runs.values()), paused=paused)

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        self._known(id)
        async with self._inbox() as inbox:
            for envelope in [*self.kept[id]][after:]:
                yield envelope
                if isinstance(envelope.event, RunFinished):
                    return
            while not self.runs[id].status.finished or not inbox.empty():
                envelope = await inbox.get()
                if envelope.delegation_id == id:
                    yield envelope
                    if isinstance(envelope.event, RunFinished):
                        return

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        async with self._inbox() as inbox:
            while True:
                envelope = await inbox.get()
                if envelope.seq is not None:
                    yield envelope

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        self._known(id)
        return self.kept[id][after:]

    async def steps(self, id: str) -> list[ToolAgentStep]:
        return [ToolAgentStep.of(e.event.step) for e in await self.events(id) if isinstance(e.event, StepCompleted)]

    async def patch(self, id: str) -> str:
        self._known(id)
        return self.patches.get(id, "")

    async def proof(self, id: str) -> Proof:
        return Proof.of(await self.get(id), await self.patch(id), self.proofs.get(id))

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        self._known(id)
        if (versions := self.made.get((id, name))) is None:
            names = ", ".join(sorted(name for of, name in self.made if of == id))
            there = f"it has {names}" if names else "it has none; they are kept when a delegation ends"
            raise NotFound(f"delegation {id} has no artifact {name!r}; {there}")
        if (version or 1) > len(versions):
            raise NotFound(
                f"version {version} of artifact {name!r} of delegation {id} is not kept; the latest is {len(versions)}"
            )
        return versions[(version or len(versions)) - 1]

    async def files(self, id: str, *, base: bool = False) -> FileList:
        self._known(id)
        return list_files(self.workspaces, id, base=base)

    async def open_file(self, id: str, path: str, *, base: bool = False) -> OpenedFile:
        self._known(id)
        return open_file(self.workspaces, id, path, base=base)

    async def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        for chunk in (await self.open_file(id, path, base=base)).read():
            yield chunk

    async def cancel(self, id: str) -> Delegation:
        """One that runs ends right after it, as if its worker had heard."""
        before = self._known(id)
        if before.status is Status.QUEUED:
            self.finish(id, TerminationReason.CANCELLED, summary="Cancelled before it was started.", attempts=0)
        elif not before.status.finished:
            asyncio.get_running_loop().call_soon(self._cancelled, id)
        return self.runs[id]

    def _cancelled(self, id: str) -> None:
        if not self.runs[id].status.finished:
            self.finish(id, TerminationReason.CANCELLED)

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        return await self.create(continued_request(self._known(id), text, limits, idempotency_key))

    async def retry(
        self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        return await self.create(repeated_request(self._known(id), idempotency_key, from_turn))

    async def send(
        self, id: str, text: str = "", mode: MessageMode = MessageMode.STEER, *, by: str | None = None
    ) -> SentMessage:
        """One that never ran ends by a request to wrap up; of all others the event is there at once."""
        run, message = self._known(id), Message.new(text, mode, by)
        wraps_up, inbox = mode is MessageMode.WRAP_UP, self.inboxes.setdefault(id, [])
        if wraps_up and (first := next((each for each in inbox if each.mode is mode), None)):
            return SentMessage(message_id=first.message_id)
        if run.status.finished:
            raise Conflict(f"{id} has ended, so nothing reads a message; `deputize continue {id} TEXT` goes on with it")
        if not wraps_up and len(inbox) >= MAX_UNREAD:
            raise InboxFull(
                f"{id} has {MAX_UNREAD} messages that its model has not read; send more after its next turn"
            )
        inbox.append(message)
        self._say(id, received(message))
        if wraps_up and run.status is Status.QUEUED:
            unread = [each for each in inbox if each.text]
            words = "Wrapped up before it was started."
            self.finish(id, TerminationReason.WRAPPED_UP, summary=words, attempts=0, undelivered=unread)
        return SentMessage(message_id=message.message_id)

    async def resume(self, id: str) -> Delegation:
        if self._known(id).status.finished:
            raise Conflict(f"{id} is finished, so it cannot be resumed; `deputize show {id}` has its result")
        self.runs[id] = self.runs[id].model_copy(update={"paused": False})
        return self.runs[id]

    async def deliver(self, id: str, wanted: Deliver | None = None) -> Delegation:
        """What the host would have done: the changes are there, as the branch that was asked for."""
        self.asked_to_deliver.append(wanted)
        delegation = self._known(id)
        if delegation.result is None or delegation.result.git is None:
            raise Conflict(f"{id} did not work on a git repository; `deputize apply` takes its changes over")
        branch = (wanted or delegation.request.deliver or Deliver()).branch_of(id)
        made = delegation.result.git.model_copy(update={"branch": branch, "commit": "c" * 40})
        result = delegation.result.model_copy(update={"git": made})
        self.runs[id] = delegation.model_copy(update={"result": result})
        return self.runs[id]

    async def merge(self, wanted: MergeRequest) -> MergeReport:
        first, *_ = known = [self._known(id) for id in wanted.distinct]
        for each in known:
            if each.result is None:
                raise Conflict(f"{each.id} is {each.status}, so it cannot be merged yet; wait for its end")
        left_out = [] if wanted.with_protected else self.left_out
        report = MergeReport(conflicts=self.conflicts, files=["a.txt"], left_out=left_out)
        if self.conflicts or wanted.dry_run:
            return report
        created = await self.create(merge_request(first.request, wanted))
        return report.model_copy(update={"delegation": created.delegation})

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        self.check()
        age = (86400 if keep_bytes is None else 0) if older_than is None else older_than
        gone = Pruned.of(chosen(self._ended(), age, keep_bytes), dry_run=dry_run)
        for id in () if dry_run else gone.ids:
            del self.runs[id], self.kept[id]
        return gone

    async def metrics(self) -> str:
        self.check()
        return ""

    async def disk(self) -> DiskUsage:
        self.check()
        return DiskUsage.of(self._ended(), 32 << 30)

    def _ended(self) -> list[Kept]:
        return [Kept(id, str(run.finished_at), run.disk_bytes or 0) for id, run in self.runs.items() if run.finished_at]

    async def cost(self, by: str = "day", since: datetime | None = None) -> CostReport:
        self.check()
        bills: list[Bill] = []
        for id, run in self.runs.items():
            if since is None or run.created_at >= since:
                asked, usage = run.request, run.result.usage if run.result else Usage()
                day = f"{run.created_at:%Y-%m-%d}"
                bills.append(bill_of(id, day, asked.model, asked.session_id, asked.labels, usage))
        return added_up(bills, by, since).model_copy(update=self.money)

    async def workers(self) -> list[WorkerCard]:
        self.check()
        return sorted(self.fleet, key=lambda card: card.name)

    async def drain(self, name: str) -> WorkerCard:
        """Its worker has nothing left to hand over."""
        self.check()
        found = next((card for card in self.fleet if card.name == name), None)
        if found is None:
            raise NotFound(f"no worker {name!r} is alive; `deputize workers` lists them")
        drained = found.model_copy(update={"draining": True})
        self.fleet = [drained if card is found else card for card in self.fleet]
        return found

    async def tools(self) -> list[ToolCard]:
        self.check()
        return sorted(self.announced, key=lambda card: card.name) if self.fleet else []

    async def not_ready(self) -> str | None:
        if self.away:
            return str(self.away)
        return none_takes_work(self.fleet)

    def _known(self, id: str) -> Delegation:
        self.check()
        if id not in self.runs or not self._is_own(self.runs[id]):
            raise not_found(id)
        return self.runs[id]

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator[asyncio.Queue[Envelope]]:
        self._inboxes.add(inbox := asyncio.Queue[Envelope]())
        self._followers[0] += 1
        try:
            yield inbox
        finally:
            self._inboxes.remove(inbox)
            self._followers[0] -= 1


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
            "version": own_version(),
        }
        | fields
    )
