"""What the janitor finds, and what it leaves alone."""

from __future__ import annotations

import asyncio
import fcntl
import os
from functools import partial
from pathlib import Path

import pytest
import redis

from deputize.shared.connection import connect
from deputize.shared.errors import Unavailable
from deputize.shared.queue import Ticket
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.disk import prune
from deputize.shared.runs.keys import LEASES, PRESENCE, PRUNE, PRUNED, keys_of, record_key
from deputize.shared.runs.record import DISK
from deputize.shared.workspaces import upload_path, use_upload
from deputize.worker.fleet.janitor import Janitor, Presence
from deputize.worker.task import carry_out
from deputize.worker.workspace.removal import in_use
from deputize.worker.workspace.snapshot_store import SnapshotStore
from tests.processes.leaks import endless_keys
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.waiting import until
from tests.worker.workspace.archives import store, tar

WRITE = call("write_file", path="a.txt", content="x")


def janitor(bench: Bench, sent: list[Ticket]) -> Janitor:
    return Janitor(bench.settings, bench.store, bench.bus, Presence(bench.store, bench.bus, "eye"), sent.extend)


class Stopping(SnapshotStore):
    """Stops a task when it is to delete what it has of a run."""

    stopped: asyncio.Task[None]

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(url)
        self._loop = loop

    def delete(self, folder: str) -> None:
        self._loop.call_soon_threadsafe(self.stopped.cancel)


async def test_an_unclaimed_delegation_gets_another_ticket(bench: Bench) -> None:
    id = await bench.accept(DelegationRequest(task="wait", priority=7))
    sent: list[Ticket] = []
    assert await janitor(bench, sent).requeue() == 0
    await bench.store.redis.zadd(LEASES, {id: 1})
    await until(lambda: bench.sent)
    assert [(ticket.id, ticket.title, ticket.priority) for ticket in bench.sent] == [(id, "wait", 7)]


async def test_a_draining_worker_ends_cancelled_runs_and_sends_tickets_for_others(bench: Bench, tmp_path: Path) -> None:
    hold = call("bash", command="touch begun; exec sleep 1000")
    model = script(tmp_path, [WRITE], [hold], [say("done")])
    ids = [await bench.accept(DelegationRequest(task="x", model=model)) for _ in range(2)]
    for id in ids:
        await bench.interrupt(id, (bench.settings.workspaces / id / "files" / "begun").exists)
    own = bench.services.janitor
    assert own
    own.drains, own.end = lambda: True, partial(carry_out, bench.services)
    await bench.store.cancel(ids[0])
    await until(partial(_is_finished, bench, ids[0]))
    bench.sent.clear()  # a look before the cancel may have sent a ticket for each
    await bench.store.redis.zadd(LEASES, {ids[1]: 1})
    await until(lambda: bench.sent)
    result = await bench.result(ids[0])
    assert (result.termination_reason, result.files_modified) == ("cancelled", ["a.txt", "begun"])
    assert {ticket.id for ticket in bench.sent} == {ids[1]}
    assert (await bench.store.get(ids[1])).status == "queued"


@pytest.mark.parametrize(
    "error", [Unavailable("the disk is full"), KeyError("turns"), asyncio.CancelledError()], ids=repr
)
async def test_what_cannot_be_ended_is_tried_again_and_the_next_one_is_ended(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    tried: list[str] = []

    async def end(id: str) -> None:
        tried.append(id)
        if len(tried) == 1:
            raise error

    own = bench.services.janitor
    assert own
    own.drains, own.end = lambda: True, end
    ids = [await bench.accept(DelegationRequest(task="x")) for _ in range(2)]
    for id in ids:
        claim = await bench.services.claim(id)
        assert claim
        await bench.services.release(claim)
        await bench.store.cancel(id)
        await until(lambda id=id: id in tried)
    await bench.store.redis.zadd(LEASES, {ids[0]: 1})
    await until(lambda: tried == [*ids, ids[0]])
    assert f"{ids[0]} is cancelled and could not be ended here: " in caplog.text


async def _is_finished(bench: Bench, id: str) -> bool:
    return (await bench.store.get(id)).status.finished


async def test_files_go_when_their_time_is_over_and_not_before(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    active = await bench.accept(DelegationRequest(task="wait"))
    folders = {id: bench.settings.workspaces / id for id in (result.delegation_id, active, "dlg_unknown")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    sweeping = janitor(bench, [])
    assert await sweeping.sweep(older_than=3600) == 0
    assert await sweeping.sweep(older_than=0) == 1
    assert [id for id, folder in folders.items() if folder.exists()] == [active, "dlg_unknown"]


async def test_the_files_of_what_was_pruned_go_with_it(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    folder = bench.settings.workspaces / result.delegation_id
    assert folder.exists()
    await until(lambda: bench.store.redis.publish(PRUNE, "3600"))  # a janitor listens
    assert (await prune(bench.store.redis, 0)).removed == 1
    await until(lambda: not folder.exists())


async def test_files_of_what_was_pruned_without_a_worker_go_when_one_starts(redis_url: str, tmp_path: Path) -> None:
    """On each machine those that are there."""
    folders = list[Path]()
    for machine in ("one", "two"):
        async with open_bench(redis_url, tmp_path / machine, name=machine) as bench:
            result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
            folders.append(bench.settings.workspaces / result.delegation_id)
    async with connect(redis_url) as redis:
        assert (await prune(redis, 0)).removed == 2
    assert [folder.exists() for folder in folders] == [True, True]
    for machine, folder in zip(("one", "two"), folders, strict=True):
        async with open_bench(redis_url, tmp_path / machine, name=machine):
            await until(lambda folder=folder: not folder.exists())


async def test_what_is_due_by_age_goes_when_a_worker_starts(redis_url: str, tmp_path: Path) -> None:
    """A stack that lives for one command applies the settings, too."""
    async with open_bench(redis_url, tmp_path / "home") as bench:
        result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
        folder = bench.settings.workspaces / result.delegation_id
    async with open_bench(redis_url, tmp_path / "home", workspace_retention_seconds=0):
        await until(lambda: not folder.exists())


async def test_a_missing_record_proves_nothing_unless_it_was_pruned(bench: Bench, tmp_path: Path) -> None:
    """A failover may have taken it, or have brought back one that was pruned."""
    ids = [(await bench.run(model=script(tmp_path, [WRITE], [say("done")]))).delegation_id for _ in range(2)]
    folders = [bench.settings.workspaces / id for id in ids]
    await bench.store.redis.delete(*keys_of(ids[0]))
    await bench.store.redis.zadd(PRUNED, {ids[1]: 0})
    await bench.store.redis.expire(PRUNED, 60)
    assert await janitor(bench, []).sweep(3600) == 0
    assert [folder.exists() for folder in folders] == [True, True]
    await bench.store.redis.delete(*keys_of(ids[1]))
    os.utime(folders[0], (1, 1))
    assert await janitor(bench, []).sweep(3600, spares_unknown=True) == 1
    assert [folder.exists() for folder in folders] == [True, False]
    assert await janitor(bench, []).sweep(3600) == 1
    assert not folders[0].exists()


async def test_a_worker_that_stops_does_not_wait_until_all_is_deleted(bench: Bench, tmp_path: Path) -> None:
    ids = [(await bench.run(model=script(tmp_path, [WRITE], [say("done")]))).delegation_id for _ in range(2)]
    stopping = Stopping(f"file://{tmp_path}", asyncio.get_running_loop())
    sweeping = janitor(bench, [])
    sweeping.snapshots = stopping
    sweeping.settings = bench.settings.model_copy(update={"workspace_retention_seconds": 0})
    stopping.stopped = asyncio.create_task(sweeping.sweep_forever())
    await asyncio.wait({stopping.stopped})
    assert stopping.stopped.cancelled()
    (left,) = [id for id in ids if (bench.settings.workspaces / id).exists()]
    assert [id for id in ids if (await bench.store.get(id)).disk_bytes] == [left]


async def test_a_continued_delegation_keeps_its_files_for_any_delegation_that_names_it(bench: Bench) -> None:
    active = await bench.accept(DelegationRequest(task="wait"))
    folder = bench.settings.workspaces / active
    folder.mkdir(parents=True)
    assert await janitor(bench, []).sweep(0, [active]) == 0
    assert folder.exists()


async def test_above_the_limit_the_files_of_those_that_ended_first_go_and_never_the_last_ones(
    bench: Bench, tmp_path: Path
) -> None:
    model = script(tmp_path, [WRITE], [say("done")])
    ids = [(await bench.run(model=model)).delegation_id for _ in range(3)]
    sizes = [(await bench.store.get(id)).disk_bytes or 0 for id in ids]
    assert all(size >= 4096 for size in sizes)
    await bench.store.redis.hdel(record_key(ids[1]), DISK)  # measured then
    for kept_bytes, kept in ((sum(sizes), ids), (sum(sizes) - 1, ids[1:]), (0, ids[2:])):
        settings = bench.settings.model_copy(update={"workspace_kept_bytes": kept_bytes})
        sweeping = Janitor(settings, bench.store, bench.bus, Presence(bench.store, bench.bus, "eye"), bench.sent.extend)
        await sweeping.sweep(3600)
        assert [id for id in ids if (bench.settings.workspaces / id).exists()] == kept
    assert [(await bench.store.get(id)).disk_bytes for id in ids] == [0, 0, sizes[2]]


async def test_what_an_unfinished_delegation_continues_is_neither_pruned_nor_swept(
    bench: Bench, tmp_path: Path
) -> None:
    first = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    folder = bench.settings.workspaces / first.delegation_id
    going_on = await bench.accept(DelegationRequest(task="more", continues=first.delegation_id))
    assert (await prune(bench.store.redis, 0)).removed == 0
    assert await janitor(bench, []).sweep(0) == 0
    assert folder.exists()
    await bench.store.cancel(going_on)
    await janitor(bench, []).sweep(0)
    await until(lambda: not folder.exists())  # the janitor of the bench may have begun to sweep, as prune asked it to


async def test_files_are_not_removed_while_they_are_copied_but_later(bench: Bench, tmp_path: Path) -> None:
    first = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    folder = bench.settings.workspaces / first.delegation_id
    with in_use(folder):
        assert (await prune(bench.store.redis, 0)).removed == 1
        assert await janitor(bench, []).sweep(3600) == 0
        assert (folder / "files/a.txt").exists()
    await janitor(bench, []).sweep(3600)
    await until(lambda: not folder.exists())  # the janitor of the bench may have begun to sweep, as prune asked it to


async def test_what_a_service_of_an_older_version_prunes_goes_by_its_message(bench: Bench, tmp_path: Path) -> None:
    first = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    await bench.store.redis.delete(*keys_of(first.delegation_id))
    assert await janitor(bench, []).sweep(3600, [first.delegation_id]) == 1


async def test_an_upload_goes_when_its_time_is_over_and_no_unfinished_delegation_needs_it(bench: Bench) -> None:
    root = bench.settings.workspaces
    needed, unused, fresh = [store(root, tar((name, b"1"))) for name in "abc"]
    paths = {spec.upload: upload_path(root, spec.upload) for spec in (needed, unused, fresh)}
    half = paths[fresh.upload].with_name("0123.part")
    half.write_bytes(b"1")
    active = await bench.accept(DelegationRequest(task="wait", workspace=needed))
    for path in (paths[needed.upload], paths[unused.upload], half):
        os.utime(path, (1, 1))
    sweeping = janitor(bench, [])
    with half.open("rb") as writing:
        fcntl.flock(writing, fcntl.LOCK_SH)
        assert await sweeping.sweep(0) == 0
        assert {path.name for path in half.parent.iterdir()} == {
            half.name,
            paths[needed.upload].name,
            paths[fresh.upload].name,
        }
    await bench.store.cancel(active)
    await sweeping.sweep(0)
    assert [path.name for path in half.parent.iterdir()] == [paths[fresh.upload].name]


async def test_an_upload_that_is_used_while_it_is_to_go_stays(bench: Bench) -> None:
    root = bench.settings.workspaces
    spec = store(root, tar(("a", b"1")))
    os.utime(upload_path(root, spec.upload), (1, 1))
    assert use_upload(root, spec.upload) is not None
    await janitor(bench, []).sweep(0)
    assert use_upload(root, spec.upload) is not None
    os.utime(upload_path(root, spec.upload), (1, 1))
    await janitor(bench, []).sweep(0)
    assert use_upload(root, spec.upload) is None


async def test_a_sweep_can_be_asked_for(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    async with connect(bench.settings.redis_url or "") as redis:
        await until(lambda: redis.publish(PRUNE, "0"))
    await until(lambda: not (bench.settings.workspaces / result.delegation_id).exists())


async def test_the_leases_of_a_worker_that_is_gone_end_before_their_time(bench: Bench) -> None:
    bus = bench.bus
    lost, kept = [Presence(bench.store, bus, "worker-9") for _ in range(2)]
    ids = [await bench.accept(DelegationRequest(task="wait")) for _ in range(2)]
    async with kept.shown():
        async with lost.shown():
            for id, presence in zip(ids, (lost, kept), strict=True):
                assert await bench.store.claim(id, "token", "worker-9", 3600, presence.owner)
            assert await kept.lapse_absent() == []
        # What a killed process leaves: its name, without a subscription.
        await bench.store.redis.zadd(PRESENCE, {lost.owner: 1})
        assert await until(kept.lapse_absent, 10) == [lost.owner]
        due = await bench.store.redis.zrangebyscore(LEASES, 0, 0)
        assert due in ([ids[0]], [])  # the bench's own janitor may have taken it already
        assert await bench.store.redis.zscore(LEASES, ids[1]) > 0
    await until(lambda: [ticket.id for ticket in bench.sent] == [ids[0]])


# However a delegation ended, every key of it has an end.


async def check(bench: Bench, id: str, status: str, at_least: int) -> None:
    """It ended so, and each of its keys, at least so many, goes with the retention."""
    assert (await bench.store.get(id)).status == status
    lives = [await bench.store.redis.ttl(key) for key in keys_of(id)]
    there = [life for life in lives if life != -2]
    assert len(there) >= at_least
    assert all(0 < life <= bench.settings.retention_seconds for life in there)
    with redis.Redis.from_url(bench.settings.redis_url or "") as client:
        assert endless_keys(client) == []


async def test_one_that_succeeded(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("done")]))
    await check(bench, result.delegation_id, "succeeded", 3)


async def test_one_that_failed(bench: Bench, tmp_path: Path) -> None:
    result = await bench.run(model=script(tmp_path, [WRITE], [say("never")]), limits={"max_turns": 1})
    await check(bench, result.delegation_id, "failed", 3)


async def test_one_that_never_found_its_files(bench: Bench, tmp_path: Path) -> None:
    workspace = {"kind": "directory", "path": str(tmp_path / "gone")}
    request = DelegationRequest.model_validate({"task": "t", "workspace": workspace, "model": script(tmp_path)})
    id = await bench.accept(request)
    await carry_out(bench.services, id)
    await check(bench, id, "failed", 2)


async def test_one_that_was_cancelled_before_its_start(bench: Bench) -> None:
    id = await bench.accept(DelegationRequest(task="wait"))
    await bench.store.cancel(id)
    await check(bench, id, "cancelled", 2)


async def test_one_that_was_resumed_and_has_a_child(bench: Bench, tmp_path: Path) -> None:
    turns = [[WRITE], [call("bash", command="touch held; exec sleep 1000")], [say("done")]]
    id = await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, *turns)))
    child = await bench.accept(DelegationRequest(task="help", parent_id=id))
    await bench.interrupt(id, lambda: [*bench.settings.workspaces.rglob("held")])
    await carry_out(bench.services, id)
    assert (await bench.result(id)).attempts == 2
    await check(bench, id, "succeeded", 4)
    assert (await bench.store.get(child)).status == "queued"
