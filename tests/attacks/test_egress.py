"""Commands and fetches of a run that may reach one host reach no other one, under whatever name."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deputize.shared.delegation import StepStatus
from tests.attacks.conftest import USERS
from tests.attacks.stage import Stage, open_stage, uid_of
from tests.network.internet import PUBLIC, redirect, response
from tests.runs.bench import call
from tests.worker.web.servers import saying, serving

pytestmark = pytest.mark.system
HELLO = response("hello", "text/plain")
PRIVATE = "10.0.0.5", "fd00::5", "169.254.169.254"
NAMES = {
    "in.test": [[PRIVATE[0]]],
    "six.test": [[PRIVATE[1]]],
    "metadata.test": [[PRIVATE[2]]],
    "first.test": [[PRIVATE[0], PUBLIC]],
    "last.test": [[PUBLIC, PRIVATE[1]]],
}
"""Hosts that are all allowed, and the answers to requests for their addresses."""
REBINDING = {f"{way}.test": [[PUBLIC], [PRIVATE[0]]] for way in ("plain", "tunnel", "fetch")}
"""A public address the first time only: one that is checked and another that is dialled."""
TWICE = "http://plain.test/", "-p http://tunnel.test/"
REACHED = "http://{allowed}/", "http://fetch.test/", "http://fetch.test/"
REFUSALS = "refused", "is not in sandbox.allowed_hosts", "cannot be reached", "is not an allowed target"
COMMANDS = {
    "past the proxy": "curl -sS -m 5 --noproxy '*' http://{allowed}/ http://{other}/",
    "another port": "curl -sS -m 5 --noproxy '' http://{other}/",
    "another port in a tunnel": "curl -sS -m 5 --noproxy '' -p http://{other}/",
    "Redis": "curl -sS -m 5 --noproxy '' -p http://localhost:{redis}/",
    "an address": "curl -sS -m 5 --noproxy '' http://127.0.0.1:{port}/",
    "an address in a tunnel": "curl -sS -m 5 --noproxy '' -p http://127.0.0.1:{port}/",
    "an address in one number": "curl -sS -m 5 --noproxy '' -p http://2130706433:{port}/",
    "an address in IPv6": "curl -sS -m 5 --noproxy '' -p 'http://[::1]:{port}/'",
    "an address of IPv4 in IPv6": "curl -sS -m 5 --noproxy '' -p 'http://[::ffff:127.0.0.1]:{port}/'",
    "the unspecified address": "curl -sS -m 5 --noproxy '' http://0.0.0.0:{port}/",
    "metadata": "curl -sS -m 5 http://169.254.169.254/latest/meta-data/",
    "a user's name": "curl -sS -m 5 --noproxy '' -p http://{allowed}@{other}/",
    "the Host header": "curl -sS -m 5 --noproxy '' -H 'Host: {allowed}' http://{other}/",
    "a redirect": "curl -sSL -m 5 --noproxy '' http://{away}/",
    "a redirect in tunnels": "curl -sSL -m 5 --noproxy '' -p http://{away}/",
    "a name of nothing": "curl -sS -m 5 http://secret.of.mine.example.org/",
    "name resolution": "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'",
    **{f"{name}, by name": f"curl -sS -m 5 http://{name}/" for name in NAMES},
    **{f"{name}, by name in a tunnel": f"curl -sS -m 5 -p http://{name}/" for name in NAMES},
    "UDP": 'python3 -c \'import socket; socket.socket(2, 2).sendto(b"x", ("1.1.1.1", 53))\'',
}
URLS = (
    *("http://{other}/", "http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://2130706433:{port}/"),
    *("http://0x7f.1:{port}/", "http://[::ffff:7f00:1]:{port}/", "http://{allowed}@{other}/", "http://{away}/"),
    *("http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://localhost:{redis}/"),
    *(
        "file:///etc/passwd",
        "file://{file}",
        "gopher://{other}/",
        "ftp://{other}/",
        "unix://{file}",
        "http://0:{port}/",
    ),
    *(f"http://{name}/" for name in NAMES),
)


def port_of(where: str) -> int:
    return int(where.rpartition(":")[2])


@asynccontextmanager
async def reaching(user: str) -> AsyncIterator[tuple[Stage, dict[str, str], list[str]]]:
    """A worker whose commands may reach two ports of this machine; their names, and what another server was asked."""
    asked: list[str] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append("asked")
        writer.write(response("SECRET", "text/plain"))

    folder = Path(tempfile.mkdtemp(prefix="deputize-", dir="/tmp"))
    try:
        async with (
            serving(other) as there,
            serving(saying(HELLO)) as here,
            serving(saying(redirect(f"http://{there}/"))) as away,
        ):
            own = {"sandbox": {"allowed_hosts": ["localhost", "*.test"]}, "tools": {"private_hosts": [here, away]}}
            ports = dict.fromkeys(PRIVATE, port_of(there)) | {PUBLIC: port_of(here)}
            network = {"names": NAMES | REBINDING, "ports": ports}
            async with open_stage(folder, uid_of(user), network, **own) as stage:
                names = {"allowed": here, "away": away, "other": there, "port": str(port_of(here))}
                yield stage, names | {"redis": str(stage.port), "file": str(stage.private_file)}, asked
    finally:
        shutil.rmtree(folder)


@pytest.mark.costly
@pytest.mark.parametrize("user", USERS)
async def test_one_host_is_reached_and_no_other_one(user: str) -> None:
    async with reaching(user) as (stage, names, asked):
        commands = [f"({line.format(**names)}) 2>&1 || echo refused" for line in COMMANDS.values()]
        tools = [call("bash", command="curl -sS --noproxy '' http://{allowed}/".format(**names))]
        tools += [call("bash", command=f"curl -sS -m 5 {way}; curl -sS -m 5 {way} || true") for way in TWICE]
        tools += [call("bash", command=each) for each in commands]
        urls = [call("web_fetch", url=url.format(**names)) for url in (*REACHED, *URLS)]
        outcome = await stage.attack(tools, urls)
    commands_said, fetches = outcome.answers()[: len(tools)], outcome.steps[len(tools) :]
    assert commands_said[0] == "hello"
    for said in commands_said[1:3]:
        assert (said.count("hello"), "is not an allowed target" in said) == (1, True), said
    for way, said in zip(COMMANDS, commands_said[3:], strict=True):
        assert any(reason in said for reason in REFUSALS), way
        assert "hello" not in said, way
    assert len(fetches) == len(REACHED) + len(URLS)
    fetched = [step.arguments["url"] for step in fetches if step.status is StepStatus.COMPLETED]
    assert sorted(fetched) == ["http://fetch.test/", f"http://{names['allowed']}/"]
    assert asked == []
    assert b"SECRET" not in outcome.left
