"""TLS over the guarded dial: the certificate must be for the name in the URL, not for the address that is dialled."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from deputize.worker.web.dial import GuardedTransport
from deputize.worker.web.fetch import fetch
from tests.internet import response
from tests.worker.web.certificates import certificate_of
from tests.worker.web.servers import Loopback, saying, serving


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


async def test_a_certificate_that_nobody_vouches_for_is_not(port: str) -> None:
    with pytest.raises(httpx2.ConnectError, match="self-signed"):
        await get("good.test", port, None)
