"""Lists and counts of delegations, over the sets in which finished ones are filed (``file.lua``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..delegation import Delegation, Status
from ..log import log
from ..status_counts import StatusCounts
from ..text import shortened
from .cost import PAGE, fields_of_records
from .disk import forget
from .keys import INDEX, LEASES, children_key, filed_key
from .record import LABELS, LISTED_CHARACTERS, OWNER, SESSION
from .store import RunStore

LOOKED_THROUGH = 51
"""Complete records that are read at a time: a page of the usual size, and whether another one follows."""
LOOKED_THROUGH_FOR_UNREADABLE = 500
"""Records, the unfinished ones first."""
_WARNED = 10_000
"""Ids of records that cannot be read that a process remembers."""
FILED_AT_A_TIME = 500
"""Ids of a set that are read at a time."""
Wanted = tuple[Status | None, str | None, Mapping[str, str], str | None]
"""What a list is filtered by: status, session, labels and owner."""


def sets_of(
    status: Status | None, session: str | None, labels: Mapping[str, str], owner: str | None = None
) -> list[str]:
    """Returns the keys of the sets (``file.lua``) whose common members are the finished delegations that match."""
    names = [*filter(None, [status, session and f"session:{session}", owner and f"owner:{owner}"])]
    return [filed_key(name) for name in (*names, *(f"label:{name}:{value}" for name, value in labels.items()))]


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Delegation]
    next_cursor: str | None


class RecordLists:
    """Lists the records of a store, and counts them."""

    def __init__(self, store: RunStore) -> None:
        self._redis: Any = store.redis
        self._many = store.many
        self._warned: set[str] = set()

    async def list(
        self,
        *,
        status: Status | None,
        session: str | None,
        labels: Mapping[str, str],
        limit: int,
        cursor: str | None,
        parent: str | None = None,
        owner: str | None = None,
    ) -> Page:
        """Returns a page, newest first, with long texts cut. The cursor is the last id of the previous page.

        What this version cannot read is left out, with a warning in the log: a list is for all the others.
        ``owner``: whose; None for all. With ``parent`` only the delegations that were submitted as its children, as
        long as its own record is kept.
        """
        items, unread = list[Delegation](), list[str]()
        children = None if parent is None else sorted(await self._redis.smembers(children_key(parent)), reverse=True)
        wanted, count, ids = (status, session, labels, owner), 1, [cursor or "~"]  # after every id
        while len(items) <= limit and len(ids) == count:
            # A record may be megabytes in size: no more of them are read at a time than needed.
            count = LOOKED_THROUGH if session == "" else min(LOOKED_THROUGH, limit + 1 - len(items))
            ids = await self._matching(wanted, ids[-1], count, children)
            found = await self._many(ids, sets_of(*wanted), unread)
            items += [brief(each) for each in found if matches(each, *wanted)]
        self._warn(unread)
        more = len(items) > limit
        return Page(items[:limit], items[limit - 1].id if more else None)

    def _warn(self, unread: Sequence[str]) -> None:
        if new := [id for id in unread if id not in self._warned]:
            self._warned = {*unread} if len(self._warned) > _WARNED else self._warned | {*new}
            log.warning("%s cannot be read by this version, and is in no list", ", ".join(new))

    async def unreadable(self) -> list[str]:
        """Returns the ids, of the unfinished and the newest delegations, whose records this version cannot read."""
        most = LOOKED_THROUGH_FOR_UNREADABLE
        ids = await self._redis.zrange(LEASES, 0, most - 1)
        ids = [*dict.fromkeys([*ids, *await self._redis.zrevrangebylex(INDEX, "+", "-", 0, most)])][:most]
        unread: list[str] = []
        for start in range(0, len(ids), LOOKED_THROUGH):
            await self._many(ids[start : start + LOOKED_THROUGH], (), unread)
        return unread

    async def counts(self, owner: str | None = None) -> StatusCounts:
        """Returns how many delegations there are of each status: of an owner, or all."""
        ids = await self._redis.zrange(LEASES, 0, -1)
        records = await fields_of_records(self._redis, ids, "status", "paused", OWNER)
        records = [each for each in records if owner in (None, each[2] or "")]
        found = Counter(status for status, _, _ in records if status and not Status(status).finished)
        found["paused"] = sum(status == Status.QUEUED and paused is not None for status, paused, _ in records)
        for status in (status for status in Status if status.finished):
            all_of, *others = sets_of(status, None, {}, owner)
            await self._forget_expired(all_of)
            common = self._redis.zintercard(1 + len(others), [all_of, *others]) if others else self._redis.zcard(all_of)
            found[status.value] = await common
        return StatusCounts(**found)

    async def _forget_expired(self, key: str) -> None:
        """Removes ids without a record from a set. They are the first ones: what was accepted early ends early."""
        while ids := await self._redis.zrange(key, 0, LOOKED_THROUGH - 1):
            records = await fields_of_records(self._redis, ids, "status")
            if expired := [id for id, (status,) in zip(ids, records, strict=True) if status is None]:
                await forget(self._redis, expired, [key])
            if len(expired) < len(ids):
                return

    async def _matching(self, wanted: Wanted, before: str, count: int, children: Sequence[str] | None) -> list[str]:
        """Returns the next ``count`` ids, newest first: of all delegations that match, or of those of ``children``."""
        (status, session, labels, owner), sets, found = wanted, sets_of(*wanted), list[str]()
        if children is None and not sets:
            return await self._redis.zrevrangebylex(INDEX, f"({before}", "-", 0, count)
        # The unfinished ones first: a run that ends in between is found twice, and not missed.
        leased = [] if status and status.finished else await self._redis.zrange(LEASES, 0, -1)
        rest = sorted((id for id in (leased if children is None else children) if id < before), reverse=True)
        while rest and len(found) < count:
            ids, rest = rest[:PAGE], rest[PAGE:]
            records = await fields_of_records(self._redis, ids, "status", SESSION, LABELS, OWNER)
            for id, fields in zip(ids, records, strict=True):
                fits = status in (None, fields[0]) and session in (None, fields[1])
                if (
                    fits
                    and owner in (None, fields[3] or "")
                    and labels.items() <= json.loads(fields[2] or "{}").items()
                ):
                    found.append(id)
        if children is None and (status is None or status.finished):
            found += await self._common(sets, before, count)
        return sorted({*found}, reverse=True)[:count]

    async def _common(self, sets: Sequence[str], before: str, count: int) -> list[str]:
        """Returns at least that many of the next ids that are in all of these sets, newest first, if there are so many.

        Only the smallest set is read, no further than needed.
        """
        sizes = {key: await self._redis.zcard(key) for key in sets}
        (smallest, *others), found, ids = sorted(sizes, key=sizes.__getitem__), list[str](), [before]
        while ids and len(found) < count:
            ids = await self._redis.zrevrangebylex(smallest, f"({ids[-1]}", "-", 0, FILED_AT_A_TIME)
            scores = [await self._redis.zmscore(key, ids) for key in others if ids]
            found += [id for id, *there in zip(ids, *scores, strict=True) if None not in there]
        return found


def matches(
    found: Delegation, status: Status | None, session: str | None, labels: Mapping[str, str], owner: str | None = None
) -> bool:
    return (
        (status is None or found.status == status)
        and owner in (None, found.owner or "")
        and (session is None or found.request.session_id == session)
        and labels.items() <= found.request.labels.items()
    )


def brief(found: Delegation) -> Delegation:
    """Returns a delegation with long texts cut, for lists: a page of complete ones could be a gigabyte."""
    asked = found.request
    texts = {name: getattr(asked, name) for name in ("task", "context", "expected_outcome", "system_prompt")}
    short = {name: shortened(text, LISTED_CHARACTERS) for name, text in texts.items() if text}
    result = found.result and found.result.model_copy(
        update={"details": shortened(found.result.details, LISTED_CHARACTERS)}
    )
    return found.model_copy(update={"request": asked.model_copy(update=short), "result": result})
