"""Permission requests in Redis: kept with their run, answered once, and listed while they wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..connection import Script
from ..delegation import Delegation, Status
from ..errors import Conflict, Invalid, NotFound
from ..ids import new_id
from ..permission import (
    PermissionAnswer,
    PermissionOutcome,
    PermissionRequest,
    covered_by,
    grants_of,
)
from ..wire import now
from ..wording import answer_words
from .keys import PENDING, grants_key, permission_channel, permissions_key, record_key
from .permission_fields import KeptRequest, delegation_of, kept_request, subject_field

if TYPE_CHECKING:
    from .replicas import Replicas

ANSWER = Script("answer")


async def pending(redis: Any, delegation: str | None = None) -> list[KeptRequest]:
    """Returns the requests that wait for an answer, the oldest first; of one delegation and those below it, or all."""
    paths: Mapping[str, str] = await redis.hgetall(PENDING)
    ids = [id for id, path in paths.items() if delegation is None or delegation in path.split()]
    found = [kept for kept in await _read(redis, ids) if not kept.is_over]
    return sorted(found, key=lambda kept: (kept.request.created_at, kept.id))


async def _read(redis: Any, ids: Sequence[str]) -> list[KeptRequest]:
    async with redis.pipeline(transaction=False) as pipeline:
        for id in ids:
            pipeline.hmget(permissions_key(delegation_of(id) or ""), [id, subject_field(id)])
        texts = await pipeline.execute()
    if gone := [id for id, (request, _) in zip(ids, texts, strict=True) if request is None]:
        await redis.hdel(PENDING, *gone)
    return [kept_request(*both) for both in texts if both[0] is not None]


async def find(redis: Any, id: str) -> KeptRequest:
    """Returns the request, answered or not. Raises ``NotFound``."""
    texts: list[Any] = [None]
    if asker := delegation_of(id):
        texts = await redis.hmget(permissions_key(asker), [id, subject_field(id)])
    if texts[0] is None:
        raise unknown(id)
    return kept_request(*texts)


def unknown(id: str) -> NotFound:
    return NotFound(
        f"there is no permission request {id[:100]}; it never was, or the retention of its delegation is over. "
        "`deputize permissions` lists those that wait"
    )


async def answer(redis: Any, id: str, given: PermissionAnswer, replicas: Replicas | None = None) -> PermissionRequest:
    """Writes the answer of a request, and answers those of the same run tree that it covers, too.

    Raises ``NotFound``, ``Invalid``, ``Conflict`` where it was answered before or does not wait any more, and
    ``Unacknowledged`` where too few ``replicas`` have the answer.
    """
    kept = await find(redis, id)
    _check(kept, given)
    verdict, *before = await write_answer(redis, kept, given, replicas=replicas)
    match verdict:
        case "before":
            first = PermissionAnswer.model_validate_json(before[0])
            how = answer_words(first.outcome, first.by, None)
            raise Conflict(f"{id} was answered before: {how} at {first.at:%H:%M:%S} UTC")
        case "expired":
            raise Conflict(f"{id} expired: its time to be answered ended at {kept.request.expires_at:%H:%M:%S} UTC")
        case "closed":
            raise Conflict(
                f"{id} does not wait for an answer any more: its run goes on without it, has ended or has started again"
            )
        case _:
            await answer_covered(redis, kept, given)
    return kept.request


async def write_answer(
    redis: Any,
    kept: KeptRequest,
    given: PermissionAnswer,
    *,
    ends: bool = False,
    replicas: Replicas | None = None,
) -> list[str]:
    """Writes the answer, if it is the first one; ``ends``: because the time is over. See ``answer.lua``."""
    asker, root = kept.request.delegation_id, kept.request.path[0]
    keys = [permissions_key(asker), PENDING, grants_key(root), record_key(root)]
    arguments = {
        "id": kept.id,
        "answer": given.to_json(),
        "sending": new_id("ans"),
        "expires_ms": int(kept.request.expires_at.timestamp() * 1000),
        "ends": ends,
        "grants": grants_of(kept.subject, given.outcome),
        "channel": permission_channel(asker),
    }
    return await (replicas.run(redis, ANSWER, keys, arguments) if replicas else ANSWER.run(redis, keys, arguments))


async def answer_covered(redis: Any, kept: KeptRequest, given: PermissionAnswer) -> None:
    """Answers the other requests of the run tree that an answer covers. A worker does it for those that come later."""
    grants = grants_of(kept.subject, given.outcome)
    for other in await pending(redis, kept.request.path[0]) if grants else ():
        if covered_by(other.subject, grants):
            await write_answer(redis, other, by_grant(given))


def by_grant(given: PermissionAnswer) -> PermissionAnswer:
    """Returns the answer of a request that a remembered answer covers; it grants nothing further."""
    outcome = PermissionOutcome.PROCEED_ONCE
    return PermissionAnswer(outcome=outcome, reason=f"covered by the answer {given.outcome}", by=given.by, at=now())


def _check(kept: KeptRequest, given: PermissionAnswer) -> None:
    if given.outcome.is_remembered and given.outcome not in kept.request.remembers:
        there = ", ".join(kept.request.remembers)
        detail = f"{given.outcome} does not apply to this call; there are proceed_once, modify, cancel, {there}"
        raise Invalid.at("/outcome", detail)
    if (given.outcome is PermissionOutcome.MODIFY) != (given.arguments is not None):
        detail = "the outcome modify, and no other one, needs arguments: all those of the call, changed"
        raise Invalid.at("/arguments", detail)


async def with_pending(redis: Any, delegations: Sequence[Delegation]) -> list[Delegation]:
    """Returns the delegations with the ids of the requests that they and those below them wait for."""
    if not any(each.status is Status.WAITING for each in delegations):
        return [*delegations]
    paths = {id: path.split() for id, path in (await redis.hgetall(PENDING)).items()}
    return [
        each.model_copy(update={"pending_permissions": sorted(id for id, path in paths.items() if each.id in path)})
        for each in delegations
    ]
