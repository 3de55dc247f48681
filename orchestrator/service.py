"""The operations of the service, the same for every caller: in this process, over HTTP, and for the tools of MCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field

from ..shared.delegation import Delegation, Status, StatusCounts, ToolAgentResult, ToolAgentStep
from ..shared.errors import Conflict, Unavailable
from ..shared.events import Envelope
from ..shared.facts import MergeConflict
from ..shared.fleet import ToolCard, WorkerCard
from ..shared.message import MessageMode, SentMessage
from ..shared.permission import PermissionOutcome, PermissionRequest
from ..shared.request import DelegationRequest, Deliver, Limits, MergeRequest
from ..shared.runs.cost import CostReport
from ..shared.wire import Wire
from .audit_log import AuditPage
from .operations import Operation, performed
from .uploads import AcceptedUpload
from .workspace_files import FileList

if TYPE_CHECKING:  # it imports the Redis client, which most commands do not need
    from ..shared.runs.disk import DiskUsage, Pruned
    from ..shared.runs.webhooks import Notification

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

    async def list(
        self,
        *,
        status: Status | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
        parent: str | None = None,
    ) -> PageOf:
        """Returns a filtered page, newest first; ``cursor`` is that of the previous page."""
        ...

    async def counts(self) -> StatusCounts:
        """Returns how many delegations there are of each status."""
        ...

    async def get(self, id: str, wait: float = 0) -> Delegation:
        """Returns the delegation when it is finished, after ``wait`` seconds, or at once where it is paused."""
        ...

    async def cancel(self, id: str) -> Delegation:
        """Cancels a queued or running delegation; idempotent, and without effect on a finished one."""
        ...

    async def resume(self, id: str) -> Delegation:
        """
        Goes on with a paused delegation, which a stack that is gone left; without effect on another unfinished one.
        """
        ...

    async def steps(self, id: str) -> list[ToolAgentStep]:
        """Returns the finished tool calls, in order."""
        ...

    async def patch(self, id: str) -> str:
        """Returns the unified diff of the run's workspace."""
        ...

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        """Returns an artifact of an ended run, by default its latest version."""
        ...

    async def permissions(self, delegation: str | None = None) -> list[PermissionRequest]:
        """Returns the calls that wait for a person, the oldest first; of a delegation and those below it, or all."""
        ...

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        """Returns the stored events after ``after``."""
        ...

    async def disk(self) -> DiskUsage:
        """Returns what the files of finished delegations take on disk, from the records that exist."""
        ...

    async def files(self, id: str, *, base: bool = False) -> FileList:
        """Returns the files in a delegation's workspace, or with ``base`` those from its start.

        Raises Conflict where the service cannot reach them.
        """
        ...

    async def webhooks(self, delegation: str | None = None) -> list[Notification]:
        """Returns the notifications of a delegation's webhook, or those of all that have not been delivered."""
        ...

    async def redeliver(self, id: str) -> None:
        """Sends all notifications of a delegation again, under the ids that receivers know them by. 409 without any."""
        ...

    async def prune(
        self, older_than: float | None = None, keep_bytes: int | None = None, *, dry_run: bool = False
    ) -> Pruned:
        """Removes finished delegations: those that ended that many seconds ago (default: a setting).

        With ``keep_bytes`` as many of them as it takes to keep no more than that, of any age unless one is given.
        """
        ...

    async def cost(self, by: str = "day", since: datetime | None = None) -> CostReport:
        """Returns what the delegations cost that were accepted since then; ``by`` groups them."""
        ...

    async def audit(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        """Returns a page of the audit log, newest first; ``cursor`` is that of the previous page."""
        ...

    async def tools(self) -> list[ToolCard]:
        """Returns every tool that workers have announced."""
        ...

    async def workers(self) -> list[WorkerCard]:
        """Returns the workers that are alive."""
        ...

    async def drain(self, name: str) -> WorkerCard:
        """Asks a worker to take no more runs and to hand over those it has; it stays, idle, until it is stopped.

        For rolling upgrades. Its card has `draining`, and how many it still runs.
        """
        ...


@performed
class Service(Operations):
    """All operations. ``Delegations`` is the service itself, ``Client`` one at an address."""

    async def upload(self, content: AsyncIterable[bytes], sha256: str | None = None) -> AcceptedUpload:
        """Stores an archive for workspaces. Raises Invalid where its digest is not ``sha256``."""
        ...

    async def create(self, request: DelegationRequest) -> AcceptedDelegation:
        """Submits a task. The same idempotency key with the same body returns the first delegation again."""
        ...

    async def create_many(self, requests: Sequence[DelegationRequest]) -> list[Delegation]:
        """Submits at most 1,000 tasks, all or none. Returns their delegations in order."""
        ...

    async def continue_(
        self, id: str, text: str, limits: Limits | None = None, *, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        """Goes on with a finished delegation: a new one over its conversation and its files, with limits of its own."""
        ...

    async def retry(
        self, id: str, *, from_turn: int | None = None, idempotency_key: str | None = None
    ) -> AcceptedDelegation:
        """Hands the task of a finished delegation over again, as a new one; ``from_turn`` keeps what precedes it."""
        ...

    def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        """Yields every event after ``after``, then the live ones, up to ``run_finished``."""
        ...

    def follow_all(self) -> AsyncGenerator[Envelope]:
        """Yields new durable events of all delegations."""
        ...

    def file(self, id: str, path: str, *, base: bool = False) -> AsyncGenerator[bytes]:
        """Yields the bytes of one file of a delegation's workspace, or with ``base`` of that from its start.

        Raises NotFound, Conflict as ``files`` does, and Unavailable where the connection breaks.
        """
        ...

    async def send(
        self, id: str, text: str = "", mode: MessageMode = MessageMode.STEER, *, by: str | None = None
    ) -> SentMessage:
        """Sends a message to an unfinished delegation, or asks it to wrap up. Raises Conflict for a finished one.

        ``by`` is the name of the sender's token; over HTTP the service uses that of the request.
        """
        ...

    async def deliver(self, id: str, wanted: Deliver | None = None) -> Delegation:
        """Pushes what a finished delegation changed in its clone, as ``wanted`` or its request asks; at most once."""
        ...

    async def merge(self, wanted: MergeRequest) -> MergeReport:
        """Merges the results of finished delegations over the same files: as a delegation, unless there are conflicts.

        Raises Conflict where one is not finished, began with other files, or is not complete.
        """
        ...

    async def answer_permission(
        self,
        id: str,
        outcome: PermissionOutcome,
        *,
        reason: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        by: str | None = None,
    ) -> None:
        """Answers a call that waits for permission. Raises Conflict for a second answer.

        ``by`` is the name of the answerer's token; over HTTP the service uses that of the request.
        """
        ...

    async def not_ready(self) -> str | None:
        """Returns why new work would only be queued (no worker that takes it, no Redis), or None if it is executed."""
        ...


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
