"""The same questions to this machine's network and to the two that tests of the web tools stand on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpcore2
import httpx2
import pytest

from deputize.orchestrator.sockets import free_port
from deputize.worker.web.dial import GuardedTransport, Network
from tests.network.internet import Internet, Rerouted, response
from tests.worker.web.servers import serving

HERE = "127.0.0.1"
ANSWER = response("Hello.", "text/plain")


@dataclass(frozen=True)
class Net:
    """A network with one server; nothing listens at ``silent``."""

    network: Network
    name: str
    port: int
    silent: tuple[str, int]


@pytest.fixture(params=["memory", "real", "rerouted"])
async def net(request: pytest.FixtureRequest) -> AsyncIterator[Net]:
    if request.param == "memory":
        memory = Internet({"localhost": [[HERE]]}, lambda host, path: ANSWER, silent=["127.0.0.2"], hangs_up=True)
        yield Net(memory, "localhost", 80, ("127.0.0.2", 80))
        return

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)

    async with serving(talk) as address:
        host, _, port = address.partition(":")
        if request.param == "rerouted":
            rerouted = Rerouted({"good.test": [[HERE]]}, {HERE: int(port)})
            yield Net(rerouted, "good.test", 80, ("127.0.0.2", free_port()))
            return
        yield Net(Network(), host, int(port), (HERE, free_port()))


async def test_a_name_has_addresses_as_text_and_an_unknown_one_raises_an_error_of_the_system(net: Net) -> None:
    assert HERE in await net.network.resolve(net.name, net.port)
    with pytest.raises(OSError) as unknown:  # noqa: PT011 - its number is the resolver's, its type is the promise
        await net.network.resolve("nobody.invalid", 80)
    assert isinstance(unknown.value, socket.gaierror)


async def test_a_request_gets_the_whole_answer(net: Net) -> None:
    transport = GuardedTransport([f"{HERE}:{net.port}"], network=net.network)
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as web:
        answer = await web.get(f"http://{HERE}:{net.port}/a?b")
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, "Hello.", "text/plain")


async def test_without_a_listener_the_connection_fails(net: Net) -> None:
    with pytest.raises(httpcore2.ConnectError):
        await net.network.connect_tcp(*net.silent)


async def test_a_connection_returns_what_was_sent_in_pieces_and_then_nothing(net: Net) -> None:
    stream = await net.network.connect_tcp(HERE, net.port)
    await stream.write(b"GET / HTTP/1.1\r\nHo")
    await stream.write(b"st: localhost\r\n\r\n")
    heard = b""
    while piece := await stream.read(7, timeout=30):
        assert len(piece) <= 7
        heard += piece
    await stream.aclose()
    assert heard == ANSWER
