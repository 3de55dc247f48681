"""The service: delegations, their records, and the tickets on the queue, which have only a delegation's id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing, nullcontext
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Self

from ..shared import bus, traceparent
from ..shared.background import beside
from ..shared.compound_requests import MergeRequest
from ..shared.connection import connect
from ..shared.delegation import Delegation, Status
from ..shared.disk_usage import DiskUsage, Pruned
from ..shared.errors import Invalid, TooLarge, Unavailable
from ..shared.events import Envelope, StepCompleted
from ..shared.fleet import Fleet, PreparedEnvironment, ToolCard, WorkerCard
from ..shared.ids import new_id
from ..shared.kept_step import ToolAgentStep
from ..shared.limits import Limits
from ..shared.message import Message, MessageMode, SentMessage
from ..shared.permission import PermissionAnswer, PermissionOutcome, PermissionRequest
from ..shared.proof.file import Proof
from ..shared.queue import Ticket
from ..shared.request import MAX_BATCH, DelegationRequest, Deliver
from ..shared.request_rules import filled_in
from ..shared.runs import disk, messages, permissions, webhook_queue
from ..shared.runs.capacity import EndpointCapacity, capacities
from ..shared.runs.cost import CostReport, check_group
from ..shared.runs.keys import record_key
from ..shared.runs.losses import StoreLoss, losses_of
from ..shared.runs.notification import Notification
from ..shared.runs.record import PROOF
from ..shared.runs.record_lists import RecordLists
from ..shared.runs.replicas import Unacknowledged, replicas_of
from ..shared.runs.spend_report import check_caps, money_report
from ..shared.runs.store import IDEMPOTENCY_SECONDS, RunStore, resume
from ..shared.schedule import Schedule
from ..shared.settings import Settings
from ..shared.status_counts import StatusCounts
from ..shared.webhooks import NotificationType, Webhook
from ..shared.wire import now
from . import audit_log, schedule_operations
from .audit_log import AuditPage, AuditRecord
from .continuation import check_continued, continued_request, planned_merge, repeated_request
from .delivery import attest, delivered, note_delivered, notes_of
from .dispatcher import Dispatcher
from .guards import guarded, redis_guard
from .home import is_full, no_space
from .metrics.exposition import exposition
from .operations import AcceptedDelegation, MergeReport, PageOf, Service
from .owner_caps import published_caps
from .ownership import Ownership
from .redis_server import check_room
from .request_checks import check_after, check_arguments, check_deadlines, check_requests
from .review_order import MOST, REVIEWED, in_order_of_review
from .stack import none_takes_work
from .uploads import AcceptedUpload, receive
from .workspace_files import FileList, OpenedFile, list_files, open_file

COPIES = 3
"""How often a request is in the log of the record's store: in the record, in an event and in the conversation."""
LOCAL_RECHECK_SECONDS = 1.0
"""Seconds without news after which a stream of this machine's stack reads its Redis, which may have stopped."""


def notice(task: str, webhook: Any, label: str, value: str, key: str | None = None) -> DelegationRequest:
    """Returns a request that is never begun: its webhook is notified of its end."""
    given = {"task": task, "webhook": webhook, "labels": {label: value}, "idempotency_key": key}
    return DelegationRequest.model_validate({**given, "model": "scripted", "limits": Limits(max_turns=1)})


def webhook_test(webhook: Webhook) -> DelegationRequest:
    """Returns the notice that tests a webhook."""
    return notice("Test the webhook", webhook.model_copy(update={"events": ["delegation.finished"]}), "webhook", "test")


@guarded
class Delegations(Service):
    """The service itself, over one Redis."""

    def __init__(
        self, settings: Settings, store: RunStore, follower: bus.Bus, fleet: Fleet, dispatcher: Dispatcher
    ) -> None:
        self._settings = settings
        self.store = store
        self._lists = RecordLists(store)
        self._bus = follower
        self._fleet = fleet
        self._dispatcher = dispatcher
        self.ownership = Ownership(store.redis)

    def of(self, owner: str, *, is_confined: bool = False) -> Self:
        """Returns the operations for callers of an owner, whose idempotency keys and uploads are its own.

        If they are confined, what belongs to another owner does not exist.
        """
        own = copy(self)
        own.ownership = replace(self.ownership, owner=owner, is_confined=is_confined)
        return own

    async def _beside(self, id: str) -> Self:
        return self.of(await self.ownership.of(id), is_confined=self.ownership.is_confined)

    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        return await receive(content, self._settings, sha256, self.ownership.owner)

    async def create(self, request: DelegationRequest, *, key_seconds: int = IDEMPOTENCY_SECONDS) -> AcceptedDelegation:
        (accepted,) = await self._accept([request], key_seconds=key_seconds)
        return accepted

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        if delegation:
            await self.ownership.check(delegation)
        found = [kept.request for kept in await permissions.pending(self.store.redis, delegation)]
        return await self.ownership.own(found, [each.delegation_id for each in found])

    async def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome,
        *,
        reason: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> None:
        await self.ownership.check_permission(id)
        given = None if arguments is None else dict(arguments)
        answer = PermissionAnswer(outcome=outcome, reason=reason, arguments=given, by=by, at=now())
        await check_arguments(self.store.redis, self._fleet, id, arguments)
        await permissions.answer(self.store.redis, id, answer, self.store.replicas)

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        request = continued_request(await self.get(id), text, limits, idempotency_key)
        return await (await self._beside(id)).create(request)

    async def retry(
        self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        request = repeated_request(await self.get(id), idempotency_key, from_turn)
        return await (await self._beside(id)).create(request)

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        if len(requests) > MAX_BATCH:
            raise TooLarge(f"a batch holds at most {MAX_BATCH} requests, this one has {len(requests)}; send several")
        accepted = await self._accept(requests, batch=True) if requests else []
        return [each.delegation for each in accepted]

    def _check_room(self, requests: Sequence[DelegationRequest]) -> None:
        check_room(self._settings.home, sum(len(request.to_json().encode()) for request in requests) * COPIES)

    async def _check(self, requests: Sequence[DelegationRequest], *, batch: bool) -> None:
        """Raises the error of requests that cannot be carried out, or name what their owner does not have."""
        owner = self.ownership.only
        tools = await self._fleet.tools() if any(request.tools for request in requests) else []
        # In a thread: a thousand requests, or a file system that hangs, must not block other callers.
        await asyncio.to_thread(check_requests, requests, tools, self._settings, batch=batch, owner=owner)
        if self._settings.local:
            await asyncio.to_thread(self._check_room, requests)
        for request in requests:
            await self.ownership.check(*filter(None, [request.builds_on, *request.merges]))
            await check_continued(self.store, request, self._settings)
        await check_after(self.store.redis, requests, batch=batch, owner=owner)
        await check_deadlines(self.store.redis, requests, batch=batch, owner=self.ownership.owner)

    async def _accept(
        self,
        requests: Sequence[DelegationRequest],
        *,
        batch: bool = False,
        key_seconds: int = IDEMPOTENCY_SECONDS,
        **ends: Any,
    ) -> list[AcceptedDelegation]:
        """Checks the requests, writes the records, then sends the tickets. A written record is never lost.

        ``ends`` are ``ended`` and ``kind`` of ``RunStore.accept``: what ends at once costs nothing, so no cap holds.
        """
        asked, requests = requests, [filled_in(request, self._settings) for request in requests]
        await self._check(requests, batch=batch)
        if not ends:
            await check_caps(self.store.redis, self._settings.spend, requests, self.ownership.owner)
        new = [(new_id(), request, request.limits.capped(self._settings.caps)) for request in requests]
        try:
            accept = partial(self.store.accept, new, self._settings.claim_seconds, asked=asked, **ends)
            answers = await accept(
                owner=self.ownership.owner,
                confined=self.ownership.is_confined,
                temporary=self._settings.temporary,
                webhook=self._settings.webhook.default,
                trace=traceparent.current(),
                key_seconds=key_seconds,
            )
        except Unacknowledged:
            await self._withdraw(new)
            raise
        tickets = [
            Ticket(id, request.title, request.priority)
            for (id, request, _), answer in zip(new, answers, strict=True)
            if not (ends or answer.replayed or request.after)  # a janitor sends it when that may start
        ]
        await self._dispatcher.send(tickets)
        found = zip(await self.store.many([answer.id for answer in answers]), answers, strict=True)
        return [AcceptedDelegation(delegation, answer.replayed) for delegation, answer in found]

    async def _withdraw(self, new: Sequence[tuple[str, DelegationRequest, Limits]]) -> None:
        """Cancels those that would be done twice when their caller sends them again: without a key to find them by."""
        for id, request, _ in new:
            if request.idempotency_key is None:
                await self.store.cancel(id)

    async def get(self, id: str, wait: float = 0) -> Delegation:
        found = await self._found(id)
        if found.status.finished or found.paused or wait <= 0:
            return found
        try:
            async with asyncio.timeout(wait), aclosing(bus.follow(self._bus, self.store, id)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            pass
        return await self._found(id)

    async def _found(self, id: str) -> Delegation:
        return (await permissions.with_pending(self.store.redis, [await self.store.get(id)]))[0]

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
        wanted: dict[str, Any] = {"session": session, "labels": labels or {}, "parent": parent}
        wanted["owner"] = self.ownership.only
        if for_review:
            if cursor:
                raise Invalid.of([{"pointer": "/cursor", "detail": "a list for a review has one page; leave it out"}])
            return await self._for_review(status, limit, wanted)
        page = await self._lists.list(status=status, limit=limit, cursor=cursor, **wanted)
        items = await permissions.with_pending(self.store.redis, page.items)
        return PageOf(items=items, next_cursor=page.next_cursor)

    async def _for_review(self, status: Status | None, limit: int, wanted: Mapping[str, Any]) -> PageOf:
        ended = [each for each in REVIEWED if status in (None, each)]
        pages = [await self._lists.list(status=each, limit=MOST, cursor=None, **wanted) for each in ended]
        found = in_order_of_review(each for page in pages for each in page.items)[:limit]
        return PageOf(items=[each for each, _ in found], reasons=[reason for _, reason in found])

    async def counts(self) -> StatusCounts:
        return await self._lists.counts(self.ownership.only)

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        recheck = LOCAL_RECHECK_SECONDS if self._settings.local else bus.RECHECK_SECONDS
        following = bus.follow(self._bus, self.store, id, after, recheck)
        async with redis_guard(self._settings), aclosing(following) as events:
            await self.ownership.check(id)
            async for envelope in events:
                yield envelope

    async def follow_all(self) -> AsyncGenerator[Envelope]:
        async with aclosing(bus.follow_all(self._bus)) as events, aclosing(self.ownership.own_events(events)) as own:
            async for envelope in own:
                yield envelope

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        return await self.store.events(id, after)

    async def steps(self, id: str) -> list[ToolAgentStep]:
        finished = (envelope.event for envelope in await self.events(id))
        return [ToolAgentStep.of(event.step) for event in finished if isinstance(event, StepCompleted)]

    async def patch(self, id: str) -> str:
        return await self.store.patch(id)

    async def proof(self, id: str) -> Proof:
        delegation, patch = await self.store.get(id), await self.store.patch(id)
        return Proof.of(delegation, patch, await self.store.redis.hget(record_key(id), PROOF))

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        return await self.store.artifact(id, name, version)

    async def files(self, id: str, *, base: bool = False) -> FileList:
        await self.get(id)
        return await asyncio.to_thread(list_files, self._settings.workspaces, id, base=base)

    async def open_file(self, id: str, path: str, *, base: bool = False) -> OpenedFile:
        """Opens one file of a delegation's workspace. Raises Conflict where this service cannot reach it."""
        await self.get(id)
        return await asyncio.to_thread(open_file, self._settings.workspaces, id, path, base=base)

    async def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        with closing((await self.open_file(id, path, base=base)).read()) as chunks:
            for chunk in chunks:
                yield chunk

    async def cancel(self, id: str) -> Delegation:
        await self.store.cancel(id)
        return await self.store.get(id, in_outline=True)

    async def send(
        self, id: str, text: str = "", mode: MessageMode = MessageMode.STEER, *, by: str | None = None
    ) -> SentMessage:
        message = Message.new(text, mode, by)
        sent = await messages.send(self.store.redis, id, message, self._settings.retention_seconds)
        return SentMessage(message_id=sent)

    async def resume(self, id: str) -> Delegation:
        await resume(self.store.redis, id)
        return await self.store.get(id)

    async def deliver(self, id: str, wanted: Deliver | None = None) -> Delegation:
        delegation, patch = await self.store.get(id), await self.store.patch(id)
        notes = await notes_of(self.store.redis, id, self._settings)
        if git := await delivered(delegation, wanted, patch, notes, self._settings):
            await note_delivered(self.store.redis, id, git)
            envelope = await self.store.redis.hget(record_key(id), PROOF)
            await attest(delegation, wanted, git, envelope, self._settings)
        return await self._found(id)

    async def webhooks(self, delegation: str | None = None) -> list[Notification]:
        if delegation:
            await self.ownership.check(delegation)
        found = await webhook_queue.notifications(self.store.redis, delegation)
        return await self.ownership.own(found, [each.delegation_id for each in found])

    async def redeliver(self, id: str) -> None:
        await webhook_queue.redeliver(self.store.redis, id)

    async def try_webhook(self, webhook: Webhook) -> Delegation:
        (accepted,) = await self._accept([webhook_test(webhook)], ended={})
        return accepted.delegation

    async def notify(self, request: DelegationRequest, kind: NotificationType, text: str) -> None:
        """Has the webhook of a request notified, by a delegation that ends before it begins. Raises ``Refused``."""
        await self._accept([request], ended={"summary": text}, kind=kind)

    async def merge(self, wanted: MergeRequest) -> MergeReport:
        await self.ownership.check(*wanted.ids)
        report, request = await planned_merge(self.store, self._settings, wanted)
        if request is None:
            return report
        accepted = await (await self._beside(wanted.ids[0])).create(request)
        return report.model_copy(update={"delegation": accepted.delegation})

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        self.ownership.check_unconfined("pruning")
        if older_than is None:
            older_than = self._settings.workspace_retention_seconds if keep_bytes is None else 0
        return await disk.prune(self.store.redis, older_than, keep_bytes, dry_run=dry_run)

    async def disk(self) -> DiskUsage:
        self.ownership.check_unconfined("the use of the disk")
        return await disk.disk_usage(self.store.redis, self._settings.workspace_kept_bytes)

    async def cost(self, by: str = "day", since: datetime | None = None) -> CostReport:
        try:
            check_group(by)
        except ValueError as error:
            raise Invalid(str(error)) from None
        return await money_report(self.store.redis, self._settings.spend, by, since, self.ownership.only)

    async def record(self, record: AuditRecord) -> None:
        """Appends to the audit log."""
        await audit_log.write(self.store.redis, record, self._settings.retention_seconds)

    async def audit(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        self.ownership.check_unconfined("the audit log")
        return await audit_log.read(self.store.redis, limit, cursor, self._settings.retention_seconds)

    async def metrics(self) -> str:
        """Returns all metrics in the text format of Prometheus."""
        return await exposition(self.store.redis, self._fleet)

    async def schedules(self) -> list[Schedule]:
        return await schedule_operations.list_schedules(self.store.redis, self._tables)

    async def run_schedule(self, name: str) -> Delegation:
        table = schedule_operations.check_known(self._tables, name)
        request = schedule_operations.request_of(name, table)
        return (await self.of(table.owner, is_confined=True).create(request)).delegation

    async def pause_schedule(self, name: str) -> Schedule:
        return await schedule_operations.pause(self.store.redis, self._tables, name)

    async def resume_schedule(self, name: str) -> Schedule:
        return await schedule_operations.resume(self.store.redis, self._tables, name)

    @property
    def _tables(self) -> schedule_operations.Tables:
        return schedule_operations.own_tables(self._settings.schedules, self.ownership.only)

    async def workers(self) -> list[WorkerCard]:
        return await self._fleet.workers()

    async def environments(self) -> list[PreparedEnvironment]:
        return await self._fleet.environments()

    async def capacity(self) -> list[EndpointCapacity]:
        return await capacities(self.store.redis, self.ownership.only)

    async def losses(self) -> list[StoreLoss]:
        return await losses_of(self.store.redis)

    async def drain(self, name: str) -> WorkerCard:
        return await self._fleet.drain(name)

    async def tools(self) -> list[ToolCard]:
        return await self._fleet.tools()

    async def not_ready(self) -> str | None:
        try:
            workers = await self.workers()
        except Unavailable as error:
            return str(error)
        if self._settings.local and is_full(self._settings.home):
            return no_space(self._settings.home)
        return none_takes_work(workers)


@asynccontextmanager
async def open_service(settings: Settings, redis_url: str) -> AsyncGenerator[Delegations]:
    """Yields a service over one Redis, with its connections; closes them with the block."""
    async with (
        connect(redis_url) as redis,
        connect(redis_url, retries=0) as listening,
        bus.Bus(listening) as follower,
        Dispatcher(settings, redis_url) as dispatcher,
        published_caps(redis, settings),
    ):
        replicas = replicas_of(settings)
        store = RunStore(redis, settings.retention_seconds, replicas)
        async with beside(replicas.watch(redis), "the look for lost writes") if replicas else nullcontext():
            yield Delegations(settings, store, follower, Fleet(redis), dispatcher)
