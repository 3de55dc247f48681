"""Who is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from deputize.orchestrator.app import create_app
from deputize.shared.errors import Misconfigured
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import opening, served, settings

GUARDED = ["/v1/delegations", "/v1/delegations/dlg_x", "/v1/events", "/v1/tools", "/v1/workers"]


@pytest.fixture
async def guarded() -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service with a token, which it does not send by itself."""
    async with (
        served(FakeService(), settings(token="sécret")) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url) as http,
    ):
        yield http


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize(
    "sent", [None, "Bearer wrong", "Bearer", "Basic c8OpY3JldA==", "Bearer sécret2", "Bearer secret", "sécret"]
)
async def test_without_the_token_every_request_is_refused(
    guarded: httpx2.AsyncClient, path: str, sent: str | None
) -> None:
    answer = await guarded.get(path, headers={b"Authorization": sent.encode()} if sent else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "`deputize token` prints that of a stack on its machine" in answer.json()["detail"]


async def test_with_the_token_everybody_is(guarded: httpx2.AsyncClient) -> None:
    answer = await guarded.get("/v1/workers", headers={b"Authorization": "Bearer sécret".encode()})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/openapi.json"])
async def test_probes_and_the_document_are_open(guarded: httpx2.AsyncClient, path: str) -> None:
    assert (await guarded.get(path)).status_code in (200, 503)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_without_a_token_it_does_not_start_where_others_can_reach_it(host: str) -> None:
    with pytest.raises(Misconfigured, match="DEPUTIZE_TOKEN"):
        create_app(opening(FakeService()), settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_without_a_token_it_starts_on_loopback_where_that_was_asked_for(host: str) -> None:
    create_app(opening(FakeService()), settings(host=host))
    with pytest.raises(Misconfigured, match=r"DEPUTIZE_TOKEN.*--no-token"):
        create_app(opening(FakeService()), settings(host=host, no_token=False))


async def test_without_a_token_a_name_that_points_here_is_refused(http: httpx2.AsyncClient) -> None:
    """A page whose own name was made to resolve to 127.0.0.1 sends that name."""
    answer = await http.get("/v1/workers", headers={"Host": "evil.example:8642"})
    assert answer.status_code == 401
    assert (await http.get("/v1/workers", headers={"Host": "localhost:8642"})).status_code == 200
