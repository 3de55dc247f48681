"""What a token can learn of, and do to, the delegations of another owner: through HTTP, its streams and MCP."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.client import Client
from deputize.orchestrator.operations import OPERATIONS
from deputize.orchestrator.owner_caps import publish
from deputize.shared.delegation import Status
from deputize.shared.errors import NotFound
from deputize.shared.request import ApprovalMode, DelegationRequest, DirectoryWorkspace
from deputize.shared.runs.caps import caps_of_owner
from deputize.shared.runs.keys import spend_key
from deputize.shared.settings import SpendWindows
from deputize.shared.wire import now
from deputize.worker.task import carry_out
from tests.fake_model import Turn, text
from tests.orchestrator.access_tokens import MAIN, bearer, entry, secret_of, serving, write
from tests.orchestrator.bodies import BODIES
from tests.orchestrator.mcp.clients import connected, content
from tests.orchestrator.whole import Whole, open_whole, writes
from tests.runs.asking import questions

OF_ANN = "the secret of Ann"
ALL_BUT_ALL = ("submit", "read", "approve", "admin")
ANN, BOB, ROOT, FRIEND = (bearer(name) for name in ("ann", "bob", "root", "friend"))
MAIN_TOKEN = {"Authorization": f"Bearer {MAIN}"}
UNKNOWN = "dlg_01k9zxv3q8h4t7m2n5p6r8s9ta"
OF_ONE = [each for each in OPERATIONS if "{id}" in each.path]
OF_ALL = {"prune_delegations": ("POST", {}), "get_disk_usage": ("GET", None), "list_audit_entries": ("GET", None)}


@dataclass
class Stage:
    http: httpx2.AsyncClient
    whole: Whole
    ended: str
    queued: str

    async def made(self, by: dict[str, str], **fields: Any) -> httpx2.Response:
        return await self.http.post("/v1/delegations", json={"task": "mine", **fields}, headers=by)


@pytest.fixture
async def stage(redis_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """The service with two delegations of Ann, one of them ended, and one of the main token."""
    friend = entry("friend", *ALL_BUT_ALL, more='owner = "ann"\n')
    path = write(
        tmp_path / "tokens.toml",
        *(entry(name, *ALL_BUT_ALL) for name in ("ann", "bob")),
        friend,
        entry("root", *ALL_BUT_ALL, "all"),
    )
    async with (
        open_whole(redis_url, tmp_path / "home", permission_timeout_seconds=60, local=True) as whole,
        serving(whole.service, path) as http,
    ):
        asked = {"task": OF_ANN, "session_id": "ann's", "labels": {"team": "ann"}}
        whole.model.script(OF_ANN, [Turn([writes("a.txt")]), Turn([text(OF_ANN)])])
        ann = whole.service.of("ann", is_confined=True)
        ended = (await ann.create(DelegationRequest.model_validate(asked))).delegation
        await whole.finished(ended)
        queued = (await ann.create(DelegationRequest(task=OF_ANN))).delegation
        await whole.service.create(DelegationRequest(task="of the main token"))
        yield Stage(http, whole, ended.id, queued.id)


def answer_of(response: httpx2.Response, id: str) -> tuple[int, str]:
    """The answer, without what differs each time."""
    return response.status_code, re.sub(r"req_\w+|dlg_[0-9a-z]{26}", "", response.text.replace(id, "")).strip()


@pytest.mark.parametrize("operation", OF_ONE, ids=lambda each: each.id)
async def test_what_belongs_to_another_owner_is_answered_as_what_never_was(stage: Stage, operation: Any) -> None:
    body = BODIES.get(operation.path, {})
    for id in (stage.ended, stage.queued, (await stage.whole.service.list()).items[0].id):
        answers = list[tuple[int, str]]()
        for each in (id, UNKNOWN):
            path = re.sub(r"{(?:path:file|name)}", "a.txt", operation.path).replace("{id}", each)
            sent = json.loads(json.dumps(body).replace("{id}", each)) if operation.method != "GET" else None
            answers.append(answer_of(await stage.http.request(operation.method, path, json=sent, headers=BOB), each))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404, answers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/delegations",
        "/v1/delegations?session=ann%27s",
        "/v1/delegations?label=team:ann",
        "/v1/delegations?status=succeeded",
        "/v1/delegations?forReview=true",
        "/v1/delegations?status=queued",
        "/v1/delegations?parent={id}",
        "/v1/delegations:count",
        "/v1/permissions",
        "/v1/permissions?delegation={id}",
        "/v1/webhooks",
        "/v1/webhooks?delegation={id}",
        *(f"/v1/cost?by={by}" for by in ("day", "session", "label", "label:team", "model", "delegation")),
    ],
)
async def test_no_list_and_no_sum_has_anything_of_another_owner(stage: Stage, path: str) -> None:
    ids = (stage.ended, UNKNOWN)
    answers = [await stage.http.get(path.replace("{id}", id), headers=BOB) for id in ids]
    assert answer_of(answers[0], ids[0]) == answer_of(answers[1], ids[1])
    assert not re.search(r"Ann|ann|dlg_0[0-9a-z]{25}", answers[0].text.replace(stage.ended, ""))
    if "count" in path or "cost" in path:
        found = answers[0].json()
        counted = found["total"]["delegations"] if "total" in found else sum(found.values())
        assert counted == 0
    everything = {
        name: (await stage.http.get(path.replace("{id}", stage.ended), headers=by)).text
        for name, by in {"ann": ANN, "friend": FRIEND, "root": ROOT, "main": MAIN_TOKEN}.items()
    }
    assert everything["ann"] == everything["friend"]
    assert everything["root"] == everything["main"]


@pytest.mark.parametrize("name", OF_ALL)
async def test_what_concerns_all_owners_needs_the_scope_all(stage: Stage, name: str) -> None:
    method, body = OF_ALL[name]
    path = next(each.path for each in OPERATIONS if each.id == name)
    refused = await stage.http.request(method, path, json=body, headers=ANN)
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:deputize:scope-missing")
    assert "scope `all`" in refused.json()["detail"]
    assert (await stage.http.request(method, path, json=body, headers=ROOT)).status_code == 200


@pytest.mark.parametrize("kind", ["a directory", "a link to one", "a repository"])
async def test_a_workspace_has_nothing_of_the_service_or_another_owner(stage: Stage, tmp_path: Path, kind: str) -> None:
    settings, link = stage.whole.bench.settings, tmp_path / "link"
    settings.proof_key_folder.mkdir(exist_ok=True)
    own = settings.workspaces / stage.ended / "files"
    for path in (settings.home, settings.proof_key_folder, settings.workspaces, own.parent, own):
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        given = {"kind": "git", "url": f"file://{path}"} if kind == "a repository" else {"kind": "directory"}
        given |= {"path": str(link if kind == "a link to one" else path)} if given["kind"] == "directory" else {}
        answer = await stage.made(BOB, workspace=given, parentId=stage.ended)
        assert (answer.status_code, "is private to the service" in answer.text) == (422, True), answer.text


@pytest.mark.parametrize("name", ["link", "files"])
async def test_a_link_that_changes_after_the_check_leads_to_no_files_of_another_owner(
    stage: Stage, tmp_path: Path, name: str
) -> None:
    link, whole = tmp_path / stage.ended / name, stage.whole
    link.parent.mkdir()
    link.symlink_to(tmp_path / stage.ended)
    spec = DirectoryWorkspace(kind="directory", path=str(link))
    request = DelegationRequest(task="mine", workspace=spec, parent_id=stage.ended if name == "files" else None)
    made = (await whole.service.of("bob", is_confined=True).create(request)).delegation
    link.unlink()
    link.symlink_to(whole.bench.settings.workspaces / stage.ended / "files")
    result = await whole.finished(made)
    assert result.status is Status.FAILED
    assert ("is private to the service" in result.summary + str(result.errors)) == (name == "link")
    assert not list((whole.bench.settings.workspaces / made.id).rglob("a.txt"))


@pytest.mark.parametrize(
    "fields",
    [
        {"after": [{"id": "{id}"}]},
        {"continues": "{id}"},
        {"retryOf": "{id}", "fromTurn": 1},
        {"parentId": "{id}"},
        {"merges": ["{id}"]},
        {"workspace": {"kind": "archive", "upload": "{upload}"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_a_request_cannot_name_what_belongs_to_another_owner(stage: Stage, fields: dict[str, Any]) -> None:
    sent = (await stage.http.put("/v1/uploads", content=b"PK\3\4" + os.urandom(64), headers=ANN)).json()["upload"]
    answers = list[tuple[int, str]]()
    for id, upload in ((stage.ended, sent), (UNKNOWN, "sha256:" + "0" * 64)):
        given = json.loads(json.dumps(fields).replace("{id}", id).replace("{upload}", upload))
        answer = await stage.made(BOB, **given)
        answers.append((answer.status_code, re.sub(r"dlg_\w+|sha256:\w+|\d{4}-[\d:.TZ-]+", "", answer.text)))
    assert answers[0] == answers[1] or "parentId" in fields
    assert answers[0][0] in ((202,) if "parentId" in fields else (404, 422))
    children = (await stage.http.get(f"/v1/delegations?parent={stage.ended}", headers=ANN)).json()
    assert children["items"] == []


async def test_streams_have_only_events_of_the_own_owner(stage: Stage) -> None:
    heard = {"bob": list[str](), "ann": list[str]()}

    async def listen(name: str, ready: asyncio.Event) -> None:
        async with stage.http.stream("GET", "/v1/events", headers=bearer(name)) as events:
            ready.set()
            async for line in events.aiter_lines():
                heard[name].append(line)
                if OF_ANN in line or "last of" in line:
                    return

    ready = {name: asyncio.Event() for name in heard}
    tasks = [asyncio.create_task(listen(name, ready[name])) for name in heard]
    try:
        await asyncio.gather(*(each.wait() for each in ready.values()))
        await stage.made(ANN, task=OF_ANN)
        await stage.made(BOB, task="last of Bob")
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
    finally:
        for task in tasks:
            task.cancel()
    with pytest.raises(NotFound):
        await anext(stage.whole.service.of("bob", is_confined=True).follow(stage.queued))
    assert "last of Bob" in "".join(heard["bob"])
    assert OF_ANN not in "".join(heard["bob"])
    assert OF_ANN in "".join(heard["ann"])


async def test_over_mcp_and_the_client_there_is_no_other_owner_either(stage: Stage) -> None:
    url = str(stage.http.base_url).rstrip("/")
    async with connected("http", url, token=secret_of("bob")) as mcp:
        for name, given in (
            ("delegate_result", {"id": stage.ended}),
            ("delegations", {}),
            ("cancel", {"id": stage.queued}),
            ("send_message", {"id": stage.queued, "text": "x"}),
            ("wrap_up", {"id": stage.queued}),
            ("pending_permissions", {}),
        ):
            answer = await mcp.call_tool(name, given)
            assert answer.is_error == ("id" in given), name
            assert OF_ANN not in str(content(answer) if not answer.is_error else answer)
        assert (await mcp.list_resources()).resources == []
        with pytest.raises(Exception, match=r"there is no delegation|not found|Unknown"):
            await mcp.read_resource(f"deputize://delegations/{stage.ended}")
    async with Client(url, token=secret_of("bob")) as client:
        for call in (client.get, client.patch, client.steps, client.cancel):
            with pytest.raises(NotFound):
                await call(stage.ended)
        assert (await client.list()).items == []
    assert (await stage.whole.service.get(stage.queued)).status == "queued"


async def test_what_is_added_to_a_delegation_belongs_to_its_owner(stage: Stage) -> None:
    continued = await stage.http.post(
        f"/v1/delegations/{stage.ended}/continue", json={"text": "go on"}, headers=MAIN_TOKEN
    )
    retried = await stage.http.post(f"/v1/delegations/{stage.ended}/retry", json={}, headers=ROOT)
    child = await stage.made(MAIN_TOKEN, parentId=stage.queued)
    shared = await stage.made(FRIEND)
    merged = await stage.http.post("/v1/merges", json={"ids": [stage.ended]}, headers=ROOT)
    for answer in (continued, retried, child, shared, merged):
        made = answer.json()
        assert (made.get("delegation") or made)["owner"] == "ann", answer.text
    assert (await stage.made(MAIN_TOKEN)).json()["owner"] is None
    assert (await stage.made(BOB)).json()["owner"] == "bob"
    counts = (await stage.http.get("/v1/delegations:count", headers=ANN)).json()
    assert (counts["queued"], counts["succeeded"]) == (6, 1)


async def test_a_permission_of_another_owner_can_be_neither_read_nor_answered(stage: Stage) -> None:
    ann, bench = stage.whole.service.of("ann", is_confined=True), stage.whole.bench
    stage.whole.model.script("ask", [Turn([writes("b.txt")]), Turn([text("done")])])
    asking = (await ann.create(DelegationRequest(task="ask", approval_mode=ApprovalMode.ASK))).delegation
    running = asyncio.create_task(carry_out(bench.services, asking.id))
    (asked,) = await questions(bench)
    ids = (asked.permission_id, f"prm_{UNKNOWN.removeprefix('dlg_')}_0123abcd")
    assert (await stage.http.get("/v1/permissions", headers=BOB)).json()["items"] == []
    answers = [
        await stage.http.post(f"/v1/permissions/{id}", json={"outcome": "proceed_once"}, headers=BOB) for id in ids
    ]
    assert answer_of(answers[0], ids[0]) == answer_of(answers[1], ids[1])
    assert answers[0].status_code == 404
    assert [each.permission_id for each in await questions(bench)] == [asked.permission_id]
    (listed,) = (await stage.http.get("/v1/permissions", headers=FRIEND)).json()["items"]
    given = {"outcome": "proceed_once"}
    done = await stage.http.post(f"/v1/permissions/{listed['permissionId']}", json=given, headers=FRIEND)
    assert done.status_code == 204
    await running


async def test_no_label_and_no_other_way_to_begin_work_passes_the_cap_of_an_owner(stage: Stage) -> None:
    redis, id = stage.whole.service.store.redis, stage.ended
    await publish(redis, {"ann": caps_of_owner(SpendWindows(weekly_usd=5), "ann")})
    today = spend_key(f"{now():%Y-%m-%d}")
    await redis.hset(today, "@ann", 5 * 10**9)
    await redis.expire(today, 60)
    tries = [
        *(
            ("", {"task": "t", **fields})
            for fields in ({}, {"labels": {"owner": "bob", "team": "bob"}}, {"sessionId": "s"})
        ),
        *(("", {"task": "t", **fields}) for fields in ({"continues": id}, {"parentId": id}, {"idempotencyKey": "new"})),
        (":batch", {"requests": [{"task": "t"}]}),
        (f"/{id}/continue", {"text": "t"}),
        (f"/{id}/retry", {}),
    ]
    for path, body in tries:
        for by in (ANN, FRIEND):
            answer = await stage.http.post(f"/v1/delegations{path}", json=body, headers=by)
            assert (answer.status_code, answer.json()["type"]) == (429, "urn:deputize:spend-cap-reached"), (path, body)
    # Who may act for all owners continues it on the account of its owner, and begins work on its own.
    answer = await stage.http.post(f"/v1/delegations/{id}/continue", json={"text": "t"}, headers=ROOT)
    assert answer.status_code == 429
    for by in (BOB, ROOT, MAIN_TOKEN):
        assert (await stage.made(by)).status_code == 202
    assert (await stage.made(ANN, onCap="wait")).status_code == 202
