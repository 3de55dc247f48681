"""What the janitor finds, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

from deputize.shared.connection import connect
from deputize.shared.queue import Ticket
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import LEASES, PRESENCE, PRUNE
from deputize.worker.fleet.janitor import Janitor
from deputize.worker.fleet.presence import Presence
from tests.running import Bench, call, say, script
from tests.waiting import until

WRITE = call("write_file", path="a.txt", content="x")


def janitor(bench: Bench, sent: list[Ticket]) -> Janitor:
    return Janitor(bench.settings, bench.store, bench.bus, Presence(bench.store, bench.bus, "eye"), sent.extend)


async def test_a_delegation_that_nobody_claimed_gets_another_ticket(bench: Bench) -> None:
    id = await bench.accept(DelegationRequest(task="wait", priority=7))
    sent: list[Ticket] = []
    assert await janitor(bench, sent).requeue() == 0
    await bench.store.redis.zadd(LEASES, {id: 1})
    await until(lambda: bench.sent)
    assert [(ticket.id, ticket.title, ticket.priority) for ticket in bench.sent] == [(id, "wait", 7)]


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
    assert await bench.store.prune(0) == 1
    await until(lambda: not folder.exists())


async def test_a_delegation_that_goes_on_keeps_its_files_whoever_names_it(bench: Bench) -> None:
    active = await bench.accept(DelegationRequest(task="wait"))
    folder = bench.settings.workspaces / active
    folder.mkdir(parents=True)
    assert await janitor(bench, []).sweep(0, [active]) == 0
    assert folder.exists()


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
