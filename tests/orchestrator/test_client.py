"""The HTTP client: the service's verbs and errors, and streams that mend themselves."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from deputize.orchestrator.client import Client, tls_context
from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.sockets import free_port
from deputize.shared.delegation import Delegation, Status, Step, StepStatus
from deputize.shared.errors import (
    Invalid,
    KeyReused,
    Misconfigured,
    NotFound,
    OutOfSpace,
    Refused,
    ScopeMissing,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from deputize.shared.events import Envelope, Heartbeat, ProgressMade, StepCompleted
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import Wire, now
from tests.orchestrator.answering import answering
from tests.orchestrator.fake_service import READ_FILE, FakeService, worker_card
from tests.orchestrator.serving import served, settings
from tests.processes.redis_server import RedisProcess
from tests.waiting import until

TASK = DelegationRequest(task="t")


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with Client(url) as client:
        yield client


def json_of(values: Sequence[Wire]) -> list[str]:
    """Values as they travel: times in milliseconds."""
    return [value.to_json() for value in values]


async def test_the_list_is_filtered_by_labels(client: Client) -> None:
    wanted = (await client.create(DelegationRequest(task="t", labels={"team": "a"}))).delegation
    await client.create(DelegationRequest(task="t", labels={"team": "b"}))
    assert [item.id for item in (await client.list(labels={"team": "a"})).items] == [wanted.id]


async def test_a_repeated_key_is_reported_as_a_replay(client: Client) -> None:
    request = DelegationRequest(task="t", idempotency_key="k")
    first, again = [await client.create(request) for _ in range(2)]
    assert (first.replayed, again.replayed, again.delegation.id) == (False, True, first.delegation.id)


async def collected(client: Client, id: str, into: list[Envelope], after: int = 0) -> None:
    async for envelope in client.follow(id, after):
        into.append(envelope)


async def test_every_verb_returns_what_the_service_returns(client: Client, service: FakeService) -> None:
    one = (await client.create(TASK)).delegation
    two, three = await client.create_many([DelegationRequest(task="two"), DelegationRequest(task="three")])
    step = Step(
        id="s", type="read", title="read x", status=StepStatus.COMPLETED, tool_name="r", turn_index=1, timestamp=now()
    )
    service.happen(one.id, StepCompleted(step=step))
    service.patches[one.id] = "diff --git a/x b/x\n"
    service.made[one.id, "é ?.md"] = ["old", "new"]
    service.fleet = [worker_card()]
    assert (await client.get(one.id)).to_json() == service.runs[one.id].to_json()
    assert json_of(await client.events(one.id, 1)) == json_of(service.kept[one.id][1:])
    assert json_of(await client.steps(one.id)) == json_of(await service.steps(one.id))
    assert await client.patch(one.id) == "diff --git a/x b/x\n"
    assert [await client.artifact(one.id, "é ?.md", version) for version in (None, 1)] == ["new", "old"]
    assert json_of(await client.workers()) == json_of(service.fleet)
    assert await client.tools() == [READ_FILE]
    assert (await client.cancel(two.id)).status is Status.CANCELLED
    assert ((await client.prune()).removed, len(service.runs)) == (0, 3)
    page = await client.list(limit=2)
    assert [item.id for item in page.items] == [three.id, two.id]
    assert [item.id for item in (await client.list(cursor=page.next_cursor)).items] == [one.id]
    assert [item.id for item in (await client.list(status=Status.CANCELLED)).items] == [two.id]


async def test_a_request_arrives_as_it_was_made(client: Client, service: FakeService) -> None:
    request = DelegationRequest(task="zażółć 🙂", context="\u2028", tools=["read_*"], idempotency_key="k")
    created = (await client.create(request)).delegation
    assert service.runs[created.id].request == request


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (NotFound("gone"), NotFound),
        (Invalid("wrong", [{"pointer": "/task", "detail": "blank"}]), Invalid),
        (KeyReused("another body"), KeyReused),
        (ScopeMissing("the token lacks read"), ScopeMissing),
        (TooLarge("over 1,048,576"), TooLarge),
        (Refused("no"), Refused),
        (Unavailable("Redis is away"), Unavailable),
    ],
)
async def test_errors_come_out_as_they_went_in(
    client: Client, service: FakeService, raised: Exception, expected: type[Exception]
) -> None:
    service.away = raised
    with pytest.raises(expected) as caught:
        await client.workers()
    assert type(caught.value) is expected
    assert str(caught.value) == str(raised)
    assert getattr(caught.value, "errors", None) == getattr(raised, "errors", None)


async def test_it_reports_why_work_would_wait(client: Client, service: FakeService) -> None:
    assert "no worker is alive" in (await client.not_ready() or "")
    service.fleet = [worker_card()]
    assert await client.not_ready() is None
    service.away = Unavailable("Redis is away")
    assert await client.not_ready() == "Redis is away"


async def test_a_mistake_of_the_service_is_unavailable(client: Client, service: FakeService) -> None:
    service.away = RuntimeError("bug")
    with pytest.raises(Unavailable, match="request id"):
        await client.workers()


async def test_the_token_is_sent() -> None:
    async with served(FakeService(), settings(token="sécret")) as url:
        async with Client(url, "sécret") as client:
            assert await client.workers() == []
        async with Client(url, "other") as client:
            with pytest.raises(Unauthorized, match="DEPUTIZE_TOKEN"):
                await client.workers()


async def test_without_an_answer_the_error_names_the_address_and_a_way_out() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with Client(url) as client:
        with pytest.raises(Unavailable) as caught:
            await client.get(new_id())
    assert url in str(caught.value)
    assert "deputize up" in str(caught.value)
    assert "DEPUTIZE_URL" in str(caught.value)


@pytest.mark.parametrize(
    ("proxy", "error", "said"),
    [
        (
            "http://127.0.0.1:9",
            Unavailable,
            "no service answers at http://deputize.example through the proxy of ALL_PROXY",
        ),
        ("socks5://127.0.0.1:9", Misconfigured, "ALL_PROXY does not name an HTTP proxy"),
        ("socks4://127.0.0.1:9", Misconfigured, "ALL_PROXY does not name an HTTP proxy"),
        ("http://\udc80@host:1", Misconfigured, "ALL_PROXY does not name an HTTP proxy"),
    ],
)
async def test_a_proxy_of_the_environment_is_used_or_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, proxy: str, error: type[Exception], said: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(error, match=said):
        async with Client("http://deputize.example") as client:
            await client.list()


async def test_a_foreign_service_is_reported_as_one() -> None:
    async def something(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>")
        writer.close()

    async with await asyncio.start_server(something, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(Unavailable, match="502 and is not a deputize service"):
                await client.workers()


async def test_what_only_reads_is_asked_again_where_its_connection_was_closed_meanwhile() -> None:
    asked: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request of each connection, and closes it with the next one."""
        with suppress(asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(once, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}") as client:
            assert [await client.workers() for _ in range(2)] == [[], []]
            assert len(asked) == 3
            with pytest.raises(Unavailable, match="no service answers"):
                await client.cancel(new_id())
    assert len(asked) == 4


@pytest.mark.parametrize("url", ["localhost:8642", "ftp://localhost", "http://", "nonsense"])
def test_an_address_that_is_none_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(Misconfigured, match="DEPUTIZE_URL"):
        Client(url)


async def test_following_ends_after_the_last_event(client: Client, service: FakeService) -> None:
    id = (await client.create(TASK)).delegation.id
    got: list[Envelope] = []
    following = asyncio.create_task(collected(client, id, got))
    await until(lambda: service.following)
    service.happen(id, Heartbeat(turn=1, tool_calls=0, elapsed_ms=1))
    service.finish(id)
    await following
    assert [envelope.event.type for envelope in got] == ["run_queued", "heartbeat", "run_finished"]


@pytest.mark.requirement("P-13")
async def test_a_stream_that_breaks_goes_on_where_it_broke(service: FakeService) -> None:
    """The service stops and starts again at the same address, twice, and things happen meanwhile."""
    port = free_port()
    id = (await service.create(TASK)).delegation.id
    got: list[Envelope] = []
    async with Client(f"http://127.0.0.1:{port}") as client:
        following = asyncio.create_task(collected(client, id, got))
        for round_ in range(3):
            async with served(service, port=port):
                await until(lambda: service.following)
                service.happen(id, ProgressMade(message=f"while up {round_}"))
                await until(lambda: len(got) == len(service.kept[id]))
            service.happen(id, ProgressMade(message=f"while down {round_}"))
        service.finish(id)
        async with served(service, port=port):
            await following
    assert json_of(got) == json_of(service.kept[id])


class Repeating(FakeService):
    """Breaks its streams after the first number and begins each one anew, whatever was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Envelope]:
        self.asked.append(after)
        for envelope in self.kept[id][: len(self.asked)]:
            yield envelope
        yield Envelope(delegation_id=id, at=now(), attempt=1, event=Heartbeat(turn=1, tool_calls=0, elapsed_ms=1))
        if len(self.asked) < len(self.kept[id]):
            raise Unavailable("Redis is away")


@pytest.mark.requirement("P-13")
async def test_what_a_broken_stream_had_sent_is_neither_asked_for_nor_returned_again() -> None:
    service, got = Repeating(), list[Envelope]()
    id = (await service.create(TASK)).delegation.id
    service.happen(id, ProgressMade(message="half way"))
    service.finish(id)
    async with served(service) as url, Client(url) as client:
        await collected(client, id, got)
    assert [envelope.seq for envelope in got] == [1, None, 2, None, 3]
    assert service.asked == [0, 1, 2]


@pytest.mark.requirement("P-13")
async def test_a_stream_survives_the_death_of_redis(redis_process: RedisProcess) -> None:
    using = settings(redis_url=redis_process.url)
    async with served(lambda: open_service(using, redis_process.url), using) as url, Client(url) as client:
        id = (await client.create(TASK)).delegation.id
        got: list[Envelope] = []
        following = asyncio.create_task(collected(client, id, got))
        await until(lambda: got)
        redis_process.kill()
        with pytest.raises(Unavailable):
            await client.cancel(id)
        redis_process.start()

        async def cancelled() -> bool:
            with suppress(Unavailable):
                return (await client.cancel(id)).status.finished
            return False

        await until(cancelled)
        await asyncio.wait_for(following, 30)
    assert [envelope.seq for envelope in got] == [1, 2]


async def test_a_stream_that_stays_broken_is_given_up(url: str, service: FakeService) -> None:
    async with Client(url, patience=0.3) as client:
        id = (await client.create(TASK)).delegation.id
        service.away = Unavailable("Redis is away")
        with pytest.raises(Unavailable, match="Redis is away"):
            await collected(client, id, [])


async def test_following_what_is_not_there_is_refused_at_once(client: Client) -> None:
    with pytest.raises(NotFound):
        await collected(client, new_id(), [])


async def test_all_delegations_can_be_followed(client: Client, service: FakeService) -> None:
    created: list[Delegation] = []
    got: list[str] = []

    async def look() -> None:
        async for envelope in client.follow_all():
            got.append(envelope.delegation_id)

    looking = asyncio.create_task(look())
    await until(lambda: service.following)
    created += await client.create_many([TASK, TASK])
    await until(lambda: len(got) == 2)
    looking.cancel()
    assert got == [delegation.id for delegation in created]


async def test_an_event_of_a_newer_service_is_passed_over(client: Client, service: FakeService) -> None:
    class Novelty(ProgressMade):
        type: Any = "novelty"

    id = (await client.create(TASK)).delegation.id
    novelty = Envelope.model_construct(delegation_id=id, seq=2, at=now(), attempt=1, event=Novelty(message="x"))
    service.kept[id].append(novelty)
    service.finish(id)
    got: list[Envelope] = []
    await collected(client, id, got)
    assert [envelope.seq for envelope in got] == [1, 3]
    await asyncio.wait_for(collected(client, id, got, after=3), 30)
    assert [envelope.seq for envelope in got] == [1, 3]


async def test_a_field_that_only_a_newer_services_requests_have_is_passed_over() -> None:
    newer = Delegation(id=new_id(), status=Status.QUEUED, created_at=now(), request=TASK, effective_limits=TASK.limits)
    body = newer.to_dict() | {"request": newer.to_dict()["request"] | {"novelty": 1}}
    for answer in (body, {"items": [body]}):
        async with answering(json.dumps(answer).encode()) as url, Client(url) as client:
            found = await client.get(newer.id) if "id" in answer else (await client.list()).items[0]
            assert (found.id, found.request) == (newer.id, TASK)


async def test_a_full_disk_is_reported_at_once_and_a_follower_waits_only_a_moment_for_room(
    service: FakeService,
) -> None:
    async with served(service) as url, Client(url, patience=0.2) as client:
        one = (await client.create(TASK)).delegation
        service.away = OutOfSpace("no space left at /home/x")
        with pytest.raises(OutOfSpace, match="no space left at /home/x"):
            await client.get(one.id)
        with pytest.raises(OutOfSpace):
            await collected(client, one.id, [])


async def test_a_lost_connection_is_reported_while_it_is_sought_and_once_it_is_back(service: FakeService) -> None:
    heard: list[str] = []

    def hear(lost: Unavailable | None) -> None:
        heard.append("lost" if lost else "there")

    async with AsyncExitStack() as outside:
        async with served(service) as url:
            client = await outside.enter_async_context(Client(url, patience=60))
            client.on_connection = hear
            id = (await client.create(TASK)).delegation.id
            following = asyncio.create_task(collected(client, id, []))
            await until(lambda: heard)
            assert {*heard} == {"there"}
        await until(lambda: "lost" in heard, 30)
        heard.clear()
        async with served(service, port=int(url.rpartition(":")[2])):
            await until(lambda: "there" in heard, 30)  # before it has an event
            service.finish(id)
            await following


def test_only_tls_loads_the_certificate_authorities() -> None:
    assert tls_context("https").cert_store_stats()["x509_ca"] > 0
    empty = tls_context("http")
    assert (empty.cert_store_stats()["x509_ca"], empty.verify_mode) == (0, ssl.CERT_REQUIRED)
