"""The guarded dial: one look-up, every address judged, the judged one dialled."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.shared.errors import Misconfigured
from deputize.worker.web.dial import MAX_TRIES, GuardedTransport
from deputize.worker.web.fetch import fetch
from deputize.worker.web.targets import ForbiddenTarget, target
from tests.network.internet import PUBLIC, Internet, redirect, response
from tests.worker.web.certificates import certificate_of
from tests.worker.web.servers import Loopback, saying, serving

SIX = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


def internet(names: dict[str, list[list[str]]], **more: Any) -> Internet:
    return Internet(names, lambda host, path: response(f"{host} {path}", "text/plain"), **more)


@asynccontextmanager
async def client(network: Internet | None = None, private: tuple[str, ...] = ()) -> AsyncIterator[httpx2.AsyncClient]:
    transport = GuardedTransport(private, network=network)
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as opened:
        yield opened


async def test_the_name_goes_to_the_server_and_the_judged_address_to_the_dial() -> None:
    net = internet({"docs.example": [[PUBLIC]]})
    async with client(net) as web:
        assert (await web.get("https://docs.example/a?b#c")).text == "docs.example /a?b"
    assert (net.asked, net.dialled, net.certified) == (["docs.example"], [(PUBLIC, 443)], ["docs.example"])


async def test_a_name_is_resolved_once_a_connection_so_that_it_cannot_change_its_mind() -> None:
    net = internet({"rebind.test": [[PUBLIC], ["127.0.0.1"]]})
    async with client(net) as web:
        assert (await web.get("http://rebind.test/")).status_code == 200
        assert net.asked == ["rebind.test"]
    assert net.dialled == [(PUBLIC, 80)]
    async with client(net) as web:
        with pytest.raises(
            ForbiddenTarget, match=r"rebind\.test is not an allowed target: it is 127\.0\.0\.1, a loopback address"
        ):
            await web.get("http://rebind.test/")
    assert net.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize("answer", [[PUBLIC, "10.0.0.5"], ["10.0.0.5", PUBLIC], [PUBLIC, SIX, "::1"]])
async def test_one_private_address_in_the_answer_refuses_them_all(answer: list[str]) -> None:
    net = internet({"mixed.test": [answer]})
    async with client(net) as web:
        with pytest.raises(ForbiddenTarget):
            await web.get("http://mixed.test/")
    assert net.dialled == []


async def test_when_one_address_does_not_answer_the_next_one_is_tried() -> None:
    net = internet({"both.test": [[SIX, PUBLIC]]}, silent=[SIX])
    async with client(net) as web:
        assert (await web.get("http://both.test/")).status_code == 200
    assert net.dialled == [(SIX, 80), (PUBLIC, 80)]


async def test_not_every_address_of_a_long_answer_is_tried() -> None:
    many = [f"93.184.215.{number}" for number in range(50)]
    net = internet({"many.test": [many]}, silent=many)
    async with client(net) as web:
        with pytest.raises(httpx2.ConnectError, match="refused"):
            await web.get("http://many.test/")
    assert len(net.dialled) == MAX_TRIES


async def test_a_name_without_addresses_is_an_error_that_states_it() -> None:
    net = internet({"empty.test": [[]]})
    async with client(net) as web:
        with pytest.raises(httpx2.ConnectError, match=r"empty\.test has no address"):
            await web.get("http://empty.test/")
        with pytest.raises(httpx2.ConnectError, match=r"nowhere\.test cannot be resolved: .*not known"):
            await web.get("http://nowhere.test/")


async def test_a_client_that_follows_redirects_is_judged_at_each() -> None:
    net = Internet({"a.test": [[PUBLIC]]}, lambda host, path: redirect("http://169.254.169.254/latest"))
    async with client(net) as web:
        with pytest.raises(
            ForbiddenTarget, match=r"^169\.254\.169\.254 is not an allowed target: it is a cloud's metadata"
        ):
            await web.get("http://a.test/", follow_redirects=True)
    assert net.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.test/", "only http"),
        ("http://user:pw@a.test/", "user name or a password"),
        ("http://a.test:22/", "port 22 must not be used"),
        ("https://a.test:80/", "port 80 must not be used for https"),
        ("http://2130706433/", "is not an address"),
        ("http://0x7f.1/", "is not an address"),
        ("http://017700000001/", "is not an address"),
        ("http://127.1/", "is not an address"),
        ("http://127.0.0.1./", "a loopback address"),
        ("http://127\u30020\u30020\u30021/", "a loopback address"),
        ("http://a_b..test/", "is not a valid host name"),
        ("http://" + "a" * 64 + ".test/", "is not a valid host name"),
        ("http://" + "a." * 127 + "test/", "is not a valid host name"),
    ],
)
async def test_a_url_is_judged_before_any_name_is_resolved(url: str, why: str) -> None:
    net = internet({"a.test": [[PUBLIC]]})
    async with client(net) as web:
        with pytest.raises(ForbiddenTarget, match=why):
            await web.get(url)
    assert (net.asked, net.dialled) == ([], [])


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://B\u00fccher.test/", "xn--bcher-kva.test"),
        ("http://A.TEST./", "a.test"),
        ("http://a_b.test:8080/", "a_b.test"),
    ],
)
async def test_a_host_has_one_form_however_it_is_written(url: str, host: str) -> None:
    assert GuardedTransport().check_url(url).host == host


@pytest.mark.parametrize(
    ("private", "url", "verdict"),
    [
        ("wiki.test", "http://wiki.test/", True),
        ("WIKI.test.", "http://wiki.test/", True),
        ("wiki.test", "http://wiki.test:8080/", True),
        ("wiki.test", "http://wiki.test:6379/", False),
        ("wiki.test:6379", "http://wiki.test:6379/", True),
        ("wiki.test:6379", "http://wiki.test/", False),
        ("wiki.test", "http://other.test/", False),
        ("wiki.test", "http://meta.test/", False),
        ("meta.test", "http://meta.test/", False),
        ("meta.test:80", "http://169.254.169.254/", False),
        ("169.254.169.254", "http://169.254.169.254/", False),
        ("10.0.0.5", "http://10.0.0.5/", True),
        ("[::1]:9000", "http://[::1]:9000/", True),
        ("::1", "http://[0:0::1]/", True),
    ],
)
async def test_only_hosts_that_the_operator_names_may_lie_on_private_addresses(
    private: str, url: str, verdict: bool
) -> None:
    net = internet({"wiki.test": [["10.0.0.5"]], "other.test": [["10.0.0.5"]], "meta.test": [["169.254.169.254"]]})
    async with client(net, private=(private,)) as web:
        if verdict:
            assert (await web.get(url)).status_code == 200
        else:
            with pytest.raises(ForbiddenTarget):
                await web.get(url)
    assert len(net.dialled) == verdict


@pytest.mark.parametrize(
    "url", ["http://wiki.test/", "https://Wiki.test:9000/", "http://[::1]:9000/", "http://10.1.2.3/"]
)
def test_a_target_lists_itself_as_the_operator_would(url: str) -> None:
    host_port = target(url).host_port
    assert GuardedTransport([host_port]).check_url(url).host_port == host_port


@pytest.mark.parametrize("entry", ["", "a b", "wiki:port", "http://wiki/", "wiki/path", "*"])
def test_a_wrong_entry_is_the_operators_to_mend(entry: str) -> None:
    with pytest.raises(Misconfigured, match="private_hosts"):
        GuardedTransport([entry])


async def test_responses_stream_as_they_come_over_real_connections() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n")
        await heard.wait()  # the second event is only sent when the first one has arrived
        writer.write(b"data: two\n\n")

    async with serving(talk) as at, client(private=(at,)) as web, web.stream("GET", f"http://{at}/") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: one"
        heard.set()
        assert [line async for line in lines if line] == ["data: two"]


async def test_a_name_that_resolves_to_this_machine_is_refused_over_the_real_resolver() -> None:
    async with client() as web:
        with pytest.raises(ForbiddenTarget, match="loopback"):
            await web.get("http://localhost/")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return certificate_of("good.test", tmp_path)


@pytest.fixture
async def port(certificate: Path) -> AsyncIterator[str]:
    """The port of a server that has the certificate."""
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    async with serving(saying(response("secret", "text/plain")), own) as at:
        yield at.rpartition(":")[2]


async def get(host: str, port: str, trusted: Path | None) -> bytes:
    tls = ssl.create_default_context(cafile=trusted) if trusted else None
    transport = GuardedTransport([f"{host}:{port}"], network=Loopback(), tls=tls)
    try:
        return (await fetch(transport, f"https://{host}:{port}/", {})).body
    finally:
        await transport.aclose()


async def test_a_certificate_for_the_name_is_taken(certificate: Path, port: str) -> None:
    assert await get("good.test", port, certificate) == b"secret"


@pytest.mark.parametrize("host", ["bad.test", "127.0.0.1"])
async def test_a_certificate_for_another_name_is_not(certificate: Path, port: str, host: str) -> None:
    with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await get(host, port, certificate)


async def test_a_certificate_of_an_unknown_authority_is_refused(port: str) -> None:
    with pytest.raises(httpx2.ConnectError, match="self-signed"):
        await get("good.test", port, None)
