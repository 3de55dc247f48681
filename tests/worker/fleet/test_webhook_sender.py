"""What a worker sends to webhooks, by receivers that are down, slow, redirect, refuse and lie."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from standardwebhooks import Webhook as Verifier

from deputize.shared.connection import Pipe, connect
from deputize.shared.delegation import Status, TerminationReason, ToolAgentResult
from deputize.shared.events import Envelope, RunFinished
from deputize.shared.runs.keys import events_key
from deputize.shared.runs.notification import Notification
from deputize.shared.runs.store import WRITING, RunStore
from deputize.shared.runs.webhook_queue import LEASE_SECONDS, DueNotification, notifications, redeliver, take
from deputize.shared.webhooks import Webhook, parsed_secret
from deputize.shared.wire import now
from deputize.worker.fleet.webhook_sender import (
    DELAYS,
    OF_HOST,
    TRY_SECONDS,
    WebhookSender,
    body_of,
    next_delay,
    signed_request,
)
from deputize.worker.task import carry_out
from tests.marked import MARKED, Marked
from tests.network.internet import PUBLIC, Internet, Rerouted, response
from tests.runs.asking import WRITE, answered, asking_bench, begun, questions
from tests.runs.bench import open_bench, say, script
from tests.runs.hooks import Hooks
from tests.runs.receiving import OTHER_SECRET, SECRET, ids, later, receiving, status
from tests.waiting import until

TEN_TRIES = len(DELAYS) + 1


@pytest.fixture
async def hooks(redis_url: str) -> AsyncIterator[Hooks]:
    async with connect(redis_url) as redis, connect(redis_url) as writing, Pipe(writing, WRITING) as pipe:
        yield Hooks(RunStore(redis, 3600), pipe)


async def send_due(sender: WebhookSender) -> int:
    """Sends what is due now; returns the number of tries."""
    count = await sender.start_due()
    await asyncio.gather(*sender.sending)
    return count


def waits(found: Notification) -> float:
    """Returns for how long it waits for its next try."""
    assert found.next_try_at
    return found.next_try_at.timestamp() - time.time()


async def test_a_notification_has_the_state_and_no_text_of_the_run(hooks: Hooks) -> None:
    async with receiving() as receiver:
        id = await hooks.ended(receiver.url)
        assert await send_due(hooks.sender([receiver.host])) == 1
    (received,) = receiver.received
    assert received.content == {
        "type": "delegation.finished",
        "timestamp": received.content["timestamp"],
        "data": {
            "id": id,
            "sessionId": None,
            "status": "succeeded",
            "terminationReason": "completed",
            "success": True,
            "costUsd": 0,
            "verdict": "unverified",
            "mark": "ok",
            "text": "✓ succeeded (completed): 0 turns, 0 tool calls, 0.0 s, 0 tokens, $0.0000",
            "refutedClaimCount": 0,
            "deniedCallCount": 0,
            "links": {
                "delegation": f"/v1/delegations/{id}",
                "events": f"/v1/delegations/{id}/events",
                "patch": f"/v1/delegations/{id}/patch",
            },
        },
    }
    assert (received.id, received.headers["content-type"]) == (f"{id}-2", "application/json")
    assert (await hooks.one(id)).state == "delivered"
    assert await send_due(hooks.sender([receiver.host])) == 0


LYING: dict[str, tuple[bytes, str, int | None]] = {
    "longer than it says": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + b"x" * 500, "delivered", 200),
    "shorter than it says": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx", "delivered", 200),
    "no gzip": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "delivered", 200),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "pending", None),
    "no number": (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "pending", None),
    "garbage": (b"\x00\xff" * 50, "pending", None),
    "a foreign protocol": (b"SSH-2.0-OpenSSH_9.9\r\n", "pending", None),
    "hangs up": (b"", "pending", None),
    "hangs up in a header": (b"HTTP/1.1 200 OK\r\nContent-Le", "pending", None),
    "redirects": (status("302 Found", "Location: /elsewhere"), "pending", 302),
    "redirects without end": (status("308 Permanent Redirect", "Location: /hook"), "pending", 308),
    "is not modified": (status("304 Not Modified"), "pending", 304),
    "refuses": (status("400 Bad Request"), "pending", 400),
    "fails": (status("500 Internal Server Error"), "pending", 500),
    "is gone": (status("410 Gone"), "failed", 410),
    "sets cookies": (status("204 No Content", *(f"Set-Cookie: a{number}=1" for number in range(50))), "delivered", 204),
}


@pytest.mark.parametrize("name", LYING)
async def test_of_an_answer_only_the_status_counts(name: str, hooks: Hooks) -> None:
    answer, state, code = LYING[name]
    async with receiving(answer) as receiver:
        id = await hooks.ended(receiver.url)
        await send_due(hooks.sender([receiver.host]))
        found = await hooks.one(id)
        assert (found.state, found.status, found.tries) == (state, code, 1)
        assert (found.error is None) == (state == "delivered")
        assert [each.path for each in receiver.received] == ["/hook"]


ENDLESS = {
    "a body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, 60, None),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 8192 + b"\r\n", 60, "RemoteProtocolError"),
    "preliminary answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.3, "no answer within 0.3 seconds"),
    "a slow line": (b"HTTP/1.1 2", b"0", 0.3, "no answer within 0.3 seconds"),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_answer_without_end_ends_with_its_try(name: str, hooks: Hooks) -> None:
    answer, more, seconds, why = ENDLESS[name]
    async with receiving(answer) as receiver:
        receiver.more = more
        id = await hooks.ended(receiver.url)
        await send_due(hooks.sender([receiver.host], try_seconds=seconds))
        error = (await hooks.one(id)).error
        assert (error or "").partition(":")[0] == (why or "")


async def test_a_receiver_that_is_down_or_silent_is_tried_again(hooks: Hooks) -> None:
    async with receiving() as receiver:
        receiver.hold = asyncio.Event()
        id = await hooks.ended(receiver.url)
        await send_due(hooks.sender([receiver.host], try_seconds=0.3))
        assert (await hooks.one(id)).error == "no answer within 0.3 seconds"
    sender = hooks.sender([receiver.host])
    await later(hooks.store)
    await send_due(sender)
    assert "ConnectError" in ((await hooks.one(id)).error or "")
    async with receiving(port=int(receiver.host.partition(":")[2])) as back:
        await later(hooks.store)
        await send_due(sender)
        assert [(each.id, each.body) for each in back.received] == [(f"{id}-2", receiver.received[0].body)]
    assert (await hooks.one(id)).tries == 3


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7200", 7100, 7201),
        ("99999999", 86_000, 86_401),
        ("in two hours", 7000, 7201),
        ("1", 4, 6),
        ("-5", 4, 6),
        ("soon", 4, 6),
        ("nan", 4, 6),
        ("inf", 86_000, 86_401),
        ("Mon, 01 Jan 99999999 00:00:00 GMT", 4, 86_401),
    ],
)
async def test_retry_after_delays_the_next_try_up_to_a_day(
    header: str, least: float, most: float, hooks: Hooks
) -> None:
    header = email.utils.formatdate(time.time() + 7200, usegmt=True) if header == "in two hours" else header
    async with receiving(status("429 Too Many Requests", f"Retry-After: {header}")) as receiver:
        id = await hooks.ended(receiver.url)
        await send_due(hooks.sender([receiver.host]))
        assert least <= waits(await hooks.one(id)) <= most


async def test_ten_tries_in_three_days_have_one_id_and_body_and_then_it_can_be_sent_again(hooks: Hooks) -> None:
    async with receiving(status("503 Service Unavailable")) as receiver:
        id = await hooks.ended(receiver.url)
        sender, delays = hooks.sender([receiver.host]), list[float]()
        for _ in range(TEN_TRIES - 1):
            assert await send_due(sender) == 1
            assert await send_due(sender) == 0
            delays.append(waits(await hooks.one(id)))
            await later(hooks.store, delays[-1] + 1)
        assert await send_due(sender) == 1
        assert (await hooks.one(id)).state == "failed"
        assert 2.7 * 86400 < sum(delays) < 3.5 * 86400
        assert len({(each.id, each.body) for each in receiver.received}) == 1
        assert len({each.headers["webhook-timestamp"] for each in receiver.received}) <= 3  # the time of each try
        await redeliver(hooks.store.redis, id)
        await send_due(sender)
        again = await hooks.one(id)
        assert (again.state, again.tries) == ("pending", 1)
        assert waits(again) < 6  # a series of its own


def test_delays_differ_so_that_what_failed_together_spreads() -> None:
    tried = Notification(id="a-1", delegation_id="a", type="delegation.finished", url="", tries=3)
    found = {next_delay(tried) for _ in range(20)}
    assert len(found) > 10
    assert all(delay and 540 <= delay <= 660 for delay in found)


def test_a_try_ends_before_its_lease() -> None:
    assert TRY_SECONDS < LEASE_SECONDS / 2


async def test_of_two_workers_one_sends_each(hooks: Hooks) -> None:
    async with receiving() as receiver:
        done = [await hooks.ended(receiver.url) for _ in range(6)]
        receiver.hold = asyncio.Event()
        senders = [hooks.sender([receiver.host]) for _ in range(3)]
        sending = [asyncio.create_task(send_due(sender)) for sender in senders]
        await until(lambda: len(receiver.received) == len(done))
        receiver.hold.set()
        assert sum(await asyncio.gather(*sending)) == len(done)
        assert sorted(ids(receiver.received)) == sorted(f"{id}-2" for id in done)


@pytest.mark.parametrize("arrived", [False, True], ids=["before it arrived", "after it arrived"])
async def test_a_worker_that_is_lost_in_a_try_leaves_it_to_another(arrived: bool, hooks: Hooks) -> None:
    async with receiving() as receiver:
        id = await hooks.ended(receiver.url)
        if arrived:
            receiver.hold = asyncio.Event()
            lost = asyncio.create_task(hooks.sender([receiver.host]).send_forever())
            await until(lambda: receiver.received)
            lost.cancel()
            await asyncio.wait({lost})
            receiver.hold = None
        else:
            assert len(await take(hooks.store.redis, 1, 1, 1)) == 1
        sender = hooks.sender([receiver.host])
        assert await send_due(sender) == 0
        await later(hooks.store, LEASE_SECONDS)
        assert await send_due(sender) == 1
        assert ids(receiver.received) == [f"{id}-2"] * (2 if arrived else 1)
        assert (await hooks.one(id)).state == "delivered"


async def test_after_410_a_delegation_is_not_notified_of_again(hooks: Hooks) -> None:
    async with receiving(status("410 Gone")) as receiver:
        id = await hooks.ended(receiver.url)
        sender = hooks.sender([receiver.host])
        await send_due(sender)
        await later(hooks.store, 3000)
        assert await send_due(sender) == 0
        assert [(each.state, each.status) for each in await notifications(hooks.store.redis, id)] == [("failed", 410)]


async def test_each_secret_of_a_name_signs_while_one_is_exchanged(hooks: Hooks) -> None:
    for verifies in (SECRET, OTHER_SECRET):
        async with receiving() as receiver:
            receiver.secret = verifies
            await hooks.ended(receiver.url, secret_name="ci")
            secrets = [f"ci={SECRET}", f"ci={OTHER_SECRET}"]
            assert await send_due(hooks.sender([receiver.host], secrets=secrets)) == 1
        assert receiver.received[0].headers["webhook-signature"].count("v1,") == 2


async def test_a_worker_without_the_secret_sends_nothing_unsigned(hooks: Hooks) -> None:
    async with receiving() as receiver:
        id = await hooks.ended(receiver.url, secret_name="ci")
        await send_due(hooks.sender([receiver.host]))
        assert "DEPUTIZE_WEBHOOK_SECRETS" in ((await hooks.one(id)).error or "")
        await later(hooks.store)
        await hooks.sender([receiver.host], secrets=[]).send_forever()  # returns at once
        assert receiver.received == []


@pytest.mark.parametrize(
    ("url", "names", "hosts"),
    [
        ("https://a.test/", [["10.0.0.5"]], []),
        ("https://a.test/", [["127.0.0.1"]], []),
        ("https://a.test/", [["169.254.169.254"]], ["a.test"]),
        ("https://a.test/", [[PUBLIC, "10.0.0.5"]], []),
        ("http://a.test:22/", [[PUBLIC]], []),
        ("http://127.0.0.1:6379/", [[]], []),
    ],
)
async def test_no_address_is_dialled_that_the_operator_did_not_allow(
    url: str, names: list[list[str]], hosts: list[str], hooks: Hooks
) -> None:
    network = Internet({"a.test": names}, lambda *_: response(status="204 No Content"))
    id = await hooks.ended(url)
    await send_due(hooks.sender(hosts, network))
    assert network.dialled == []
    assert "ForbiddenTarget" in ((await hooks.one(id)).error or "")


async def test_a_name_is_resolved_for_each_try_and_judged_each_time(hooks: Hooks) -> None:
    network = Internet({"a.test": [[PUBLIC], ["10.0.0.5"]]}, lambda *_: response(status="503 Service Unavailable"))
    id = await hooks.ended("https://a.test/hook")
    sender = hooks.sender(network=network)
    await send_due(sender)
    assert ((await hooks.one(id)).status, network.dialled) == (503, [(PUBLIC, 443)])
    await later(hooks.store)
    await send_due(sender)
    assert "10.0.0.5" in ((await hooks.one(id)).error or "")
    assert network.dialled == [(PUBLIC, 443)]


async def test_a_redirect_to_an_inner_address_is_not_followed(hooks: Hooks) -> None:
    async with receiving() as inner:
        network = Internet({"a.test": [[PUBLIC]]}, lambda *_: response(status="302 Found", Location=inner.url))
        id = await hooks.ended("https://a.test/hook")
        await send_due(hooks.sender([inner.host], network))
        assert (await hooks.one(id)).error == "HTTP 302, and redirects are not followed"
        assert inner.received == []


async def test_a_listed_host_may_have_a_private_address(hooks: Hooks) -> None:
    async with receiving() as receiver:
        port = int(receiver.host.partition(":")[2])
        network = Rerouted({"hooks.internal": [["10.0.0.5"]]}, {"10.0.0.5": port})
        await hooks.ended("http://hooks.internal:9000/x?key=1")
        await send_due(hooks.sender(["hooks.internal:9000"], network))
        assert [each.path for each in receiver.received] == ["/x?key=1"]


async def test_a_worker_sends_so_many_to_a_host_at_once_and_no_more(hooks: Hooks) -> None:
    async with receiving() as receiver:
        receiver.hold = asyncio.Event()
        for _ in range(OF_HOST + 5):
            await hooks.ended(receiver.url)
        sender = hooks.sender([receiver.host])
        assert [await sender.start_due() for _ in range(2)] == [OF_HOST, 0]
        await until(lambda: len(receiver.received) == OF_HOST)
        receiver.hold.set()

        async def all_sent() -> bool:
            await sender.start_due()
            return len(receiver.received) == OF_HOST + 5

        await until(all_sent)
        await asyncio.gather(*sender.sending)
        assert await hooks.delivered()


@pytest.mark.parametrize("event", ['{"type":"later"}', None], ids=["of another version", "gone"])
async def test_an_event_that_cannot_be_read_holds_up_no_other(event: str | None, hooks: Hooks) -> None:
    async with receiving() as receiver:
        id, other = await hooks.ended(receiver.url), await hooks.ended(receiver.url)
        await hooks.store.redis.delete(events_key(id))
        if event:
            await hooks.store.redis.xadd(events_key(id), {"e": event}, id="2-0")
            await hooks.store.redis.expire(events_key(id), 60)
        await send_due(hooks.sender([receiver.host]))
        assert ids(receiver.received) == [f"{other}-2"]
        assert (await hooks.one(id)).error == (event and "this worker's version cannot read the event")


@pytest.mark.parametrize("row", MARKED, ids=lambda row: f"{row.sign} {row.words}")
def test_a_notification_begins_its_text_with_the_mark(row: Marked) -> None:
    event = Envelope(delegation_id="dlg_1", seq=2, at=now(), attempt=1, event=RunFinished(result=row.result))
    url = "https://a.example"
    notification = Notification(id="dlg_1-2", delegation_id="dlg_1", type="delegation.finished", url=url)
    due = DueNotification(notification, Webhook(url=url), "", event.to_json(), "a.example", "")
    data = json.loads(body_of(due))["data"]
    assert data["text"].startswith(f"{row.sign} {row.words}: 0 turns")
    assert (data["mark"], data["deniedCallCount"]) == (row.result.mark, row.result.denied_call_count)
    assert data["refutedClaimCount"] == len(row.result.refuted_claims)


async def test_a_run_notifies_of_its_end(redis_url: str, tmp_path: Path) -> None:
    async with receiving() as receiver, open_bench(redis_url, tmp_path / "home", **receiver.settings) as bench:
        model = script(tmp_path, [say("the secret words")])
        result = await bench.run(model=model, webhook={"url": receiver.url}, session_id="s-1")
        await until(lambda: receiver.received)
    (received,) = receiver.received
    assert received.id.startswith(f"{result.delegation_id}-")
    assert received.content["data"]["sessionId"] == "s-1"
    assert received.content["data"]["verdict"] == "unverified"
    assert b"the secret words" not in received.body
    assert len(received.body) < 20_000


async def test_a_call_that_waits_for_permission_notifies_too(redis_url: str, tmp_path: Path) -> None:
    answers = (status("500 Internal Server Error"), status("204 No Content"))
    async with receiving(*answers) as receiver, asking_bench(redis_url, tmp_path, **receiver.settings) as bench:
        model = script(tmp_path, [WRITE], [say("done")])
        id, running = await begun(bench, model, webhook={"url": f"{receiver.url}?key=1"})
        (request,) = await questions(bench)

        async def tried() -> list[Notification]:
            return [each for each in await notifications(bench.store.redis, id) if each.next_try_at]

        (failed,) = await until(tried)
        assert (failed.url, failed.tries, failed.status) == (receiver.url, 1, 500)
        await later(bench.store)
        await until(lambda: len(receiver.received) == 2)
        await answered(bench, request, "proceed_once")
        await running
        await until(lambda: len(receiver.received) == 3)
        first, second, last = receiver.received
        assert first.id == second.id != last.id
        assert (first.content["type"], last.content["type"]) == ("permission.requested", "delegation.finished")
        data = first.content["data"]
        assert (data["id"], data["permissionId"], data["tool"]) == (id, request.permission_id, "write_file")
        assert data["links"]["permission"] == f"/v1/permissions/{request.permission_id}"


async def test_a_run_that_another_worker_goes_on_with_notifies_once(redis_url: str, tmp_path: Path) -> None:
    async with receiving() as receiver, asking_bench(redis_url, tmp_path, **receiver.settings) as bench:
        model = script(tmp_path, [WRITE], [say("done")])
        id, running = await begun(bench, model, webhook={"url": receiver.url})
        await questions(bench)
        await until(lambda: receiver.received)
        running.cancel()
        await asyncio.wait({running})
        going_on = asyncio.create_task(carry_out(bench.services, id))
        (request,) = await questions(bench)
        await answered(bench, request, "proceed_once")
        await going_on
        await until(lambda: len(receiver.received) == 2)
        assert [each.content["type"] for each in receiver.received] == ["permission.requested", "delegation.finished"]


def test_the_time_of_a_signature_is_that_of_its_try() -> None:
    """Receivers refuse one that is older than five minutes; a try may come three days after its event."""
    result = ToolAgentResult(delegation_id="a", status=Status.FAILED, termination_reason=TerminationReason.TIMEOUT)
    at = now() - timedelta(days=3)
    event = Envelope(delegation_id="a", seq=2, at=at, attempt=1, event=RunFinished(result=result)).to_json()
    notification = Notification(id="a-2", delegation_id="a", type="delegation.finished", url="")
    due = DueNotification(notification, Webhook(url="https://example.org/"), "", event, "example.org", "")
    request = signed_request(due, [parsed_secret(SECRET)[1]])
    content = Verifier(SECRET).verify(request.content, dict(request.headers))
    assert content["timestamp"] == Envelope.from_json(event).at.isoformat()
