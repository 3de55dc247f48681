"""Commands that may reach hosts: through the proxy what is allowed, and in no other way anything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
import socket
import ssl
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.contracts import Command
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import BindMount
from deputize.worker.sandbox.project_tools import ProjectTools
from deputize.worker.web.egress_proxy import EgressProxy
from tests.network.internet import response
from tests.waiting import until
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over
from tests.worker.web.certificates import certificate_of
from tests.worker.web.servers import Loopback, Talk, falling_silent, saying, serving

NAME = "good.test"
HELLO = saying(response("hello", "text/plain"))


@asynccontextmanager
async def reaching(
    place: Path, talk: Talk = HELLO, tls: ssl.SSLContext | None = None, **more: Any
) -> AsyncIterator[tuple[Bubblewrap, str, list[str]]]:
    """A sandbox whose commands reach a server here as ``good.test:PORT``; that, and what they were refused."""
    assert await Bubblewrap.selftest() is None
    refused: list[str] = []
    async with serving(talk, tls) as at:
        name = f"{NAME}:{at.rpartition(':')[2]}"
        reach = EgressProxy(
            "the list", [NAME], 1 << 26, private_hosts=[name], on_refused=refused.append, network=Loopback()
        )
        with sandbox_over(place, reach=reach, **more) as sandbox:
            yield sandbox, name, refused


async def test_programs_reach_an_allowed_host_by_their_usual_variables(place: Path) -> None:
    python = "import urllib.request as r; print(r.urlopen('http://{}/').read().decode())"
    async with reaching(place) as (sandbox, name, refused):
        assert await said(sandbox, f"curl -sS http://{name}/; echo; curl -sSp http://{name}/") == "hello\nhello"
        assert await said(sandbox, f'python3 -c "{python.format(name)}"') == "hello"
    assert refused == []


async def test_tls_is_between_the_program_and_the_host(place: Path, tmp_path: Path) -> None:
    pem = certificate_of(NAME, tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(pem)
    async with reaching(place, tls=own) as (sandbox, name, _):
        (place / "good.pem").write_bytes(pem.read_bytes())
        (place / "good.pem").chmod(0o644)  # under any umask
        assert await said(sandbox, f"curl -sS --cacert good.pem https://{name}/") == "hello"
        assert "certificate" in await said(sandbox, f"curl -sS https://{name}/")


async def test_a_refused_host_is_named_in_the_output_and_to_the_caller(place: Path) -> None:
    async with reaching(place) as (sandbox, _, refused):
        merged = (await sandbox.run(bash("curl -sS https://other.test/; exit 3", merged=True))).stdout.decode()
    assert "CONNECT tunnel failed, response 403" in merged
    assert "[network: other.test is not in the list]\n" in merged
    assert refused == ["other.test is not in the list"]


WAYS = """
import json, socket, sys
for family, kind, address in json.loads(sys.argv[1]):
    try:
        with socket.socket(family, kind) as way:
            way.connect(tuple(address) if isinstance(address, list) else address)
            way.send(b"GET / HTTP/1.1\\r\\n\\r\\n")
            print("sent to", address, kind)
    except OSError:
        pass
"""


async def test_no_way_leads_to_another_server_of_this_machine(place: Path) -> None:
    """Not past the proxy, by any kind of socket, and not through it, under any name."""
    came: list[bytes] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(b"a connection")
        writer.close()

    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        abstract.bind(f"\0{place}")
        abstract.listen()
        udp.bind(("127.0.0.1", 0))
        async with await asyncio.start_server(other, "127.0.0.1") as tcp, reaching(place) as (sandbox, name, _):
            port = tcp.sockets[0].getsockname()[1]
            stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
            ways: list[Any] = [
                *((socket.AF_INET, stream, [host, port]) for host in ("127.0.0.1", "0.0.0.0", "10.0.0.1")),
                (socket.AF_INET6, stream, ["::ffff:127.0.0.1", port]),
                (socket.AF_UNIX, stream, f"\0{place}"),
                (socket.AF_INET, datagram, ["10.0.0.1", 53]),
            ]
            (place / "ways.py").write_text(WAYS)
            assert await said(sandbox, f"python3 - {shlex.quote(json.dumps(ways))} <ways.py") == ""
            ask_udp = shlex.quote(json.dumps([(socket.AF_INET, datagram, udp.getsockname())]))
            await said(sandbox, f"python3 - {ask_udp} <ways.py")  # arrives on the loopback of the sandbox alone
            urls = [f"http://{host}:{port}/" for host in ("localhost", "127.0.0.1", "2130706433", "[::1]", NAME)]
            for url in [*urls, f"http://{name}@localhost:{port}/"]:
                assert "403" in await said(sandbox, f"curl -sS --noproxy '' -w '%{{http_connect}}' -p {url}"), url
            assert await said(sandbox, f"curl -sS http://{name}/") == "hello"
        for waiting, take in ((abstract, abstract.accept), (udp, lambda: udp.recv(100))):
            waiting.setblocking(False)
            with pytest.raises(BlockingIOError):
                take()
    assert came == []


@pytest.mark.long
async def test_pip_installs_from_an_index_that_is_allowed(place: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        info = "greeting-1.0.dist-info"
        file.writestr("greeting.py", "word = 'installed'\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    page = f'<a href="/{wheel.name}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}">{wheel.name}</a>'
    answers = iter([response(page), response(wheel.read_bytes(), "application/octet-stream")])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers))

    spec = find_spec("pip")
    assert spec
    assert spec.origin
    tools = ProjectTools(mounts=(BindMount("pip", Path(spec.origin).parent, "/opt/pip/pip"),))
    async with reaching(place, answer, tools=tools) as (sandbox, name, _):
        options = "--isolated --no-cache-dir --no-deps --disable-pip-version-check --target lib"
        index = f"--index-url http://{name}/simple --trusted-host {name} greeting"
        done = await sandbox.run(bash(f"python3 -m pip install {options} {index}", 60, env={"PYTHONPATH": "/opt/pip"}))
        assert done.exit_code == 0, done.stdout + done.stderr
        assert await said(sandbox, "PYTHONPATH=lib python3 -c 'import greeting; print(greeting.word)'") == "installed"


@pytest.mark.parametrize(
    ("argv", "code"), [(["no-such-program"], 127), (["/etc/passwd"], 126), (["sh", "-c", "kill -SEGV $$"], 139)]
)
async def test_a_command_ends_as_it_does_without_a_proxy(argv: list[str], code: int, place: Path) -> None:
    async with reaching(place) as (sandbox, _, _):
        assert (await sandbox.run(Command(argv, 20))).exit_code == code
        assert await said(sandbox, "yes | head -n 1; echo ${PIPESTATUS[0]}") == "y\n141"


async def test_a_command_finds_neither_descriptors_nor_processes_of_the_proxy(place: Path) -> None:
    async with reaching(place) as (sandbox, name, _):
        listing = f"curl -sS http://{name}/ >x; ls /proc/self/fd; set -- /proc/[0-9]*; echo $#"
        assert await said(sandbox, listing) == "0\n1\n2\n3\n3"  # bubblewrap, the guard and this shell


async def test_a_background_command_reaches_hosts_until_it_ends(place: Path) -> None:
    async with reaching(place, falling_silent(b"HTTP/1.1 200 OK\r\n\r\nbegun")) as (sandbox, name, _):
        shell = await sandbox.shells.start("curl", bash(f"curl -sSN http://{name}/ >x"))
        await until(lambda: (place / "x").exists() and (place / "x").read_text() == "begun")
        await sandbox.shells.end()
    assert not shell.running
