"""Redis over TLS: every client of ours encrypts, verifies the server, and shows a certificate where one is wanted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from redis.exceptions import RedisError

from deputize.shared.bus import Bus
from deputize.shared.connection import connect
from deputize.shared.errors import Misconfigured, Unavailable
from deputize.shared.queue import Ticket, create_app, send_tickets
from deputize.shared.redis_access import reach, reached
from deputize.shared.settings import Settings
from deputize.worker.standby import program
from tests.network.certificates import Authority
from tests.network.tls_proxy import TlsPort, tls_port
from tests.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port(redis_url: str, authority: Authority) -> Iterator[TlsPort]:
    """A port with a certificate for localhost that wants one of the same authority."""
    with tls_port(socket_of(redis_url), authority.issue("localhost"), authority.path) as port:
        yield port


def socket_of(redis_url: str) -> str:
    return unquote(redis_url.removeprefix("unix://"))


def settings(port: TlsPort, authority: Authority, host: str = "localhost", **more: str) -> Settings:
    files = {"CA_FILE": str(authority.path), "CERT_FILE": str(authority.issue("client.test"))} | more
    environ = {f"DEPUTIZE_REDIS_{name}": text for name, text in files.items() if text}
    return Settings.load(environ={**environ, "DEPUTIZE_REDIS_URL": f"rediss://{host}:{port.port}/0"})


def url_of(chosen: Settings) -> str:
    assert chosen.redis_url
    return chosen.redis_url


async def by_connection(chosen: Settings) -> None:
    async with connect(url_of(chosen), timeout=3) as redis:
        await redis.ping()


async def by_subscription(chosen: Settings) -> None:
    async with connect(url_of(chosen), timeout=3) as redis, Bus(redis) as bus, bus.listen("deputize:test") as listener:
        async with connect(url_of(chosen), timeout=3) as sender:
            await until(lambda: sender.publish("deputize:test", "heard"), 5)
        await listener.get()


def by_celery(chosen: Settings) -> None:
    with create_app(chosen, url_of(chosen)) as app:
        send_tickets(app, [Ticket("dlg_1")])


def by_standby(chosen: Settings) -> None:
    """Its program runs without this project's code and environment."""
    given = {"pid": os.getpid(), "tick": 1, "lease": 3, "bound": 9, "url": url_of(chosen), "ping": "return 1"}
    asked = "import sys, json, runpy; standby = runpy.run_path(sys.argv[1])['LeaseRenewal'](json.loads(sys.argv[2]))"
    asked += "; print(standby._evaluate('ping', [], {}))"
    command = [sys.executable, "-I", "-c", asked, program.__file__, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, env={}, timeout=60)
    if done.stdout != "1\n":
        raise Unavailable(done.stderr)


async def by_start(chosen: Settings) -> None:
    await reached(url_of(chosen), 1)


CLIENTS: dict[str, Callable[[Settings], object]] = {
    function.__name__.removeprefix("by_"): function for function in (by_connection, by_celery, by_standby, by_start)
}
REFUSED = (RedisError, Unavailable, Misconfigured)


async def called(client: str, chosen: Settings) -> None:
    if (doing := CLIENTS[client](chosen)) is not None:
        await doing  # pyright: ignore[reportGeneralTypeIssues]


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_speaks_tls_and_shows_its_certificate(
    client: str, port: TlsPort, authority: Authority
) -> None:
    await called(client, settings(port, authority))
    assert port.opened


async def test_subscriptions_are_made_over_tls(port: TlsPort, authority: Authority) -> None:
    await by_subscription(settings(port, authority))
    assert {b"SUBSCRIBE", b"PUBLISH"} <= port.words


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("host", "files"),
    [
        ("localhost", {"CA_FILE": ""}),
        ("localhost", {"CA_FILE": "other.pem"}),
        ("127.0.0.1", {}),
        ("localhost", {"CERT_FILE": ""}),
    ],
    ids=["an unknown authority", "another authority", "another name", "no certificate of its own"],
)
async def test_no_client_talks_where_a_certificate_does_not_fit(
    client: str, host: str, files: dict[str, str], port: TlsPort, authority: Authority, tmp_path: Path
) -> None:
    files = {name: str(Authority(tmp_path, "other").path) if text else "" for name, text in files.items()}
    with pytest.raises(REFUSED):
        await called(client, settings(port, authority, host, **files))
    assert port.words == set()


def test_a_certificate_that_does_not_fit_is_a_mistake_of_the_settings_at_once(
    port: TlsPort, authority: Authority
) -> None:
    begun = time.monotonic()
    with pytest.raises(Misconfigured, match="DEPUTIZE_REDIS_CA_FILE"):
        reach(url_of(settings(port, authority, CA_FILE="")), 60)
    with pytest.raises(Misconfigured, match=r"/nowhere/ca\.pem cannot be read"):
        settings(port, authority, CA_FILE="/nowhere/ca.pem")
    assert time.monotonic() - begun < 30


def test_an_address_without_tls_is_named(authority: Authority) -> None:
    files = {"DEPUTIZE_REDIS_CA_FILE": str(authority.path)}
    with pytest.raises(Misconfigured, match="redis:// is without TLS"):
        Settings.load(environ={"DEPUTIZE_REDIS_URL": "redis://host/0"} | files)


def test_a_server_without_tls_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"-ERR unknown command\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Misconfigured, match="there is no TLS at this address"):
            reach(f"rediss://127.0.0.1:{listening.getsockname()[1]}/0", 60)
        thread.join()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"URL": "rediss://host/0?ssl_cert_reqs=none"}, "certificates are always verified"),
        ({"URL": "rediss://host/0?ssl_check_hostname=false"}, "certificates are always verified"),
        ({"URL": "rediss://host/0", "KEY_FILE": os.devnull}, "key_file needs cert_file"),
        ({"URL": "redis://host/0", "USER": "x"}, "user needs password"),
        ({"USER": "x", "PASSWORD": "y"}, "redis_url: is not set"),
    ],
)
def test_parts_that_do_not_fit_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        Settings.load(environ={f"DEPUTIZE_REDIS_{name}": text for name, text in environ.items()})


def test_user_and_password_override_those_of_the_address_and_only_the_password_is_secret() -> None:
    environ = {"DEPUTIZE_REDIS_USER": "deputize", "DEPUTIZE_REDIS_PASSWORD": "p@ss/w:ord"}
    chosen = Settings.load(environ={**environ, "DEPUTIZE_REDIS_URL": "redis://a:b@host:1/2"})
    assert chosen.redis_url == "redis://deputize:p%40ss%2Fw%3Aord@host:1/2"
    assert {*chosen.secrets} == {"p@ss/w:ord", "p%40ss%2Fw%3Aord"}
    again = Settings.load(environ={**environ, "DEPUTIZE_REDIS_URL": chosen.redis_url})
    assert again.redis_url == chosen.redis_url


@pytest.mark.parametrize("url", ["unix:///tmp/r.sock", "unix:///tmp/r.sock?db=1", "redis://one:1/2"])
def test_an_address_stays_one_beside_other_settings_of_redis(url: str) -> None:
    """The standby of a worker refuses ``unix:/tmp/r.sock``."""
    assert Settings.load(environ={"DEPUTIZE_REDIS_URL": url, "DEPUTIZE_REDIS_REPLICAS": "1"}).redis_url == url


def test_a_path_in_the_file_is_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    (tmp_path / "deputize.toml").write_text('redis_url = "rediss://host/0"\n[redis]\nca_file = "ca.pem"\n')
    chosen = Settings.load(tmp_path / "deputize.toml", environ={})
    assert chosen.redis.ca_file == tmp_path / "ca.pem"
