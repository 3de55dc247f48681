"""The proxy of commands: which hosts it reaches, what it passes on, and what it refuses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from deputize.shared.settings import Settings
from deputize.worker.web.dial import Network
from deputize.worker.web.egress_proxy import MAX_CONNECTIONS, MAX_REPORTED, EgressProxy, reach_of
from tests.network.internet import PUBLIC, Internet, response
from tests.waiting import until
from tests.worker.web.servers import Loopback, Talk, falling_silent, saying, saying_for_ever, serving

GOOD = b"GET http://good.test/a HTTP/1.1\r\nHost: good.test\r\n\r\n"


class Proxied:
    """A proxy that listens on this machine, and what it logged."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.said: list[str] = []
        self.refused: list[str] = []

    async def connect(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        return reader, writer

    async def answer(self, data: bytes) -> bytes:
        """All that it answers to ``data`` until it hangs up."""
        reader, writer = await self.connect(data)
        async with asyncio.timeout(10):
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()


@asynccontextmanager
async def proxy(
    network: Network, *hosts: str, private: Sequence[str] = (), max_bytes: int = 1 << 20
) -> AsyncIterator[Proxied]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    listener.setblocking(False)
    opened = Proxied(listener.getsockname())
    egress = EgressProxy(
        "the list", hosts, max_bytes, private_hosts=private, on_refused=opened.refused.append, network=network
    )
    serving_it = asyncio.create_task(egress.serve(listener, opened.said.append))
    try:
        yield opened
    finally:
        serving_it.cancel()
        await asyncio.wait([serving_it])
    assert listener.fileno() < 0


@asynccontextmanager
async def over_a_server(talk: Talk, *, max_bytes: int = 1 << 20) -> AsyncIterator[tuple[Proxied, str]]:
    """A proxy that reaches a real server, whose name is ``good.test:PORT``."""
    async with serving(talk) as at:
        name = f"good.test:{at.rpartition(':')[2]}"
        async with proxy(Loopback(), "good.test", private=[name], max_bytes=max_bytes) as opened:
            yield opened, name


def internet(**names: list[list[str]]) -> Internet:
    known = {name.replace("_", "."): answers for name, answers in names.items()}
    return Internet(known, lambda host, path: response(f"{host} {path}", "text/plain"), hangs_up=True)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("CONNECT other.test:443", "403 other.test is not in the list"),
        ("CONNECT good.test.other.test:443", "403 good.test.other.test is not in the list"),
        ("CONNECT evilgood.test:443", "403 evilgood.test is not in the list"),
        ("CONNECT good.test:22", "403 port 22 of good.test cannot be reached"),
        ("CONNECT good.test:8080", "403 port 8080 of good.test cannot be reached"),
        ("CONNECT 93.184.215.14:443", "403 93.184.215.14 is not in the list"),
        ("CONNECT 127.0.0.1:443", "403 127.0.0.1 is not in the list"),
        ("CONNECT [::1]:443", "403 ::1 is not in the list"),
        ("CONNECT 2130706433:443", "403 2130706433 is not an address"),
        ("CONNECT 0x7f.1:443", "403 0x7f.1 is not an address"),
        ("CONNECT good.test:0", "403 0 is not a valid port"),
        ("CONNECT good.test", "400 CONNECT needs host:port"),
        ("CONNECT good.test:443/x", "400 CONNECT needs host:port"),
        ("CONNECT me@good.test:443", "400 CONNECT needs host:port"),
        ("CONNECT good.test:443@other.test:443", "400 CONNECT needs host:port"),
        ("CONNECT good.test\0.other.test:443", "400 "),
        ("CONNECT other.test%00.good.test:443", "403 "),
        ("CONNECT good.test:00000", "403 0 is not a valid port"),
        ("CONNECT good.test:65979", "403 "),
        ("CONNECT good.test:443\t", "400 "),
        ("CONNECT [::ffff:127.0.0.1]:443", "403 "),
        ("CONNECT [fe80::1%25eth0]:443", "400 CONNECT needs host:port"),
        ("CONNECT ::1:443", "400 CONNECT needs host:port"),
        ("CONNECT [::1:443", "400 CONNECT needs host:port"),
        ("GET http://good.test:0/", "403 0 is not a valid port"),
        ("GET http://[::1]/", "403 ::1 is not in the list"),
        ("GET http://good.test\\@other.test/", "4"),
        ("GET http://other.test/", "403 other.test is not in the list"),
        ("GET http://good.test:8080/", "403 port 8080 of good.test cannot be reached"),
        ("GET http://good.test@other.test/", "403 a URL must not contain a user name"),
        ("GET http://169.254.169.254/", "403 169.254.169.254 is not in the list"),
        ("GET https://good.test/", "400 this is a proxy"),
        ("GET /", "400 this is a proxy"),
        ("nonsense", "400 "),
    ],
)
async def test_what_is_not_on_the_list_is_refused_before_its_name_is_resolved(asked: str, why: str) -> None:
    net = internet(good_test=[[PUBLIC]], other_test=[[PUBLIC]])
    async with proxy(net, "good.test", "*.fine.test") as opened:
        answer = await opened.answer(f"{asked} HTTP/1.1\r\nHost: good.test\r\n\r\n".encode())
    assert answer.decode().startswith(f"HTTP/1.1 {why}")
    assert (net.asked, net.dialled) == ([], [])


@pytest.mark.parametrize(
    ("listed", "host", "verdict"),
    [
        ("good.test", "GOOD.test.", True),
        ("Good.Test.", "good.test", True),
        ("*.good.test", "a.b.good.test", True),
        ("*.good.test", "good.test", False),
        ("*.good.test", "xgood.test", False),
        ("*", "any.test", True),
        ("*", PUBLIC, False),
        (PUBLIC, PUBLIC, True),
    ],
)
async def test_a_pattern_is_a_name_all_names_below_one_or_all_names(listed: str, host: str, verdict: bool) -> None:
    name = host.lower().removesuffix(".")
    async with proxy(internet(**{name.replace(".", "_"): [[PUBLIC]]}), listed) as opened:
        answer = await opened.answer(GOOD.replace(b"good.test", host.encode()))
    assert answer.startswith(b"HTTP/1.1 200" if verdict else b"HTTP/1.1 403")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "fd00::1"])
@pytest.mark.parametrize("asked", [GOOD, b"CONNECT good.test:443 HTTP/1.0\r\n\r\n"])
async def test_a_listed_name_on_a_private_address_is_refused(address: str, asked: bytes) -> None:
    net = internet(good_test=[[PUBLIC, address]])
    async with proxy(net, "good.test") as opened:
        assert (await opened.answer(asked)).startswith(b"HTTP/1.1 403 good.test is not an allowed target")
    assert net.dialled == []


async def test_a_name_that_changes_its_mind_is_judged_by_the_address_that_is_dialled() -> None:
    net = internet(good_test=[[PUBLIC], ["127.0.0.1"]])
    async with proxy(net, "good.test") as opened:
        assert (await opened.answer(GOOD)).startswith(b"HTTP/1.1 200")
        tunnel = await opened.answer(b"CONNECT good.test:443 HTTP/1.0\r\n\r\n")
    assert tunnel.startswith(b"HTTP/1.1 403 good.test is not an allowed target: it is 127.0.0.1")
    assert net.dialled == [(PUBLIC, 80)]


async def test_each_request_has_a_connection_whose_address_was_checked_for_it() -> None:
    """Nor does it meet a connection that the host is about to close."""
    net = internet(good_test=[[PUBLIC], [PUBLIC], ["127.0.0.1"]])
    async with proxy(net, "good.test") as opened:
        answers = [await opened.answer(GOOD) for _ in range(3)]
    assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"403"]
    assert net.dialled == [(PUBLIC, 80)] * 2


async def test_the_url_decides_the_host_and_headers_of_the_connection_stay_here() -> None:
    net = internet(good_test=[[PUBLIC]])
    head = b"Host: other.test\r\nProxy-Authorization: Basic x\r\nConnection: X-Mine\r\nX-Mine: 1\r\nX-Kept: 2\r\n\r\n"
    async with proxy(net, "good.test") as opened:
        answer = await opened.answer(b"GET http://good.test/a?b HTTP/1.1\r\n" + head)
    assert answer.endswith(b"\r\n\r\ngood.test /a?b")
    assert net.requested == [("good.test", "/a?b")]
    assert "x-kept: 2" in net.heads[0].lower()
    assert not {"x-mine", "proxy-authorization", "other.test"} & {*net.heads[0].lower().replace(":", "").split()}


async def test_a_connection_carries_one_request() -> None:
    net = internet(good_test=[[PUBLIC]])
    async with proxy(net, "good.test") as opened:
        assert (await opened.answer(GOOD + b"GET /b HTTP/1.1\r\nHost: other.test\r\n\r\n")).count(b"HTTP/1.1 ") == 1
    assert net.requested == [("good.test", "/a")]


@pytest.mark.parametrize(
    "framing", ["Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"]
)
async def test_the_body_of_a_request_is_passed_on(framing: str) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(await reader.readuntil(b"body")))

    async with over_a_server(echo) as (opened, name):
        head = f"POST http://{name}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{framing}"
        assert (await opened.answer(head.encode())).endswith(b"body")


async def test_a_tunnel_carries_bytes_both_ways_as_they_come() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readexactly(5)).upper())

    async with over_a_server(echo) as (opened, name):
        reader, writer = await opened.connect(f"CONNECT {name} HTTP/1.0\r\n\r\nfirst\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"words")
        assert await reader.read() == b"WORDS"
        writer.close()


async def test_a_name_without_address_is_an_answer_that_states_it() -> None:
    async with proxy(internet(), "good.test") as opened:
        assert (await opened.answer(GOOD)).startswith(b"HTTP/1.1 502 the name good.test cannot be resolved")
    assert opened.refused == []


async def test_more_bytes_than_allowed_end_the_connection_and_all_later_ones() -> None:
    async with over_a_server(saying_for_ever(b"", b"x" * 65536), max_bytes=1 << 20) as (opened, name):
        asked = f"CONNECT {name} HTTP/1.0\r\n\r\nhello\r\n\r\n".encode()
        _, writer = await opened.connect(asked)
        await until(lambda: opened.said)
        writer.close()
        assert (await opened.answer(asked)).startswith(b"HTTP/1.1 403 more than 0.000977 GiB were transferred")
    assert opened.said == ["[network: more than 0.000977 GiB were transferred (sandbox.network_bytes)]\n"]


async def test_connections_beyond_the_limit_wait_for_others_to_end() -> None:
    async with over_a_server(falling_silent(b"")) as (opened, name):
        asked = f"CONNECT {name} HTTP/1.0\r\n\r\n".encode()
        held = [await opened.connect(asked) for _ in range(MAX_CONNECTIONS)]
        for reader, _ in held:
            await reader.readuntil(b"\r\n\r\n")
        late, writer = await opened.connect(b"CONNECT other.test:443 HTTP/1.0\r\n\r\n")
        answer = asyncio.ensure_future(late.read())
        assert not (await asyncio.wait([answer], timeout=0.2))[0]
        held[0][1].close()
        assert (await answer).startswith(b"HTTP/1.1 403")
        for each in (*(pair[1] for pair in held), writer):
            each.close()


async def test_each_refused_host_is_reported_once_and_not_without_end() -> None:
    async with proxy(internet(), "good.test") as opened:
        for number in (0, 0, *range(1, MAX_REPORTED + 5)):
            await opened.answer(f"CONNECT a{number}.test:443 HTTP/1.0\r\n\r\n".encode())
    assert opened.refused == [f"a{number}.test is not in the list" for number in range(MAX_REPORTED)]
    assert opened.said == [f"[network: {sentence}]\n" for sentence in opened.refused]


async def test_open_connections_end_with_their_command() -> None:
    async with over_a_server(falling_silent(b"")) as (opened, name):
        reader, writer = await opened.connect(f"CONNECT {name} HTTP/1.0\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        half, other = await opened.connect(b"CONN")
    for stream in (reader, half):
        with pytest.raises((ConnectionError, EOFError)):
            await stream.readexactly(1)
    writer.close()
    other.close()


async def test_a_server_that_is_cut_off_leaves_the_others_alone() -> None:
    async with over_a_server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")) as (opened, name):
        asked = f"GET http://{name}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        assert (await opened.answer(asked)).endswith(b"half")
        assert (await opened.answer(b"CONNECT other.test:443 HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 403")


def test_where_no_host_is_allowed_the_private_ones_are_not_even_read() -> None:
    settings = Settings.model_validate({"tools": {"private_hosts": ["no name at all:x"]}})
    assert reach_of(settings, "allowed_hosts") is None
