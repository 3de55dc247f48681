"""A server's own host may lie on a private address; this machine's loopback is reached only where the file says so."""

from __future__ import annotations

import httpx2
import pytest

from deputize.worker.mcp.streams import guarded
from deputize.worker.web.targets import ForbiddenTarget
from tests.internet import PUBLIC, Internet, response


def internet(host: str, address: str) -> Internet:
    return Internet({host: [[address]]}, lambda host, path: response(f"{host} {path}", "text/plain"))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_this_machine_is_not_dialled(address: str) -> None:
    network = internet("tools.example", address)
    async with httpx2.AsyncClient(transport=guarded("http://tools.example:9000/mcp", network)) as client:
        with pytest.raises(ForbiddenTarget, match=r"tools\.example is not an allowed target"):
            await client.get("http://tools.example:9000/mcp")
    assert network.dialled == []


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("tools.example", "10.0.0.5"),
        ("tools.example", PUBLIC),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST", "::1"),
        ("tools.localhost", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
async def test_what_the_url_says_itself_is_dialled(host: str, address: str) -> None:
    network, url = internet(host.lower(), address), f"http://{host}:9000/mcp"
    async with httpx2.AsyncClient(transport=guarded(url, network)) as client:
        assert (await client.get(url)).status_code == 200
    assert network.dialled == [(address, 9000)]
