"""The janitor of a worker: it requeues what lost workers left, and deletes files that are not needed any more.

The standby of a killed worker ends its leases. Where it was killed, too, presence detects that within seconds: every
worker process holds a subscription, which the kernel ends with the process. A janitor that sees no subscriber for
ABSENT_SECONDS lets the leases of that process lapse. A frozen worker keeps its subscription, and one whose connection
is cut may be alive: leases and fences guarantee correctness, presence only speeds up detection.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from ...shared.background import RepeatedCause
from ...shared.bus import Bus
from ...shared.connection import REDIS_ERRORS, channel_in, database_of, retried, shielded
from ...shared.errors import DeputizeError, Unavailable
from ...shared.log import log
from ...shared.queue import Ticket
from ...shared.runs import disk
from ...shared.runs.keys import PRESENCE, PRUNE, presence_channel, record_key
from ...shared.runs.record import UPLOAD
from ...shared.runs.store import Reaped, RunStore
from ...shared.runs.upstreams import settle
from ...shared.settings import Settings
from ...shared.workspaces import UPLOADS, upload_path
from ..environments.store import Store
from ..threads import run_in_thread
from ..workspace.removal import delete_unused, delete_unused_files, disk_bytes
from ..workspace.snapshot_store import SnapshotStore

ABSENT_SECONDS = 2.0
"""A subscription restored within this time, for example after a restart of Redis, does not count as absent."""


class Presence:
    """One worker process's presence, and its view of the others'. ``owner`` is unique to the process."""

    def __init__(self, store: RunStore, bus: Bus, name: str) -> None:
        self._store = store
        self._bus = bus
        self.owner = f"{name}#{secrets.token_hex(4)}"
        self._absent: dict[str, float] = {}

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Shows the process as present while the block runs."""
        async with self._bus.listen(presence_channel(self.owner)):
            trouble = RepeatedCause("this process does not show that it is there")
            await retried(partial(self._store.redis.zadd, PRESENCE, {self.owner: time.time()}), trouble)
            yield
        with suppress(*REDIS_ERRORS):
            await self._store.redis.zrem(PRESENCE, self.owner)

    async def lapse_absent(self) -> list[str]:
        """Lets the leases of absent processes lapse; returns those processes."""
        owners: list[str] = await self._store.redis.zrange(PRESENCE, 0, -1)
        database = database_of(self._store.redis)
        channels = [channel_in(database, presence_channel(owner)) for owner in owners]
        counts = await self._store.redis.pubsub_numsub(*channels) if owners else []
        now = time.monotonic()
        since = {
            owner: self._absent.get(owner, now) for owner, (_, count) in zip(owners, counts, strict=True) if not count
        }
        self._absent = since
        gone = [owner for owner, moment in since.items() if now - moment >= ABSENT_SECONDS]
        for owner in gone:
            await self._store.lapse(owner)
            await self._store.redis.zrem(PRESENCE, owner)
        return gone


TICK_SECONDS = 0.5
SWEEP_SECONDS = 300.0
UNKNOWN_SECONDS = 3600.0
"""Seconds to keep files without a record: it may not be written yet, or be in another Redis."""


@dataclass(slots=True)
class Janitor:
    """One per worker process; each handles the leftovers of any worker."""

    settings: Settings
    store: RunStore
    bus: Bus
    presence: Presence
    send: Callable[[Sequence[Ticket]], None]
    snapshots: SnapshotStore | None = None
    drains: Callable[[], bool] = lambda: False
    """Returns whether this worker takes no tickets. What is cancelled ends here then: there may be no other worker."""
    end: Callable[[str], Awaitable[object]] | None = None
    """Carries out a delegation that is cancelled, to its end."""
    _to_end: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])

    async def requeue_forever(self) -> None:
        trouble = RepeatedCause("this worker does not look for lost runs")
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await shielded(self.requeue())
                trouble.works()
            except (*REDIS_ERRORS, Unavailable) as error:
                trouble.failed(error)

    async def requeue(self) -> int:
        """Fences off lapsed runs, settles what waited for others, and sends tickets; returns their number."""
        for owner in await self.presence.lapse_absent():
            log.warning("worker %s is gone; its runs are requeued", owner)
        found: list[Reaped] = []
        for one in await self.store.reap(self.settings.claim_seconds):
            if one.kind != "decided":
                log.warning("%s is %s after %d attempts: another ticket", one.id, one.kind, one.attempt)
            elif not await settle(self.store, one.id):
                continue
            if self.end and self.drains() and await self.store.redis.hget(record_key(one.id), "cancel"):
                self._to_end.put_nowait(one.id)
                continue
            found.append(one)
        if found:
            await asyncio.to_thread(self.send, [Ticket(one.id, one.title, one.priority) for one in found])
        return len(found)

    async def end_forever(self) -> None:
        """Ends what was cancelled while this worker drains, one after the other. An error in one affects no other."""
        while True:
            id = await self._to_end.get()
            assert self.end
            # In a task of its own: a CancelledError that the run raises is not one of this task.
            (error,) = await asyncio.gather(self.end(id), return_exceptions=True)
            if isinstance(error, BaseException):
                is_known = isinstance(error, (*REDIS_ERRORS, DeputizeError, OSError))
                log.warning(
                    "%s is cancelled and could not be ended here: %s",
                    id,
                    error if is_known else repr(error),
                    exc_info=None if is_known else error,
                )

    async def sweep_forever(self) -> None:
        """Sweeps at the start, as a stack may live for one command only, then every few minutes, and on request.

        At the start files without a record stay: Redis may have lost its data, or be another one.
        """
        async with self.bus.listen(PRUNE) as asked:
            await self._swept(self.sweep(self.settings.workspace_retention_seconds, spares_unknown=True))
            while True:
                older_than, gone = float(self.settings.workspace_retention_seconds), list[str]()
                try:
                    # Not wait_for: in Python 3.11 it may take the message and swallow a cancellation.
                    async with asyncio.timeout(SWEEP_SECONDS):
                        message = await asked.get()
                    if message:
                        seconds, *gone = message.split()
                        older_than = float(seconds)
                except TimeoutError:
                    pass
                await self._swept(self.sweep(older_than, gone))

    async def _swept(self, sweep: Awaitable[int]) -> None:
        try:
            await sweep
        except REDIS_ERRORS as error:
            log.warning("unused files could not be deleted: %s", error)

    async def sweep(self, older_than: float, pruned: Collection[str] = (), *, spares_unknown: bool = False) -> int:
        """Deletes workspaces of delegations pruned or ended over ``older_than`` seconds ago; returns the number.

        Then those that ended first, until the others take no more than the setting allows. What an unfinished
        delegation continues stays, and what another process copies just now until a later sweep. Prepared environments,
        uploads and clones go as their own settings state. ``pruned`` are ids from a message: a service of version 0.1.0
        does not list them. With ``spares_unknown`` files stay whose record is missing, unless it was pruned.

        A cancellation takes effect after the workspace that is being deleted.
        """
        await shielded(self._sweep_uploads())
        if await asyncio.to_thread(self.settings.prepared.exists):
            await run_in_thread(Store(self.settings.prepared).evict, self.settings.environments)
        removed = 0
        for folder in await shielded(self._due(older_than, pruned, spares_unknown)):
            removed += await shielded(self._remove(folder))
        if removed:
            log.info("%d workspaces removed", removed)
        for folder in await asyncio.to_thread(_unused_clones, self.settings.repositories, older_than):
            await run_in_thread(delete_unused, folder)
        return removed

    async def _due(self, older_than: float, pruned: Collection[str], spares_unknown: bool) -> list[Path]:
        """Returns the workspaces to delete."""
        if not (folders := await asyncio.to_thread(_folders, self.settings.workspaces)):
            return []
        ended = await self.store.ended(list({id for id, _ in folders}))
        unknown = [id for id, finished in ended.items() if not finished]
        due = {*unknown} & {*pruned, *await disk.pruned(self.store.redis, unknown)}
        by_age = {*ended} - {*(unknown if spares_unknown else ())}
        gone = [each for id, each in folders if id in due or (id in by_age and _age(ended[id], each) > older_than)]
        gone += await self._over_limit([(ended[id], id, each) for id, each in folders if ended.get(id)], gone)
        held = await disk.held(self.store.redis) if gone else set[str]()
        return [folder for folder in gone if folder.name not in held]

    async def _remove(self, folder: Path) -> bool:
        """Deletes a workspace that nothing uses, and what else is kept of it. Returns whether it is gone."""
        if not await run_in_thread(delete_unused, folder):
            return False
        await disk.note_removed(self.store.redis, folder.name)
        if self.snapshots:
            try:
                await run_in_thread(self.snapshots.delete, folder.name)
            except OSError as error:
                log.warning("%s", error)
        return True

    async def _sweep_uploads(self) -> None:
        """Deletes uploads whose time is over; what is accepted after the question to Redis has begun it anew."""
        folder, seconds = self.settings.workspaces / UPLOADS, self.settings.upload_retention_seconds
        if await asyncio.to_thread(folder.exists):
            needed = await disk.held(self.store.redis, UPLOAD)
            paths = {upload_path(self.settings.workspaces, upload) for upload in needed}
            await asyncio.to_thread(delete_unused_files, folder, seconds, paths)

    async def _over_limit(self, kept: list[tuple[str, str, Path]], gone: Collection[Path]) -> list[Path]:
        """Returns the folders to delete besides ``gone`` so that the rest is not too large; never the last one."""
        rest = sorted(each for each in kept if each[2] not in gone)
        sizes = await disk.sizes_on_disk(self.store.redis, [id for _, id, _ in rest])
        for _, id, folder in rest:
            if id not in sizes:
                sizes[id] = await run_in_thread(disk_bytes, folder) or 0
        more, found = sum(sizes.values()) - self.settings.workspace_kept_bytes, list[Path]()
        for _, id, folder in rest[:-1]:
            if more > 0:
                found.append(folder)
                more -= sizes[id]
        return found


def _folders(root: Path) -> list[tuple[str, Path]]:
    """Returns workspaces with their delegation ids, and old unfinished ones of crashed workers."""
    found = [(path.name, path) for path in root.glob("dlg_*") if "." not in path.name]
    halves = [*root.glob("dlg_*.*"), *root.glob("selftest-*"), *root.glob("survey-*")]
    return found + [(path.name, path) for path in halves if _age("", path) > 0]


def _unused_clones(root: Path, older_than: float) -> list[Path]:
    """Returns clones of repositories that no run was copied from for so long, then repositories; a use renews both."""
    return [path for path in (*root.glob("*/clones/*"), *root.glob("*")) if _age("", path) > older_than]


def _age(ended: str, folder: Path) -> float:
    """Returns the seconds since the delegation ended; where unknown, since its files were made, less a grace period."""
    if ended:
        return time.time() - datetime.fromisoformat(ended).timestamp()
    try:
        return time.time() - folder.stat().st_mtime - UNKNOWN_SECONDS
    except FileNotFoundError:
        return 0.0
