"""Two versions side by side, as during an upgrade: what one of them does not know does no harm.

The newer one is played by what it would have stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli.doctor_service import redis_rows
from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.delegation import Status
from deputize.shared.errors import Conflict
from deputize.shared.events import Envelope
from deputize.shared.request import After, DelegationRequest
from deputize.shared.runs.keys import EVENTS, LEASES, channel, events_key, history_key, record_key
from deputize.shared.runs.record_lists import RecordLists
from deputize.shared.runs.upstreams import settle
from deputize.worker.task import carry_out
from tests.runs.bench import Bench, say, script
from tests.waiting import until

NOVELTY: dict[str, Any] = {"seq": 2, "at": "2026-11-26T12:00:00Z", "attempt": 0, "type": "novelty"}


@pytest.fixture
async def service(bench: Bench, redis_url: str) -> AsyncIterator[Delegations]:
    async with open_service(bench.settings, redis_url) as service:
        yield service


@pytest.fixture
async def id(bench: Bench, tmp_path: Path) -> str:
    return await bench.accept(DelegationRequest(task="do it", model=script(tmp_path, [say("done")])))


async def asks_for(bench: Bench, id: str, **fields: Any) -> dict[str, Any]:
    """Gives a stored request these fields, in its event, too; returns it as it was."""
    redis, key = bench.store.redis, record_key(id)
    asked = json.loads(await redis.hget(key, "request"))
    await redis.hset(key, "request", json.dumps(asked | fields))
    ((number, entry),) = await redis.xrange(events_key(id))
    event = json.loads(entry["e"])
    await redis.delete(events_key(id))
    await redis.xadd(events_key(id), {"e": json.dumps(event | {"request": asked | fields})}, id=number)
    return asked


@pytest.mark.parametrize("fields", [{"novelty": True}, {"approvalMode": "novel"}], ids=repr)
async def test_a_worker_leaves_what_it_cannot_read_to_a_newer_one(
    bench: Bench, id: str, fields: dict[str, Any]
) -> None:
    """Also its start: nothing has begun."""
    asked = await asks_for(bench, id, **fields)
    redis, key = bench.store.redis, record_key(id)
    for _ in range(4):  # a run ends that has lost three workers
        assert await carry_out(bench.services, id) is None
        kept = await redis.hmget(key, ["status", "attempt", "fence", "lost", "ended", "started"])
        assert kept == ["queued", "0", "", "0", None, None]
        assert await redis.zscore(LEASES, id) is not None
    await redis.hset(key, "request", json.dumps(asked))  # a newer worker can read it
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.summary, result.attempts) == ("done", 1)


UNKNOWN_FORMS = {
    "limits": '{"maxTurns": 7, "maxNovelties": 1}',
    "checkpoint": "novel",
    "trust": "[]",
    "elapsed_ms": "1.5s",
    "file_turns": "[1, [], 2, 3]",
    "read": "novel",
    "webhook": "{}",
}
"""Other forms of what a worker reads when it claims a run."""


@pytest.mark.parametrize("field", UNKNOWN_FORMS)
async def test_another_form_of_any_part_of_a_record_is_left_to_a_newer_worker(
    bench: Bench, id: str, field: str
) -> None:
    redis, key = bench.store.redis, record_key(id)
    before = await redis.hget(key, field)
    await redis.hset(key, field, UNKNOWN_FORMS[field])
    for _ in range(4):
        assert await carry_out(bench.services, id) is None
        assert await redis.hmget(key, ["status", "attempt"]) == ["queued", "0"]
    await (redis.hdel(key, field) if before is None else redis.hset(key, field, before))
    await carry_out(bench.services, id)
    assert (await bench.result(id)).summary == "done"


@pytest.mark.parametrize("entry", ["a long text: \x0199:0:9\x01", "a long text: \x011:0:9:novel\x01"], ids=repr)
async def test_a_conversation_that_refers_to_what_is_unknown_is_left_to_a_newer_worker(
    bench: Bench, id: str, entry: str
) -> None:
    redis = bench.store.redis
    await bench.services.claim(id)
    await bench.lose(id)
    await redis.rpush(history_key(id), entry)
    claim = await bench.services.claim(id)
    assert claim is None or claim.history == [entry.encode()]
    if claim is None:
        assert await redis.hmget(record_key(id), ["status", "attempt"]) == ["queued", "1"]


async def lost_by_an_older_worker(bench: Bench, id: str) -> None:
    """It claims what it cannot read, and does not come as far as its lease."""
    redis, key = bench.store.redis, record_key(id)
    attempt = await redis.hincrby(key, "attempt", 1)
    await redis.hset(key, mapping={"status": "running", "fence": f"{attempt}:older", "owner": "older"})
    await bench.lose(id)


@pytest.mark.parametrize(
    ("attempts", "ending"),
    [
        ("oooooo", "completed"),
        ("nnoooo", "completed"),
        ("onon", "completed"),
        ("ohnohnhh", "completed"),
        ("onnon", "worker_lost"),
        ("nnn", "worker_lost"),
    ],
)
async def test_only_workers_that_could_read_a_run_count_as_lost_by_it(
    bench: Bench, id: str, attempts: str, ending: str
) -> None:
    """Of these attempts, o is one of an older worker, n is lost by one of this version, h is handed over by one."""
    for attempt in attempts:
        if attempt == "o":
            await lost_by_an_older_worker(bench, id)
            continue
        claim = await bench.services.claim(id)
        assert claim is not None
        await (bench.lose(id) if attempt == "n" else bench.services.release(claim))
    await carry_out(bench.services, id)
    assert (await bench.result(id)).termination_reason == ending


async def test_one_that_was_cancelled_while_a_worker_failed_to_read_it_ends(bench: Bench, id: str) -> None:
    await asks_for(bench, id, novelty=True)
    await bench.store.redis.hset(record_key(id), "cancel", "1")  # as by a request that found it running
    assert await carry_out(bench.services, id) is None
    assert (await bench.result(id)).termination_reason == "cancelled"


async def test_it_is_asked_for_again_until_there_is_one(bench: Bench, id: str) -> None:
    await asks_for(bench, id, novelty=True)
    await carry_out(bench.services, id)
    await bench.store.redis.zadd(LEASES, {id: 1})
    await bench.requeue(id)


async def test_the_service_shows_delegations_of_a_newer_one(bench: Bench, service: Delegations, id: str) -> None:
    await asks_for(bench, id, novelty=True, limits={"maxTurns": 7, "maxNovelties": 1})
    assert (await service.get(id)).request.limits.max_turns == 7
    assert [each.id for each in (await service.list()).items] == [id]
    assert [each.event.type for each in await service.events(id)] == ["run_queued"]
    assert (await service.cancel(id)).status == "cancelled"


UNREADABLE: Sequence[dict[str, Any]] = (
    {"idempotencyKey": ""},
    {"fromTurn": 0},
    {"approvalMode": "novel"},
    {"limits": {"maxTurns": -1}},
)


@pytest.mark.parametrize("fields", UNREADABLE, ids=repr)
async def test_a_list_leaves_out_what_cannot_be_read_and_it_can_be_cancelled_and_pruned(
    bench: Bench, service: Delegations, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    older, bad, newer = [await bench.accept(DelegationRequest(task=f"task {n}")) for n in range(3)]
    await asks_for(bench, bad, **fields)
    page = await service.list(limit=1)
    assert [each.id for each in page.items] == [newer]
    page = await service.list(limit=1, cursor=page.next_cursor)
    assert ([each.id for each in page.items], page.next_cursor) == ([older], None)
    assert [each.id for each in (await service.list(status=Status.QUEUED)).items] == [newer, older]
    left_out = [record.getMessage() for record in caplog.records if "is in no list" in record.getMessage()]
    assert left_out == [f"{bad} cannot be read by this version, and is in no list"]
    assert await RecordLists(bench.store).unreadable() == [bad]
    with pytest.raises(Conflict, match=f"deputize cancel {bad}"):
        await service.get(bad)
    with pytest.raises(Conflict, match=f"{bad} cannot be read"):
        await bench.store.many([newer, bad])
    ended = await service.cancel(bad)
    assert (ended.id, ended.status, ended.request.task) == (bad, "cancelled", "task 1")
    await service.prune(older_than=0)
    assert await RecordLists(bench.store).unreadable() == []


@pytest.mark.parametrize(("field", "text"), [("webhook", "{}"), ("request", "[]"), ("request", "novel")])
async def test_one_ends_whatever_its_record_has_there(
    bench: Bench, service: Delegations, id: str, field: str, text: str
) -> None:
    await bench.store.redis.hset(record_key(id), field, text)
    assert (await service.cancel(id)).status == "cancelled"


async def test_doctor_names_what_cannot_be_read_and_the_remedy(bench: Bench, redis_url: str, id: str) -> None:
    using = bench.settings.model_copy(update={"redis_url": redis_url})
    assert not [row async for row in redis_rows(using, None) if row.name == "records"]
    await asks_for(bench, id, idempotencyKey="")
    (row,) = [row async for row in redis_rows(using, None) if row.name == "records"]
    assert (row.state, row.detail) == ("!", f"1 delegation that this version cannot read: {id}")
    assert f"deputize cancel {id}" in row.remedy


async def test_events_of_a_newer_worker_are_passed_over(bench: Bench, service: Delegations, id: str) -> None:
    redis, event = bench.store.redis, json.dumps(NOVELTY | {"delegationId": id})
    seen: list[Envelope] = []

    async def follow() -> None:
        async for envelope in service.follow(id):
            seen.append(envelope)

    following = asyncio.create_task(follow())
    await until(lambda: seen)
    await redis.xadd(events_key(id), {"e": event}, id="2-0")
    await redis.hset(record_key(id), "seq", 2)
    for name in (channel(id), EVENTS):
        await redis.publish(name, event)
    await carry_out(bench.services, id)
    await following
    numbers = [envelope.seq for envelope in seen if envelope.seq]
    assert numbers == [1, *range(3, len(numbers) + 2)]
    assert numbers == [envelope.seq for envelope in await service.events(id)]
    assert seen[-1].event.type == "run_finished"


async def test_what_waits_for_others_is_settled_by_a_janitor_of_either_version(bench: Bench, id: str) -> None:
    waiting = await bench.accept(DelegationRequest(task="then", after=[After(id=id)]))
    await asks_for(bench, waiting, novelty=True)
    await carry_out(bench.services, id)
    assert await settle(bench.store, waiting)
