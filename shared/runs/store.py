"""The record of every delegation in Redis: acceptance, claim, lease, history, events and result.

Each change is one Lua script (``shared/runs/lua``) that compares the fence token first, so a worker that lost its lease
can write nothing. All scripts are idempotent. Keys of one delegation share a hash tag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from redis.asyncio import Redis

from ..connection import Pipe, Script, retried
from ..delegation import Delegation, Status, TerminationReason
from ..errors import Conflict, Fenced, GoesAlone, KeyReused, NotFound
from ..events import Envelope, RunFinished
from ..ids import first_id
from ..limits import Limits
from ..log import log
from ..metrics import ACCEPTED, LEASES_LOST
from ..request import DelegationRequest
from ..webhooks import NotificationType, Webhook
from ..wire import now
from .cost import fields_of_records
from .disk import RECORD_PARTS, forget
from .keys import (
    CANCEL,
    EVENTS,
    INDEX,
    LEASES,
    METRICS,
    OWNER_WEIGHTS,
    PRESENCE,
    WAITING_RUNS,
    children_key,
    events_key,
    idempotency_key,
    keys_of,
    owned_idempotency_key,
    record_key,
)
from .messages import messages_of
from .record import (
    ALONE_AFTER,
    MOST_STARTS,
    READ,
    WEBHOOK,
    Claim,
    KeptRun,
    acceptance,
    kept_artifact,
    kept_run,
    not_found,
    published,
)
from .spend import SPEND
from .unreadable import UNREADABLE, outline, readable
from .unstarted import ending, state_of

if TYPE_CHECKING:
    from .replicas import Replicas

IDEMPOTENCY_SECONDS = 24 * 3600
MOST_LOST_STARTS = 10
"""Starts of such processes that do not count, because they ended with their worker's process."""
START_CLAIMS = 3
"""How many times ``claim_seconds`` such a process has until it claims the run: it starts an interpreter before."""
UNREAD_MS = 5000
"""Milliseconds until the next ticket of a delegation that this version cannot read."""
LEFT = "%s is left to a worker of a newer version; `deputize cancel` ends it"
RENEW, RELEASE, LAPSE = map(Script, ("renew", "release", "lapse"))
OUTAGE, PACE, PREFIX = map(Script, ("outage", "pace", "prefix"))
CLAIM, STALLED = Script("queue", "standstills", "claim"), Script("standstills", "stalled")
ACCEPT = Script("queue", "file", "notify", "count", "unstarted", "accept")
REAP = Script("queue", "count", "reap")
RECORD = Script("file", "notify", "count", "standstills", "record")
CANCELLING = Script("queue", "file", "notify", "count", "unstarted", "cancel")

REUSED = {
    "key_reused": "used before with another body",
    "record_gone": "used before, for a delegation whose record is gone",
}
"""The accept script's codes for an idempotency key that cannot be used again, as text."""
CANCELLED = {
    "status": Status.CANCELLED,
    "termination_reason": TerminationReason.CANCELLED,
    "summary": "Cancelled before it was started.",
}
"""The result of a delegation that was cancelled before it ran."""
COUNTING = {"metrics": METRICS, "accepted": ACCEPTED.field(), "lost": LEASES_LOST.field()}
"""What the scripts that accept and reap delegations count."""
QUEUED = {"queue": WAITING_RUNS, "weights": OWNER_WEIGHTS}
"""What the scripts with the queue of runs (``queue.lua``) need."""
CLAIMING = {
    "alone_after": ALONE_AFTER,
    "most_starts": MOST_STARTS,
    "most_lost_starts": MOST_LOST_STARTS,
    "fields": Claim.FIELDS,
    **QUEUED,
    **RECORD_PARTS,
}
"""What is the same in each claim."""
WRITING = (CLAIM, RECORD, RENEW, RELEASE, SPEND, OUTAGE, PACE, PREFIX)
"""The scripts that a worker's pipe may run."""


@dataclass(frozen=True, slots=True)
class Accepted:
    id: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Reaped:
    """A delegation whose deadline passed: its lease expired (``lapsed``) or no worker claimed it (``unclaimed``).

    Or one that waits for others, which have ``decided`` about it (``upstreams.py``).
    """

    id: str
    kind: Literal["lapsed", "unclaimed", "decided"]
    attempt: int
    title: str
    priority: int


class RunStore:
    """Reads and writes the records. One instance serves a whole process."""

    def __init__(self, redis: Redis, retention_seconds: int, replicas: Replicas | None = None) -> None:
        # redis-py types every command as a reply or an awaitable of one, which no type checker can narrow.
        self.redis: Any = redis
        self.retention = retention_seconds
        self.replicas = replicas
        """Those that must have what is accepted; None where there are none."""

    async def accept(
        self,
        new: Sequence[tuple[str, DelegationRequest, Limits]],
        claim_seconds: float,
        fence: str = "",
        *,
        asked: Sequence[DelegationRequest] = (),
        owner: str = "",
        confined: bool = False,
        temporary: bool = False,
        webhook: Webhook | None = None,
        trace: str = "",
        key_seconds: int = IDEMPOTENCY_SECONDS,
        ended: Mapping[str, Any] | None = None,
        kind: NotificationType | None = None,
    ) -> list[Accepted]:
        """Writes the records with their claim deadlines and ``run_queued``; all of them or none.

        ``asked`` are the requests as callers sent them, if those differ: by these, repeated ones are recognized, among
        those of ``owner``. They belong to it, or to their parent's; a ``confined`` owner's have no parent of another
        owner. ``webhook`` is for requests without one, ``trace`` their caller's ``traceparent``; new idempotency keys
        are kept for ``key_seconds``. With ``ended``, fields of their results, they end at once, notifying of ``kind``.
        Raises ``KeyReused`` for a key of another body or a removed delegation, ``Fenced`` where the parent's fence
        differs, ``Unacknowledged`` where too few replicas have the records.
        """
        described = partial(acceptance, temporary=temporary, webhook=webhook, trace=trace, owner=owner)
        sent, keys = asked or [each[1] for each in new], [INDEX, LEASES]
        for id, request, _ in new:
            # The index stands for none: a user that is kept to our keys may not name an empty one.
            key = INDEX if request.idempotency_key is None else kept_for(request.idempotency_key, owner)
            siblings = children_key(request.parent_id) if request.parent_id else INDEX
            keys += [record_key(id), events_key(id), key, siblings]
        given: dict[str, Any] = {"claim_ms": int(claim_seconds * 1000), "idempotency_seconds": key_seconds}
        given |= {"channel": EVENTS, "fence": fence, "confined": confined, "starts": ended is None}
        accepted = [described(*each, request) for each, request in zip(new, sent, strict=True)]
        given |= {"delegations": [self._ending(each, ended, kind) for each in accepted], **COUNTING, **QUEUED}
        records = [record_key(id) for id, _, _ in new]
        verdict, *answers = await self._accepted(keys, given, records, unbounded=bool(fence))  # a run has limits
        _check_accepted(verdict)
        return [Accepted(held or id, bool(held)) for (id, _, _), held in zip(new, answers, strict=True)]

    def _ending(
        self, accepted: Mapping[str, Any], ended: Mapping[str, Any] | None, kind: NotificationType | None
    ) -> Mapping[str, Any]:
        """Returns what the accept script gets of a delegation, which ends in that step if it has an end."""
        if ended is None:
            return accepted
        state = {"seq": "1", "attempt": "0", WEBHOOK: "", **accepted["fields"]}
        end = ending(accepted["id"], state, {**CANCELLED, **ended}, retention=self.retention, kind=kind)
        return {**accepted, "ended": end}

    async def _accepted(
        self, keys: Sequence[str], arguments: Mapping[str, Any], records: Sequence[str], *, unbounded: bool
    ) -> list[Any]:
        if self.replicas is None:
            return await ACCEPT.run(self.redis, keys, arguments)
        asking = self.replicas.run(self.redis, ACCEPT, keys, arguments, records=records, unbounded=unbounded)
        return await asking

    async def claim(
        self,
        id: str,
        token: str,
        worker: str,
        lease_seconds: float,
        owner: str = "",
        pipe: Pipe | None = None,
        *,
        is_ticket: bool = False,
        start_seconds: float | None = None,
    ) -> Claim | None:
        """Claims a queued delegation, or with a ticket (``is_ticket``) the next one of the queue.

        Returns None if it is claimed already, finished or gone, or cannot be read here, or none waits. What cannot be
        read is of a newer version, and is handed back for one of its workers. ``owner`` names the worker's process, so
        that its leases can end with it. Claims through one ``pipe`` share round trips and a connection.
        ``start_seconds`` is the time that a process of its own has to claim a run that gets one; None where this
        process counts as one. Raises ``GoesAlone`` where the caller is to start that process.
        """
        arguments = {"id": id, "uuid": token, "worker": worker, "owner": owner, "now": now().isoformat()}
        arguments |= {"lease_ms": int(lease_seconds * 1000), "is_ticket": is_ticket, **CLAIMING}
        arguments |= {"is_alone": start_seconds is None, "start_ms": int((start_seconds or 0) * 1000)}
        keys = [record_key(id), LEASES, PRESENCE]
        asked = pipe.script(CLAIM, keys, arguments) if pipe else CLAIM.run(self.redis, keys, arguments)
        if pipe:
            pipe.flush()
        verdict, *pairs = await asked
        fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
        if verdict == "alone":
            raise GoesAlone(fields["id"])
        if verdict != "claimed":
            return None
        id = fields["id"]
        try:
            kept = await self._kept(id) if int(fields["attempt"]) > 1 else ([], {}, None, None)
            return Claim.of(id, fields, kept)
        except UNREADABLE as error:
            log.warning(LEFT, id, extra={"cause": repr(error)[:300]})
            return await self._leave_unread(id, fields["fence"])

    async def _kept(self, id: str) -> KeptRun:
        """Does not fail: a claim that is not carried out counts as a lost worker."""
        return await retried(partial(kept_run, self.redis, id))

    async def _leave_unread(self, id: str, fence: str) -> None:
        left = {"id": id, "fence": fence, "claim_ms": UNREAD_MS, "unread": True}
        if await RELEASE.run(self.redis, [record_key(id), LEASES], left) == "cancelled":
            await self.cancel(id)

    async def get(self, id: str, *, in_outline: bool = False) -> Delegation:
        """Returns the delegation, ``in_outline`` also one that this version cannot read, which raises ``Conflict``.

        Raises ``NotFound`` if the id never existed or its retention is over.
        """
        fields = await self.redis.hgetall(record_key(id))
        if not fields:
            raise not_found(id)
        try:
            return readable(id, fields)
        except Conflict:
            if in_outline:
                return outline(id, fields)
            raise

    async def many(
        self, ids: Sequence[str], sets: Sequence[str] = (), unread: list[str] | None = None
    ) -> list[Delegation]:
        """Returns those of ``ids`` whose records exist, in their order; removes the others from ``sets``, too.

        What this version cannot read is left out and added to ``unread``, or raises ``Conflict`` without that.
        """
        async with self.redis.pipeline(transaction=False) as pipeline:
            for id in ids:
                pipeline.hgetall(record_key(id))
            records = await pipeline.execute()
        if expired := [id for id, fields in zip(ids, records, strict=True) if not fields]:
            await forget(self.redis, expired, sets)
        found: list[Delegation] = []
        for id, fields in zip(ids, records, strict=True):
            try:
                found += [readable(id, fields)] if fields else []
            except Conflict:
                if unread is None:
                    raise
                unread.append(id)
        return found

    async def ended(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns when each finished delegation ended (ISO time); "" for those without a record."""
        records = await fields_of_records(self.redis, ids, "status", "finished")
        return {
            id: finished or ""
            for id, (status, finished) in zip(ids, records, strict=True)
            if status is None or Status(status).finished
        }

    async def events(self, id: str, after: int = 0) -> list[Envelope]:
        """Returns the stored events with a number above ``after``, of known types. Raises ``NotFound``."""
        if not await self.redis.exists(record_key(id)):
            raise not_found(id)
        entries = await self.redis.xrange(events_key(id), min=f"({after}-0")
        found = (Envelope.read(published(entry["e"])) for _, entry in entries)
        return [envelope for envelope in found if envelope]

    async def has_ended(self, id: str, after: int) -> bool:
        """Returns whether no event follows ``after`` any more: the last one is ``run_finished``."""
        entries = await self.redis.xrevrange(events_key(id), count=1)
        last = Envelope.read(published(entries[0][1]["e"])) if entries else None
        return last is not None and isinstance(last.event, RunFinished) and (last.seq or 0) <= after

    async def conversation(self, id: str) -> tuple[list[str], str | None]:
        """Returns the stored messages and the kit of a run; nothing where it never began or is gone."""
        history, _, tools, _ = await kept_run(self.redis, id)
        return history, tools

    async def patch(self, id: str) -> str:
        """Returns the unified diff of the run as of its last write. Raises ``NotFound``."""
        exists, patch = await self.redis.hmget(record_key(id), ["request", "patch"])
        if exists is None:
            raise not_found(id)
        return patch or ""

    async def artifact(self, id: str, name: str, version: int | None = None) -> str:
        """Returns an ended run's artifact, by default the latest version. Raises ``NotFound`` with those that exist."""
        return await kept_artifact(self.redis, id, name, version)

    async def cancel(self, id: str) -> Literal["finished", "asked", "cancelled"]:
        """Ends a delegation that never ran, or asks its worker to stop; its children afterwards. Idempotent.

        One that waits for another attempt is ended by the worker that claims it, with its work so far in the result.
        Raises ``NotFound``.
        """
        children = await self.redis.smembers(children_key(id))
        try:
            return await self._end(id, CANCELLED)
        finally:  # a run that sees its child end before it is cancelled itself would go on to its next turn
            for child in children:
                with suppress(NotFound):
                    await self.cancel(child)

    async def end_waiting(self, id: str, ended: Mapping[str, Any]) -> None:
        """Ends a delegation that waits in vain for others, with these fields of its result. Idempotent."""
        await self._end(id, ended, in_vain=True)

    async def _end(
        self, id: str, ended: Mapping[str, Any], *, in_vain: bool = False
    ) -> Literal["finished", "asked", "cancelled"]:
        while True:
            state = await state_of(self.redis, id)
            unread = await messages_of(self.redis, id, int(state[READ] or 0))
            end = ending(id, state, ended, retention=self.retention, undelivered=unread)
            arguments = end | {"cancel_channel": CANCEL, "in_vain": in_vain}
            answer = await CANCELLING.run(self.redis, [LEASES, *keys_of(id)], arguments)
            if answer == "gone":
                raise not_found(id)
            if answer != "again":
                return answer

    async def lapse(self, owner: str) -> int:
        """Ends the leases of a worker process that is gone. Returns their number."""
        return await LAPSE.run(self.redis, [LEASES], {"owner": owner, **RECORD_PARTS})

    async def reap(self, claim_seconds: float, at_most: int = 100) -> list[Reaped]:
        """Fences off lapsed runs and returns the delegations that need a new ticket; see ``reap.lua``."""
        arguments = {"claim_ms": int(claim_seconds * 1000), "at_most": at_most, **RECORD_PARTS, **COUNTING, **QUEUED}
        return [Reaped(**json.loads(found)) for found in await REAP.run(self.redis, [LEASES], arguments)]


def _check_accepted(verdict: str) -> None:
    """Raises what the verdict of the accept script stands for, if it accepted nothing."""
    if verdict == "fenced":
        raise Fenced
    if detail := REUSED.get(verdict):
        mistakes = [{"pointer": "/idempotencyKey", "detail": detail}]
        raise KeyReused(f"this idempotency key was {detail}; send a new key", mistakes)


def kept_for(key: str, owner: str) -> str:
    """Returns the key in Redis that has the delegation of an idempotency key.

    ``owner`` is the caller's token of the tokens file; "" is for all other callers, and for runs.
    """
    return owned_idempotency_key(owner, key) if owner else idempotency_key(key)


_LONGEST_CALL_ID = 180


def call_key(parent: str, turn: int, call: str) -> str:
    """Returns the idempotency key of one call's child delegation, so that a repeated call finds the same one."""
    return f"{parent}:{turn}:{call[:_LONGEST_CALL_ID]}"


async def children_of(store: RunStore, parent: str) -> dict[str, Delegation]:
    """Returns the child delegations that the parent's run created itself, by ``call_key``; not those of callers."""
    ids = sorted(await store.redis.smembers(children_key(parent)))
    paths = await fields_of_records(store.redis, ids, "path")  # which only what a run submits has
    found = await store.many([id for id, (path,) in zip(ids, paths, strict=True) if path])
    keys = [(child.request.idempotency_key or "", child) for child in found]
    return {key: child for key, child in keys if key.startswith(f"{parent}:")}


PAUSE, RESUME = Script("queue", "pause"), Script("resume")


async def pause_unfinished(redis: Any, before: str, *, temporary: bool) -> int:
    """Pauses what earlier stacks left, by the rules of ``pause.lua``; returns the number of paused delegations.

    No worker of another stack is alive. ``before`` is the smallest id of this stack's time; a ``temporary`` one lives
    only as long as the commands that use it.
    """
    return await PAUSE.run(redis, [LEASES], {"before": before, "temporary": temporary, **RECORD_PARTS, **QUEUED})


async def resume(redis: Any, id: str) -> None:
    """Goes on with a paused delegation and its children, or keeps this stack from pausing them.

    Raises ``NotFound``, and ``Conflict`` for a finished one.
    """
    for child in await redis.smembers(children_key(id)):
        with suppress(NotFound, Conflict):
            await resume(redis, child)
    verdict = await RESUME.run(redis, [record_key(id), LEASES], {"id": id, "mark": first_id(now())})
    if verdict == "gone":
        raise not_found(id)
    if verdict == "finished":
        raise Conflict(f"{id} is finished, so it cannot be resumed; `deputize show {id}` has its result")
