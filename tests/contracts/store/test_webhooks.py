"""Notifications of webhooks: queued with their event, leased for each try, listed: the same for Redis and fakeredis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deputize.shared.connection import Pipe
from deputize.shared.errors import Conflict, NotFound
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import WEBHOOKS, keys_of, record_key, webhooks_key, webhooks_queue
from deputize.shared.runs.notification import Notification
from deputize.shared.runs.record import Claim, compressed
from deputize.shared.runs.store import RunStore
from deputize.shared.runs.webhook_queue import DueNotification, notifications, redeliver, settle, take
from deputize.shared.webhooks import Webhook
from deputize.worker.core.emit import RunUpdate
from tests.contracts.store.records import LEASE, accepted, claimed, ending, turn, write
from tests.runs.receiving import later

HOOK = {"url": "https://example.org/done?key=1"}


async def taken(store: RunStore, at_most: int = 50) -> list[DueNotification]:
    return await take(store.redis, at_most, at_most, at_most)


async def ended(store: RunStore, pipe: Pipe, **fields: Any) -> Claim:
    claim = await claimed(store, **{"webhook": HOOK} | fields)
    assert await write(pipe, claim, ending(claim, 2))
    return claim


async def settled(store: RunStore, due: DueNotification, state: str, *delay: float, gone: bool = False) -> None:
    update = {"state": state, "error": None if state == "delivered" else "no"}
    await settle(store.redis, due.notification.model_copy(update=update), *delay, gone=gone)


async def one(store: RunStore, id: str) -> Notification:
    (found,) = await notifications(store.redis, id)
    return found


async def test_the_end_and_its_notification_are_one_write_however_often_it_is_sent(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook=HOOK, session_id="s-1")
    assert [await write(pipe, claim, ending(claim, 2)) for _ in range(2)] == [1, 1]
    (due,) = await taken(store)
    assert (due.notification.id, due.notification.tries) == (f"{claim.id}-2", 1)
    assert (due.webhook.url, due.session) == (HOOK["url"], "s-1")
    assert due.event == (await store.events(claim.id))[-1].to_json()
    assert 0 < await store.redis.ttl(webhooks_key(claim.id)) <= 60


async def test_a_notification_of_a_kind_of_a_newer_version_waits_for_that_version(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe)
    (kept,) = await notifications(store.redis, claim.id)
    newer = kept.model_copy(update={"id": f"{claim.id}-1", "type": "run.renamed"})
    await store.redis.hset(webhooks_key(claim.id), "1", newer.model_dump_json(by_alias=True))
    await store.redis.zadd(webhooks_queue("run.renamed"), {newer.id: 1})
    assert [each.notification.id for each in await taken(store)] == [kept.id]
    assert [each.id for each in await notifications(store.redis, claim.id)] == [kept.id]
    await later(store)
    await redeliver(store.redis, claim.id)
    assert [each.notification.id for each in await taken(store)] == [kept.id]
    assert await store.redis.zrange(webhooks_queue("run.renamed"), 0, -1, withscores=True) == [(newer.id, 1)]


async def test_a_long_event_is_found_as_it_was_published(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook=HOOK)
    update = ending(claim, 2)
    seq, event = update.events[0]
    long = event.replace('"summary":""', f'"summary":"{"x" * 2000}"')
    assert await write(pipe, claim, replace(update, events=[(seq, long)], stored={seq: compressed(long)}))
    assert (await taken(store))[0].event == long


async def test_a_write_that_is_sent_again_later_queues_nothing_a_second_time(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook=HOOK)
    update = RunUpdate(events=[turn(claim, 2)], notifications=ending(claim, 2).notifications)
    assert await write(pipe, claim, update)
    await settled(store, (await taken(store))[0], "delivered")
    assert await write(pipe, claim, update)  # its answer was lost
    assert await taken(store) == []
    assert (await one(store, claim.id)).state == "delivered"


async def test_a_worker_that_lost_its_fence_notifies_of_nothing(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook=HOOK)
    await store.redis.hset(record_key(claim.id), "fence", "2:other")
    assert not await write(pipe, claim, ending(claim, 2))
    assert await taken(store) == []


async def test_what_is_cancelled_before_it_began_notifies_too(store: RunStore) -> None:
    id = await accepted(store, webhook=HOOK)
    assert [await store.cancel(id) for _ in range(2)] == ["cancelled", "finished"]
    assert [due.notification.id for due in await taken(store)] == [f"{id}-2"]
    silent = await accepted(store, webhook=HOOK | {"events": ["permission.requested"]})
    await store.cancel(silent)
    assert await taken(store) == []


async def test_without_a_webhook_or_for_other_events_nothing_is_queued(store: RunStore, pipe: Pipe) -> None:
    await ended(store, pipe, webhook=None)
    await ended(store, pipe, webhook=HOOK | {"events": ["permission.requested"]})
    claim = await claimed(store, webhook=HOOK)
    await write(pipe, claim, RunUpdate(events=[turn(claim, 2)]))
    assert await taken(store) == []


async def test_two_workers_never_have_the_same_try(store: RunStore, pipe: Pipe) -> None:
    first, second = await ended(store, pipe), await ended(store, pipe)
    found = [*await taken(store, 1), *await taken(store, 1)]
    assert {due.notification.delegation_id for due in found} == {first.id, second.id}
    assert await taken(store) == []


async def test_a_lost_try_is_repeated_under_the_same_id_when_its_lease_is_over(store: RunStore, pipe: Pipe) -> None:
    await ended(store, pipe)
    (lost,) = await taken(store)
    await later(store, 59)
    assert await taken(store) == []
    await later(store, 1)
    (again,) = await taken(store)
    assert (again.notification.id, again.event, again.notification.tries) == (lost.notification.id, lost.event, 2)
    await settled(store, lost, "pending", 7)  # another try has begun since
    assert (await one(store, lost.notification.delegation_id)).error is None
    await settled(store, lost, "delivered")  # but it did arrive
    await settled(store, again, "failed")
    assert (await one(store, lost.notification.delegation_id)).state == "delivered"
    await later(store)
    assert await taken(store) == []


async def test_a_failed_try_is_due_again_after_its_delay(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe)
    await settled(store, (await taken(store))[0], "pending", 300)
    waits = await one(store, claim.id)
    assert (waits.state, waits.tries, waits.error, waits.url) == ("pending", 1, "no", "https://example.org/done")
    assert waits.next_try_at
    assert [each.id for each in await notifications(store.redis)] == [waits.id]
    await later(store, 299)
    assert await taken(store) == []
    await later(store, 1)
    assert [due.notification.tries for due in await taken(store)] == [2]


async def test_what_failed_for_good_is_listed_until_its_record_is_gone(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe)
    await settled(store, (await taken(store))[0], "failed")
    await later(store)  # more than a day
    assert await taken(store) == []
    assert [(each.state, each.next_try_at) for each in await notifications(store.redis)] == [("failed", None)]
    await store.redis.delete(*keys_of(claim.id))
    assert await notifications(store.redis) == []
    await later(store)
    assert await taken(store) == []
    assert await store.redis.zcard(WEBHOOKS) == 0


async def test_the_outcome_of_a_try_brings_no_removed_record_back(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe)
    (due,) = await taken(store)
    await store.redis.delete(*keys_of(claim.id))
    await settled(store, due, "pending", 1)
    assert await store.redis.exists(webhooks_key(claim.id), WEBHOOKS) == 0


async def test_what_the_receiver_does_not_want_any_more_is_not_sent(store: RunStore, pipe: Pipe) -> None:
    claim = await claimed(store, webhook=HOOK)
    first = RunUpdate(events=[turn(claim, 2)], notifications=ending(claim, 2).notifications)
    await write(pipe, claim, first)
    await settled(store, (await taken(store))[0], "failed", gone=True)
    await write(pipe, claim, ending(claim, 3), 2)
    assert await taken(store) == []
    found = await notifications(store.redis, claim.id)
    assert [(each.state, each.tries, each.error) for each in found] == [
        ("failed", 1, "no"),
        ("failed", 0, "not sent: the receiver had answered 410"),
    ]
    other = await ended(store, pipe)  # of another delegation it may want some
    assert [due.notification.delegation_id for due in await taken(store)] == [other.id]
    await redeliver(store.redis, claim.id)
    assert [due.notification.id for due in await taken(store)] == [f"{claim.id}-2", f"{claim.id}-3"]


async def test_all_are_sent_again_under_their_ids_but_those_just_being_sent(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe)
    (due,) = await taken(store)
    await redeliver(store.redis, claim.id)
    assert await taken(store) == []  # it is being sent
    await settled(store, due, "delivered")
    await redeliver(store.redis, claim.id)
    (again,) = await taken(store)
    assert (again.notification.id, again.notification.tries) == (due.notification.id, 1)


async def test_without_notifications_none_are_sent_again(store: RunStore, pipe: Pipe) -> None:
    claim = await ended(store, pipe, webhook=None)
    with pytest.raises(Conflict, match="no webhook"):
        await redeliver(store.redis, claim.id)
    assert await notifications(store.redis, claim.id) == []
    for ask in (redeliver, notifications):
        with pytest.raises(NotFound):
            await ask(store.redis, new_id())


async def test_the_webhook_of_the_settings_is_for_requests_without_one(store: RunStore) -> None:
    default = Webhook(url="https://example.org/all")
    own = DelegationRequest.model_validate({"task": "t", "webhook": HOOK})
    new = [(new_id(), request, request.limits) for request in (DelegationRequest(task="t"), own)]
    await store.accept(new, 30, webhook=default)
    for (id, request, _), url in zip(new, (default.url, HOOK["url"]), strict=True):
        claim = await store.claim(id, "token", "worker-1", LEASE)
        assert claim is not None
        assert claim.kept["webhook"].url == url
        assert claim.request == request  # what was asked stays what it was
