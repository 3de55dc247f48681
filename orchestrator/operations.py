"""The operations of the service, the same for every caller: in this process, over HTTP, and for the tools of MCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from pydantic import Field

from ..shared.compound_requests import MergeRequest
from ..shared.delegation import Delegation, Status, ToolAgentResult
from ..shared.disk_usage import DiskUsage, Pruned
from ..shared.errors import Conflict, Unavailable
from ..shared.events import Envelope
from ..shared.facts import MergeConflict
from ..shared.fleet import PreparedEnvironment, ToolCard, WorkerCard
from ..shared.kept_step import ToolAgentStep
from ..shared.limits import Limits
from ..shared.message import MessageMode, SentMessage
from ..shared.permission import Outcome, PermissionRequest
from ..shared.proof.file import Proof
from ..shared.request import DelegationRequest, Deliver
from ..shared.runs.capacity import EndpointCapacity
from ..shared.runs.cost import CostReport
from ..shared.runs.losses import StoreLoss
from ..shared.runs.notification import Notification
from ..shared.schedule import Schedule
from ..shared.status_counts import StatusCounts
from ..shared.webhooks import Webhook
from ..shared.wire import Data, Wire
from .audit_log import AuditPage
from .operation import Operation, operations_of, performed
from .parameters import (
    AuditCursor,
    Bytes,
    Cursor,
    DelegationId,
    Group,
    Key,
    Name,
    PageSize,
    Position,
    Positive,
    Reason,
    Seconds,
)
from .scopes import MCP_PATH, Scope
from .uploads import AcceptedUpload
from .workspace_files import FileList

_READ, _SUBMIT, _APPROVE, _ADMIN = Scope.READ, Scope.SUBMIT, Scope.APPROVE, Scope.ADMIN
_BODY = (400, 408, 413, 415, 422)
"""What may be wrong with a request that has a body."""
_ONCE = (*_BODY, 404, 409)
_NEW = (*_ONCE, 429)
"""What may be wrong with a request for a delegation that begins with others."""
_OUT_OF_REACH = (404, 409, 422)
_LONG = 300.0
FIRST_SILENCE, SILENCE = 1.0, 10.0
"""Seconds without an event after which it is asked whether the delegation is paused; one that runs has heartbeats."""


@dataclass(frozen=True, slots=True)
class AcceptedDelegation:
    """A delegation, and whether an earlier one was returned for the same idempotency key."""

    delegation: Delegation
    replayed: bool


class Items(Wire):
    items: list[Delegation]
    """The delegations."""


class PageOf(Items):
    next_cursor: str | None = None
    """The ``cursor`` of the next page; null on the last one."""
    reasons: list[str] = Field(default_factory=list, exclude_if=lambda reasons: not reasons)
    """Of a list for a review, why each delegation has its place."""


class MergeReport(Wire):
    """The outcome of a merge."""

    conflicts: list[MergeConflict]
    """What excludes each other: where there is anything, nothing is merged."""
    files: list[str]
    """The paths that the merge changes; where there are conflicts, those that it could."""
    left_out: list[str] = Field(default_factory=list, exclude_if=lambda paths: not paths)
    """Changed paths that are not merged, as the checks of a result put them back; left out where there are none."""
    delegation: Delegation | None = None
    """That which merges and checks them; its result has the verdict, and its patch all changes. Null: none does."""

    @property
    def result(self) -> ToolAgentResult | None:
        """The result of the merge, once there is one."""
        return self.delegation and self.delegation.result


@performed
class Operations:
    """The operations that take and return the same for each caller.

    All raise the ``Refused`` tree, and Unavailable while the service or its Redis does not answer. The OpenAPI document
    describes operations by these docstrings, unless their route has a function of its own.
    """

    async def _perform(self, operation: Operation, given: dict[str, Any]) -> Any:
        """Carries out an operation that the class has no function of its own for."""
        raise NotImplementedError(operation.name)

    @Operation("GET /v1/delegations", _READ, "list_delegations", 200, (422,))
    async def list(
        self,
        *,
        status: Status | None = None,
        session: Name | None = None,
        labels: Mapping[str, str] | None = None,
        limit: PageSize = 50,
        cursor: Cursor | None = None,
        parent: DelegationId | None = None,
        for_review: bool = False,
    ) -> PageOf:
        """Returns a filtered page, newest first; ``cursor`` is that of the previous page.

        With ``for_review`` those that ended with changed files, of the newest 500 that succeeded and the newest 500
        that failed: by verdict and number of warnings, then by changed lines. It has no next page.
        """
        ...

    @Operation("GET /v1/delegations:count", _READ, "count_delegations")
    async def counts(self) -> StatusCounts:
        """Returns how many delegations there are of each status."""
        ...

    @Operation("GET /v1/delegations/{id}", _READ, "get_delegation", 200, (404, 422))
    async def get(self, id: str, wait: Seconds = 0) -> Delegation:
        """Returns the delegation when it is finished, after ``wait`` seconds, or at once where it is paused."""
        ...

    @Operation("POST /v1/delegations/{id}/cancel", _SUBMIT, "cancel_delegation", 202, (404,))
    async def cancel(self, id: str) -> Delegation:
        """Cancels a queued or running delegation; idempotent, and without effect on a finished one."""
        ...

    @Operation("POST /v1/delegations/{id}/resume", _SUBMIT, "resume_delegation", 202, (404, 409))
    async def resume(self, id: str) -> Delegation:
        """
        Goes on with a paused delegation, which a stack that is gone left; without effect on another unfinished one.
        """
        ...

    @Operation("GET /v1/delegations/{id}/steps", _READ, "list_steps", 200, (404,))
    async def steps(self, id: str) -> list[ToolAgentStep]:
        """Returns the finished tool calls, in order."""
        ...

    @Operation("GET /v1/delegations/{id}/patch", _READ, "get_patch", 200, (404,))
    async def patch(self, id: str) -> str:
        """Returns the unified diff of the run's workspace."""
        ...

    @Operation("GET /v1/delegations/{id}/proof", _READ, "get_proof", 200, (404, 409))
    async def proof(self, id: str) -> Proof:
        """Returns the proof of a verified result: a signed envelope, with what repeats its checks elsewhere."""
        ...

    @Operation("GET /v1/delegations/{id}/artifacts/{name}", _READ, "get_artifact", 200, (404, 422))
    async def artifact(self, id: str, name: str, version: Positive | None = None) -> str:
        """Returns an artifact of an ended run, by default its latest version."""
        ...

    @Operation("GET /v1/permissions", _READ, "list_permissions", 200, (422,), "permissions")
    async def permissions(self, delegation: DelegationId | None = None) -> list[PermissionRequest]:
        """Returns the calls that wait for a person, the oldest first; of a delegation and those below it, or all."""
        ...

    @Operation("GET /v1/delegations/{id}/events", _READ, "stream_events", 200, (404, 422), "events")
    async def events(self, id: str, after: Position = 0) -> list[Envelope]:
        """Returns the stored events after ``after``."""
        ...

    @Operation("GET /v1/disk", _READ, "get_disk_usage", tag="files")
    async def disk(self) -> DiskUsage:
        """Returns what the files of finished delegations take on disk, from the records that exist."""
        ...

    @Operation("GET /v1/delegations/{id}/files", _READ, "list_files", 200, _OUT_OF_REACH, "files")
    async def files(self, id: str, *, base: bool = False) -> FileList:
        """Returns the files in a delegation's workspace, or with ``base`` those from its start.

        Raises Conflict where the service cannot reach them.
        """
        ...

    @Operation("GET /v1/webhooks", _READ, "list_notifications", 200, (404, 422), "webhooks")
    async def webhooks(self, delegation: DelegationId | None = None) -> list[Notification]:
        """Returns the notifications of a delegation's webhook, or those of all that have not been delivered."""
        ...

    @Operation(
        "POST /v1/delegations/{id}/webhooks:redeliver", _SUBMIT, "redeliver_notifications", 204, (404, 409), "webhooks"
    )
    async def redeliver(self, id: str) -> None:
        """Sends all notifications of a delegation again, under the ids that receivers know them by. 409 without any."""
        ...

    @Operation("POST /v1/webhooks:test", _SUBMIT, "test_webhook", 202, (*_BODY, 429), "webhooks", whole="webhook")
    async def try_webhook(self, webhook: Webhook) -> Delegation:
        """Makes a delegation that is cancelled before it begins, so that the webhook is notified of its end."""
        ...

    @Operation("POST /v1/delegations:prune", _ADMIN, "prune_delegations", 200, _BODY)
    async def prune(
        self, older_than: Seconds | None = None, keep_bytes: Bytes | None = None, *, dry_run: bool = False
    ) -> Pruned:
        """Removes finished delegations: those that ended that many seconds ago (default: a setting).

        With ``keep_bytes`` as many of them as it takes to keep no more than that, of any age unless one is given.
        """
        ...

    @Operation("GET /v1/cost", _READ, "get_cost", 200, (422,), "cost")
    async def cost(self, by: Group = "day", since: datetime | None = None) -> CostReport:
        """Returns what the delegations cost that were accepted since then; ``by`` groups them.

        Also the caps on money with their use, and forecasts of the delegations that run.
        """
        ...

    @Operation("GET /v1/audit", _ADMIN, "list_audit_entries", 200, (422,), "audit")
    async def audit(self, limit: PageSize = 50, cursor: AuditCursor | None = None) -> AuditPage:
        """Returns a page of the audit log, newest first; ``cursor`` is that of the previous page."""
        ...

    @Operation("GET /v1/schedules", _READ, "list_schedules", tag="schedules")
    async def schedules(self) -> list[Schedule]:
        """Returns the schedules of the service's settings, with their next and last times."""
        ...

    @Operation("POST /v1/schedules/{name}/run", _SUBMIT, "run_schedule", 202, (404, 422, 429), "schedules")
    async def run_schedule(self, name: str) -> Delegation:
        """Begins the task of a schedule now, also where it is paused; its times stay as they are."""
        ...

    @Operation("POST /v1/schedules/{name}/pause", _SUBMIT, "pause_schedule", 200, (404,), "schedules")
    async def pause_schedule(self, name: str) -> Schedule:
        """Lets a schedule begin nothing until it is resumed."""
        ...

    @Operation("POST /v1/schedules/{name}/resume", _SUBMIT, "resume_schedule", 200, (404,), "schedules")
    async def resume_schedule(self, name: str) -> Schedule:
        """Lets a paused schedule go on with its next time from now; those that passed begin nothing."""
        ...

    @Operation("GET /v1/tools", _READ, "list_tools", tag="fleet")
    async def tools(self) -> list[ToolCard]:
        """Returns every tool that workers have announced."""
        ...

    @Operation("GET /v1/workers", _READ, "list_workers", tag="fleet")
    async def workers(self) -> list[WorkerCard]:
        """Returns the workers that are alive."""
        ...

    @Operation("GET /v1/environments", _READ, "list_environments", tag="fleet")
    async def environments(self) -> list[PreparedEnvironment]:
        """Returns what workers have prepared for the commands of runs, those first that were used last."""
        ...

    @Operation("GET /v1/capacity", _READ, "list_capacity", tag="fleet")
    async def capacity(self) -> list[EndpointCapacity]:
        """Returns what waits: for places in workers, and for models' endpoints that limit the rate of requests."""
        ...

    @Operation("GET /v1/losses", _READ, "list_losses", tag="fleet")
    async def losses(self) -> list[StoreLoss]:
        """Returns the failovers of Redis that lost acknowledged writes, the latest first."""
        ...

    @Operation("POST /v1/workers/{name}/drain", _ADMIN, "drain_worker", 202, (404,), "fleet")
    async def drain(self, name: str) -> WorkerCard:
        """Asks a worker to take no more runs and to hand over those it has; it stays, idle, until it is stopped.

        For rolling upgrades. Its card has `draining`, and how many it still runs.
        """
        ...


@performed
class Service(Operations):
    """All operations. ``Delegations`` is the service itself, ``Client`` one at an address."""

    @Operation("POST /v1/delegations", _SUBMIT, "create_delegation", 202, (*_BODY, 429), whole="request")
    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        """Submits a task. The same idempotency key with the same body returns the first delegation again."""
        ...

    @Operation("POST /v1/delegations:batch", _SUBMIT, "create_delegations", 202, (*_BODY, 429))
    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        """Submits at most 1,000 tasks, all or none. Returns their delegations in order."""
        ...

    @Operation("POST /v1/delegations/{id}/continue", _SUBMIT, "continue_delegation", 202, _NEW)
    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: Key | None = None
    ) -> AcceptedDelegation:
        """Goes on with a finished delegation: a new one over its conversation and its files, with limits of its own."""
        ...

    @Operation("POST /v1/delegations/{id}/retry", _SUBMIT, "retry_delegation", 202, _NEW)
    async def retry(
        self, id: str, *, from_turn: Positive | None = None, idempotency_key: Key | None = None
    ) -> AcceptedDelegation:
        """Hands the task of a finished delegation over again, as a new one; ``from_turn`` keeps what precedes it."""
        ...

    def follow(self, id: str, after: Position = 0) -> AsyncGenerator[Envelope]:
        """Yields every event after ``after``, then the live ones, up to ``run_finished``.

        Live events that are not stored, such as streamed text, have no ``seq``.
        """
        ...

    @Operation("GET /v1/events", _READ, "stream_all_events", tag="events")
    def follow_all(self) -> AsyncGenerator[Envelope]:
        """Yields new durable events of all delegations."""
        ...

    @Operation("PUT /v1/uploads", _SUBMIT, "put_upload", 201, (408, 413, 415, 422), "files")
    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        """Stores an archive for workspaces. Raises Invalid where its digest is not ``sha256``."""
        ...

    @Operation("GET /v1/delegations/{id}/files/{path:file}", _READ, "get_file", 200, _OUT_OF_REACH, "files")
    def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        """Yields the bytes of one file of a delegation's workspace, or with ``base`` of that from its start.

        Raises NotFound, Conflict as ``files`` does, and Unavailable where the connection breaks.
        """
        ...

    @Operation("POST /v1/delegations/{id}/messages", _SUBMIT, "send_message", 202, _NEW)
    async def send(
        self, id: str, text: str = "", mode: MessageMode = MessageMode.STEER, *, by: str | None = None
    ) -> SentMessage:
        """Sends a message to an unfinished delegation, or asks it to wrap up. Raises Conflict for a finished one.

        ``by`` is the name of the sender's token; over HTTP the service uses that of the request.
        """
        ...

    @Operation(
        "POST /v1/delegations/{id}/deliver", _SUBMIT, "deliver_delegation", 200, _ONCE, whole="wanted", seconds=_LONG
    )
    async def deliver(self, id: str, wanted: Deliver | None = None) -> Delegation:
        """Pushes what a finished delegation changed in its clone, as ``wanted`` or its request asks; at most once."""
        ...

    @Operation("POST /v1/merges", _SUBMIT, "merge_delegations", 202, _NEW, whole="wanted", seconds=_LONG)
    async def merge(self, wanted: MergeRequest) -> MergeReport:
        """Merges the results of finished delegations over the same files: as a delegation, unless there are conflicts.

        Raises Conflict where one is not finished, began with other files, or is not complete.
        """
        ...

    @Operation("POST /v1/permissions/{permissionId}", _APPROVE, "answer_permission", 204, _ONCE, "permissions")
    async def answer_permission(
        self,
        id: str,
        outcome: Outcome,
        *,
        reason: Reason | None = None,
        arguments: Mapping[str, Data] | None = None,
        by: str | None = None,
    ) -> None:
        """Answers a call that waits for permission. Raises Conflict for a second answer.

        ``by`` is the name of the answerer's token; over HTTP the service uses that of the request.
        """
        ...

    async def not_ready(self) -> str | None:
        """Returns why new work would only be queued (no worker that takes it, no Redis), or None if it is executed."""
        ...


OPERATIONS = (*operations_of(Service), *operations_of(Operations))
"""All of them, in the order of the OpenAPI document. ``follow`` is the stream of ``events``."""
BY_NAME = {each.name: each for each in OPERATIONS}
ROUTES: Mapping[tuple[str, str], frozenset[Scope]] = {
    **{(each.method, each.path): frozenset({each.scope}) for each in OPERATIONS},
    ("GET", "/metrics"): frozenset({Scope.METRICS}),
    # The messages of MCP are all alike to HTTP, so its tools and resources are checked one by one.
    **{(method, MCP_PATH): frozenset[Scope]() for method in ("GET", "POST", "DELETE")},
}
"""The scopes by method and path. A route that is not here is refused to every token."""


async def follow_unless_paused(
    service: Service, id: str, on_pause: Callable[[str], Awaitable[object]]
) -> AsyncGenerator[Envelope]:
    """Yields a delegation's events; where they stay away because it is paused, calls ``on_pause``, which may raise."""
    events, silence = service.follow(id), FIRST_SILENCE
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            if not (await asyncio.wait({coming}, timeout=silence))[0]:
                silence = SILENCE
                with suppress(Unavailable):  # the stream's own policy decides when to give up
                    if (await service.get(id)).paused:
                        await on_pause(id)
            elif (envelope := coming.result()) is None:
                return
            else:
                yield envelope
                coming = asyncio.ensure_future(anext(events, None))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()


async def refuse_paused(id: str) -> NoReturn:
    """Raises Conflict: nothing works on the delegation."""
    raise Conflict(paused_note(id))


def paused_note(id: str) -> str:
    return f"{id} is paused, because the stack that worked on it ended; `deputize resume {id}` goes on with it"
