"""Permissions over HTTP: what waits, the one answer, and who gave it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.events import PermissionAnswered
from deputize.shared.wording import answer_words
from tests.orchestrator.access_tokens import bearer, entry, serving, write
from tests.runs.asking import WRITE, asking_bench, begun, questions
from tests.runs.bench import Bench, say, script
from tests.waiting import until


@dataclass
class Front:
    """A service over HTTP and the worker beside it."""

    http: httpx2.AsyncClient
    bench: Bench

    async def pending(self, **params: Any) -> list[Any]:
        response = await self.http.get("/v1/permissions", params=params, headers=bearer("ada"))
        assert response.status_code == 200, response.text
        return response.json()["items"]

    async def has_announced(self) -> bool:
        return bool((await self.http.get("/v1/tools", headers=bearer("ada"))).json())

    async def answer(self, id: str, outcome: str, by: str = "ada", **fields: Any) -> httpx2.Response:
        body = {"outcome": outcome, **fields}
        return await self.http.post(f"/v1/permissions/{id}", json=body, headers=bearer(by))


@asynccontextmanager
async def fronted(redis_url: str, folder: Path) -> AsyncIterator[Front]:
    people = ("ada", "bob")
    path = write(folder / "tokens.toml", *(entry(name, "approve", "read", "admin", "all") for name in people))
    async with (
        asking_bench(redis_url, folder / "home") as bench,
        open_service(bench.settings, redis_url) as service,
        serving(service, path) as http,
    ):
        yield Front(http, bench)


@pytest.fixture
async def front(redis_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with fronted(redis_url, tmp_path) as front:
        yield front


async def test_a_request_is_listed_answered_once_and_recorded(front: Front, tmp_path: Path) -> None:
    id, run = await begun(front.bench, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(front.bench)
    (listed,) = await front.pending()
    assert listed == request.to_dict()
    assert (await front.pending(delegation=id), await front.pending(delegation=f"{id[:-1]}{'10'[id[-1] == '1']}")) == (
        [listed],
        [],
    )
    resource = (await front.http.get(f"/v1/delegations/{id}", headers=bearer("ada"))).json()
    assert (resource["status"], resource["pendingPermissions"]) == ("waiting", [request.permission_id])
    first, second = (
        await front.answer(request.permission_id, "y"),
        await front.answer(request.permission_id, "n", "bob"),
    )
    assert (first.status_code, first.content, second.status_code) == (204, b"", 409)
    assert 'was answered before: approved by token "ada" at ' in second.json()["detail"]
    await run
    assert (await front.bench.result(id)).files_modified == ["a.txt"]
    assert (await front.http.get(f"/v1/delegations/{id}", headers=bearer("ada"))).json()["pendingPermissions"] == []
    log = (await front.http.get("/v1/audit", headers=bearer("ada"))).json()["items"]
    found = [(each["token"], each["status"], each["delegationIds"]) for each in log]
    assert found == [("bob", 409, [id]), ("ada", 204, [id])]
    assert await front.pending() == []


async def test_of_many_answers_at_once_one_counts(front: Front, tmp_path: Path) -> None:
    id, run = await begun(front.bench, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(front.bench)
    outcomes = ["y", "n"] * 5
    given = [front.answer(request.permission_id, outcome, by) for outcome in outcomes for by in ("ada", "bob")]
    found = await asyncio.gather(*given)
    assert sorted(each.status_code for each in found) == [204, *[409] * 19]
    await run
    (report,) = [each.event for each in await front.bench.events(id) if isinstance(each.event, PermissionAnswered)]
    first = f"was answered before: {answer_words(report.outcome, report.by, None)} at "
    assert [each for each in found if each.status_code == 409 and first not in each.json()["detail"]] == []


async def test_changed_arguments_are_checked_where_they_are_sent(front: Front, tmp_path: Path) -> None:
    id, run = await begun(front.bench, script(tmp_path, [WRITE], [say("done")]))
    (request,) = await questions(front.bench)
    await until(front.has_announced)
    for arguments, pointer in (
        ({"path": 7, "content": ""}, "/arguments/path"),
        ({"path": "a"}, "/arguments"),
        (None, "/arguments"),
    ):
        refused = await front.answer(request.permission_id, "modify", arguments=arguments)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer), refused.text
    wrong = await front.answer(request.permission_id, "proceed_always_server")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/outcome")
    changed = await front.answer(request.permission_id, "modify", arguments={"path": "b.txt", "content": "y"})
    assert changed.status_code == 204, changed.text
    await run
    assert (await front.bench.result(id)).files_modified == ["b.txt"]


@pytest.mark.parametrize("id", ["prm_x", "prm_" + "0" * 26 + "_00000000", "dlg_x", "%2e%2e"])
async def test_an_unknown_request_is_not_found(front: Front, id: str) -> None:
    assert (await front.answer(id, "y")).status_code == 404


async def test_a_wrong_answer_names_the_mistake(front: Front) -> None:
    for body, pointer in (
        ({"outcome": "proced_once"}, "/outcome"),
        ({}, "/outcome"),
        ({"outcome": "y", "why": 1}, "/why"),
    ):
        answer = await front.http.post("/v1/permissions/prm_x", json=body, headers=bearer("ada"))
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
