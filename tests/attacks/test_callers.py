"""What the callers with one token cannot do to those with another one: by uploads, and by what they name themselves."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.settings import Settings
from deputize.shared.workspaces import UPLOADS
from tests.orchestrator.access_tokens import MAIN, bearer, entry, secret_of, serving, write
from tests.orchestrator.mcp.clients import connected, content

GREEDY, HONEST = bearer("greedy"), bearer("honest")
OPERATOR = {"Authorization": f"Bearer {MAIN}"}
MOST = 2_000_000
SIZE = 400_000


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return Settings.load(environ={}, redis_url=redis_url, home=tmp_path / "home", upload_kept_bytes=MOST)


@pytest.fixture
async def http(settings: Settings, redis_url: str, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """The service, with a token for the attacker and one for another team."""
    path = write(tmp_path / "tokens.toml", *(entry(name, "submit", "read") for name in ("greedy", "honest")))
    async with open_service(settings, redis_url) as service, serving(service, path) as http:
        yield http


def archive(size: int) -> bytes:
    """What the service takes for a zip file, each of another content."""
    return b"PK\3\4" + os.urandom(size - 4)


async def sent(http: httpx2.AsyncClient, by: dict[str, str], *sizes: int) -> list[httpx2.Response]:
    """The answers to as many uploads at the same time, each of another content."""
    return await asyncio.gather(*(http.put("/v1/uploads", content=archive(size), headers=by) for size in sizes))


def bytes_in(settings: Settings) -> int:
    return sum(path.stat().st_size for path in (settings.workspaces / UPLOADS).iterdir())


async def test_uploads_of_one_token_take_no_more_than_its_part_and_nothing_of_the_others(
    http: httpx2.AsyncClient, settings: Settings
) -> None:
    at_once = await sent(http, GREEDY, *[SIZE] * 12)
    in_turn = [answer for _ in range(6) for answer in await sent(http, GREEDY, SIZE)]
    assert {answer.status_code for answer in at_once + in_turn} == {201, 413}
    assert bytes_in(settings) <= MOST
    refused = in_turn[-1].json()["detail"]
    assert "all uploads of the token greedy may take 2,000,000 bytes together" in refused
    assert "DEPUTIZE_UPLOAD_KEPT_BYTES" in refused
    for caller in (HONEST, OPERATOR):
        assert [each.status_code for each in await sent(http, caller, SIZE, SIZE)] == [201, 201]


async def test_many_small_uploads_count_for_what_they_cost(http: httpx2.AsyncClient, settings: Settings) -> None:
    answers = [answer for _ in range(5) for answer in await sent(http, GREEDY, *[16] * 10)]
    assert [answer.status_code for answer in answers].count(201) == MOST // (64 * 1024)
    assert len([*(settings.workspaces / UPLOADS).iterdir()]) == MOST // (64 * 1024)


async def test_what_has_been_removed_and_what_broke_off_makes_room_again(
    http: httpx2.AsyncClient, settings: Settings
) -> None:
    wrong = await http.put("/v1/uploads", content=archive(SIZE), params={"sha256": "0" * 64}, headers=GREEDY)
    assert wrong.status_code == 422
    assert {each.status_code for each in await sent(http, GREEDY, *[MOST // 4] * 4)} == {201}
    assert [each.status_code for each in await sent(http, GREEDY, SIZE)] == [413]
    for path in (settings.workspaces / UPLOADS).iterdir():  # as the janitor does
        path.unlink()
    assert [each.status_code for each in await sent(http, GREEDY, MOST)] == [201]


async def test_a_content_that_another_token_has_sent_counts_for_each(http: httpx2.AsyncClient) -> None:
    content = archive(MOST)
    for caller, status in ((HONEST, 201), (GREEDY, 201), (GREEDY, 413)):
        assert (await http.put("/v1/uploads", content=content, headers=caller)).status_code == status
    assert [each.status_code for each in await sent(http, HONEST, 16)] == [413]
    named = {"sha256": hashlib.sha256(content).hexdigest()}
    again = await http.put("/v1/uploads", content=content, params=named, headers=HONEST)
    assert again.status_code == 200, "the same content takes no more"
    wrong = await http.put("/v1/uploads", content=archive(MOST), params=named, headers=HONEST)
    assert wrong.status_code == 422


@pytest.mark.parametrize("key", ["nightly", "honest:nightly", "dlg_01k9zxv3q8h4t7m2n5p6r8s9ta:1:toolu_1"])
async def test_an_idempotency_key_that_one_token_has_taken_is_free_for_all_others(
    http: httpx2.AsyncClient, key: str
) -> None:
    by_field, by_header = {"task": "mine", "idempotencyKey": key}, {"task": "mine"}
    taken = await http.post("/v1/delegations", json={"task": "evil"}, headers=GREEDY | {"Idempotency-Key": key})
    ids = {taken.json()["id"]}
    for caller in (HONEST, OPERATOR):
        made = await http.post("/v1/delegations", json=by_field, headers=caller)
        again = await http.post("/v1/delegations", json=by_header, headers=caller | {"Idempotency-Key": key})
        batch = await http.post("/v1/delegations:batch", json={"requests": [by_field]}, headers=caller)
        assert (made.status_code, again.status_code, batch.status_code) == (202, 200, 202)
        assert made.json()["request"]["task"] == "mine"
        assert made.json()["id"] == again.json()["id"] == batch.json()["items"][0]["id"]
        ids.add(made.json()["id"])
    assert len(ids) == 3
    other = await http.post("/v1/delegations", json=by_field, headers=GREEDY)
    assert (other.status_code, other.json()["type"]) == (422, "urn:deputize:key-reused")


async def test_over_mcp_a_token_has_the_keys_that_it_has_over_http(http: httpx2.AsyncClient) -> None:
    url, ids = str(http.base_url).rstrip("/"), dict[str, str]()
    for name in ("greedy", "honest"):
        request = {"task": name, "idempotencyKey": "nightly"}
        async with connected("http", url, token=secret_of(name)) as client:
            answer = await client.call_tool("delegate_many", {"requests": [request], "wait": False})
        assert not answer.is_error, answer
        again = await http.post("/v1/delegations", json=request, headers=bearer(name))
        assert (again.status_code, again.json()["request"]["task"]) == (200, name)
        ids[name] = again.json()["id"]
        assert ids[name] in str(content(answer))
    assert len({*ids.values()}) == 2
