"""Raw connections: what no HTTP library sends, and what a caller without a token may hold open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from deputize.orchestrator.protocol import BoundedProtocol
from deputize.orchestrator.sse import StreamSlots
from deputize.shared.delegation import Status
from deputize.shared.errors import Unavailable
from deputize.shared.request import DelegationRequest
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.waiting import until

POST = "POST /v1/delegations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Hurried(BoundedProtocol):
    HEAD_SECONDS = 0.3


class Few(BoundedProtocol):
    HEAD_SECONDS = 60
    MOST = 20


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(url: str, text: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of what is answered, read until the server closes the connection."""
    async with connected(url) as (reader, writer), asyncio.timeout(20):
        writer.write(text.encode("latin-1"))
        head, _, content = (await reader.read(-1)).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, content


async def received(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the end. A client that still writes may get a reset for it, which is an end, too."""
    content = b""
    with suppress(ConnectionResetError):
        while more := await reader.read(65536):
            content += more
    return content


def request(method: str = "GET", path: str = "/v1/workers", **headers: str | None) -> str:
    given = {"Host": "localhost", "Connection": "close"} | {k.replace("_", "-"): v for k, v in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n"


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", "a@localhost", "localhost@", "a#localhost", "localhost#", "localhost/", "localhost?x", "a b"),
        *("localhost:", "localhost:x", "localhost:123456", "[::1", "::1", "loc\\alhost", "lo,calhost", "löcalhost"),
        *("%6cocalhost", "http://localhost", ".localhost", "localhost, evil.example", "user:pw@localhost"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/workers", "/livez"])
async def test_a_host_that_is_none_is_refused(url: str, host: str, path: str) -> None:
    status, headers, content = await answer(url, request(path=path, Host=host))
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert json.loads(content)["detail"]


async def test_a_request_without_a_host_or_with_two_is_refused(url: str) -> None:
    assert (await answer(url, request(Host=None)))[0] == 400
    assert (await answer(url, "GET /v1/workers HTTP/1.0\r\n\r\n"))[0] == 400
    assert (await answer(url, request(Host="localhost\r\nHost: evil.example")))[0] == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8642", "[::1]:8642", "127.9.9.9"])
async def test_this_machines_own_names_are_let_in(url: str, host: str) -> None:
    assert (await answer(url, request(Host=host)))[0] == 200


@pytest.mark.parametrize("path", ["/v1/delegations/{id}/cancel", "/v1/delegations", "/v1/delegations:prune"])
@pytest.mark.parametrize(
    "sent",
    [
        *(
            {"Origin": origin}
            for origin in ("null", "http://evil.example", "https://localhost:8642", "http://localhost:1")
        ),
        *({"Origin": origin} for origin in ("http://localhost.evil.example", "http://x@localhost", "file://", "")),
        *({"Sec_Fetch_Site": site} for site in ("cross-site", "same-site", "anything")),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    service: FakeService, url: str, path: str, sent: dict[str, str]
) -> None:
    run = (await service.create(DelegationRequest(task="t"))).delegation
    given = {"Content_Type": "application/json", "Content_Length": "12"} | sent
    status, _, content = await answer(url, request("POST", path.format(id=run.id), **given) + '{"task":"t"}')
    assert status == 403, content
    assert json.loads(content)["type"] == "urn:deputize:forbidden"
    assert [each.status for each in service.runs.values()] == [Status.QUEUED]


@pytest.mark.parametrize(
    ("host", "sent"),
    [
        ("localhost:8642", {"Origin": "http://localhost:8642", "Sec_Fetch_Site": "same-origin"}),
        ("localhost", {"Origin": "http://LOCALHOST:80"}),
        ("[::1]:8642", {"Origin": "http://[::1]:8642"}),
        ("localhost", {"Sec_Fetch_Site": "none"}),
        ("localhost", {}),
    ],
)
async def test_its_own_pages_and_programs_are_let_in(
    service: FakeService, url: str, host: str, sent: dict[str, str]
) -> None:
    given = {"Host": host, "Content_Type": "application/json", "Content_Length": "12"} | sent
    assert (await answer(url, request("POST", "/v1/delegations", **given) + '{"task":"t"}'))[0] == 202


async def test_every_answer_forbids_a_browser_to_run_and_frame_it(url: str) -> None:
    texts = [request(path=path) for path in ("/livez", "/readyz", "/v1/workers", "/openapi.json", "/nowhere")]
    texts += [request("DELETE"), request(Host="a@localhost"), request("PO ST"), "nonsense\r\n\r\n"]
    for text in texts:
        _, headers, _ = await answer(url, text)
        assert headers["x-content-type-options"] == "nosniff", text
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", text
        assert headers["cross-origin-resource-policy"] == "same-origin", text
        assert headers["referrer-policy"] == "no-referrer", text


@pytest.mark.parametrize(
    "path", ["/livez", "/v1/workers", "/v1/delegations", "/v1/events", "/openapi.json", "/nowhere"]
)
async def test_head_is_answered_as_get_is_without_a_body(service: FakeService, url: str, path: str) -> None:
    status, headers, content = await answer(url, request("HEAD", path))
    assert content == b""
    assert status == (404 if path == "/nowhere" else 200)
    if path != "/v1/events":
        of_get, got, _ = await answer(url, request("GET", path))
        assert (status, headers["content-type"]) == (of_get, got["content-type"])
        assert headers.get("content-length") == got.get("content-length")
    assert service.following == 0


@pytest.mark.long
async def test_half_a_head_does_not_hold_its_connection(service: FakeService) -> None:
    """Neither a silent one, nor one that comes byte by byte, nor the second one of a connection."""
    halves = ["", "G", "GET /livez HTTP/1.1\r\nHost: loc", request(Connection=None) + "GET /livez HT"]
    async with served(service, protocol=Hurried) as url, asyncio.timeout(20):
        for half in halves:
            async with connected(url) as (reader, writer):
                writer.write(half.encode())
                said = await reader.read(-1)
            assert b"HTTP/1.1 408" in said or half.endswith("GET /livez HT")
        async with connected(url) as (reader, writer):
            reading = asyncio.create_task(received(reader))
            while not reading.done():
                writer.write(b"X")
                await asyncio.wait({reading}, timeout=0.05)
            assert b"408" in reading.result()


@pytest.mark.long
async def test_half_a_body_does_not_hold_its_connection(service: FakeService) -> None:
    async with served(service, settings(body_seconds=0.3)) as url:
        for begun in ("", '{"task"'):
            status, _, content = await answer(url, f"{POST}Content-Length: 100\r\n\r\n{begun}")
            assert (status, json.loads(content)["type"]) == (408, "urn:deputize:too-slow")
        async with connected(url) as (reader, writer), asyncio.timeout(20):
            writer.write(f"{POST}Content-Length: 100000\r\n\r\n".encode())
            reading = asyncio.create_task(received(reader))
            while not reading.done():  # a byte now and then is no pace
                writer.write(b" ")
                await asyncio.wait({reading}, timeout=0.05)
        assert b" 408 " in reading.result()


@pytest.mark.parametrize("first", ["GET /livez HTTP/1.1", "POST /v1/delegations/dlg_x/cancel HTTP/1.1"])
async def test_the_rest_of_an_answered_request_does_not_hold_its_connection(url: str, first: str) -> None:
    """A body without a request, and that goes on for ever."""
    async with connected(url) as (reader, writer), asyncio.timeout(20):
        writer.write(f"{first}\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode())
        assert b"HTTP/1.1" in await reader.readline()
        reading = asyncio.create_task(received(reader))
        while not reading.done():
            writer.write(b" ")
            await asyncio.wait({reading}, timeout=0.05)


async def test_a_head_without_an_end_is_cut(url: str) -> None:
    async with connected(url) as (reader, writer), asyncio.timeout(20):
        reading = asyncio.create_task(received(reader))
        sent = 0
        while not reading.done():
            writer.write(b"GET /livez HTTP/1.1\r\n" if not sent else b"X-More: " + b"x" * 4000 + b"\r\n")
            sent += 4000
            assert sent < 2_000_000
            await asyncio.wait({reading}, timeout=0.001)


async def test_connections_that_ask_for_nothing_give_way(service: FakeService) -> None:
    async with served(service, protocol=Few) as url, asyncio.timeout(20):
        silent = [await asyncio.open_connection(*url.removeprefix("http://").split(":")) for _ in range(100)]
        assert (await answer(url, request()))[0] == 200
        gone = [asyncio.create_task(reader.read()) for reader, _ in silent]
        await asyncio.gather(*gone[: 100 - Few.MOST], return_exceptions=True)  # the oldest first
        assert not gone[-1].done()
        for _, writer in silent:
            writer.close()
        await asyncio.gather(*gone, return_exceptions=True)


async def test_a_request_has_at_most_a_hundred_headers(url: str) -> None:
    many = {f"X_{number}": "x" for number in range(98)}  # and Host and Connection
    assert (await answer(url, request(**many)))[0] == 200
    status, headers, content = await answer(url, request(**many, X_more="x"))
    assert (status, headers["content-type"]) == (431, "application/problem+json")
    assert json.loads(content)["type"] == "urn:deputize:too-many-headers"


async def test_one_caller_does_not_take_the_streams_of_others(service: FakeService) -> None:
    using = settings(token="one", max_streams=3, max_streams_per_caller=1)
    async with served(service, using) as url:
        run = (await service.create(DelegationRequest(task="t"))).delegation
        mine = {"Authorization": "Bearer one"}
        async with connected(url) as (_, stream):
            stream.write(request(path="/v1/events", **mine).encode())
            await until(lambda: service.following == 1)
            for path in ("/v1/events", f"/v1/delegations/{run.id}?wait=1"):
                status, _, content = await answer(url, request(path=path, **mine))
                assert status == 503
                assert "DEPUTIZE_MAX_STREAMS_PER_CALLER" in json.loads(content)["detail"]
        await until(lambda: service.following == 0)


def test_slots_are_counted_by_caller() -> None:
    slots = StreamSlots(3, 1)
    with slots.acquire("a"):
        with pytest.raises(Unavailable, match="this caller"), slots.acquire("a"):
            pass
        with slots.acquire("b"), slots.acquire(), pytest.raises(Unavailable, match="3 callers"), slots.acquire("c"):
            pass
    with slots.acquire("a"), slots.acquire("b"):
        pass


async def test_streams_and_long_polls_have_a_number(service: FakeService) -> None:
    async with served(service, settings(max_streams=2)) as url:
        run = (await service.create(DelegationRequest(task="t"))).delegation
        async with connected(url) as (_, one), connected(url) as (_, two):
            one.write(request(path="/v1/events").encode())
            two.write(request(path=f"/v1/delegations/{run.id}?wait=50").encode())
            await until(lambda: service.following == 2)
            for path in ("/v1/events", f"/v1/delegations/{run.id}/events", f"/v1/delegations/{run.id}?wait=1"):
                status, headers, content = await answer(url, request(path=path))
                assert (status, "retry-after" in headers) == (503, True)
                assert "DEPUTIZE_MAX_STREAMS" in json.loads(content)["detail"]
            assert (await answer(url, request(path=f"/v1/delegations/{run.id}")))[0] == 200
        await until(lambda: service.following == 0)
        service.finish(run.id)
        assert (await answer(url, request(path=f"/v1/delegations/{run.id}/events")))[0] == 200
