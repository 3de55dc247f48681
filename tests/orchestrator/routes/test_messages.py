"""Messages over HTTP: what is accepted, what is refused, and whose words they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.shared.message import MAX_MESSAGE_BYTES, MAX_UNREAD
from deputize.shared.request import DelegationRequest
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_service import FakeService


async def running(service: FakeService) -> tuple[str, str]:
    """The id of a delegation that runs, and the path of its messages."""
    id = (await service.create(DelegationRequest(task="t"))).delegation.id
    service.begin(id)
    return id, f"/v1/delegations/{id}/messages"


@pytest.mark.parametrize("body", [{"text": "go left"}, {"text": "go left", "mode": "steer"}, {"mode": "wrapUp"}])
async def test_a_message_is_accepted_with_its_id(
    http: httpx2.AsyncClient, service: FakeService, body: dict[str, str]
) -> None:
    id, path = await running(service)
    answer = await http.post(path, json=body)
    (kept,) = service.inboxes[id]
    assert (answer.status_code, answer.json()) == (202, {"messageId": kept.message_id})
    assert (kept.text, kept.mode) == (body.get("text", ""), body.get("mode", "steer"))


LONG = "\u00e9" * (MAX_MESSAGE_BYTES // 2 + 1)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({}, 422, "a message needs a text"),
        ({"text": "  "}, 422, "a message needs a text"),
        ({"text": "x", "mode": "wrap_up"}, 422, "steer"),
        ({"texts": "x"}, 422, "did you mean 'text'"),
        ({"text": LONG}, 413, "16,386 bytes, over 16,384"),
        ({"text": "x" * (7 * MAX_MESSAGE_BYTES)}, 413, ""),
    ],
)
async def test_a_wrong_message_is_refused(
    http: httpx2.AsyncClient, service: FakeService, body: dict[str, Any], status: int, detail: str
) -> None:
    _, path = await running(service)
    answer = await http.post(path, json=body)
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True), answer.text


async def test_the_largest_text_is_accepted_however_it_is_written(
    http: httpx2.AsyncClient, service: FakeService
) -> None:
    _, path = await running(service)
    body = '{"text": "' + "\\u0001" * MAX_MESSAGE_BYTES + '"}'
    answer = await http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, answer.text


async def test_after_the_end_it_is_409_and_a_full_inbox_is_429(http: httpx2.AsyncClient, service: FakeService) -> None:
    id, path = await running(service)
    for _ in range(MAX_UNREAD):
        await http.post(path, json={"text": "x"})
    full = await http.post(path, json={"text": "x"})
    assert (full.status_code, full.json()["type"]) == (429, "urn:deputize:inbox-full")
    assert full.headers["retry-after"] == "5"
    service.finish(id)
    late = await http.post(path, json={"text": "x"})
    assert (late.status_code, late.json()["type"]) == (409, "urn:deputize:conflict")
    assert (await http.post("/v1/delegations/dlg_0/messages", json={"text": "x"})).status_code == 404


async def test_it_needs_the_scope_submit_and_has_the_name_of_the_token(tmp_path: Path) -> None:
    service = FakeService()
    id, path = await running(service)
    names = ("read", "submit", "approve")
    tokens = write(tmp_path / "tokens.toml", *(entry(name, name, "all") for name in names))
    async with serving(service, tokens) as http:
        for name in names:
            headers = {"Authorization": f"Bearer {secret_of(name)}"}
            answer = await http.post(path, json={"text": name}, headers=headers)
            assert answer.status_code == (202 if name == "submit" else 403)
    assert [(each.text, each.by) for each in service.inboxes[id]] == [("submit", "submit")]
    logged = [(record.delegation_ids, record.token) for record in service.log if record.status == 202]
    assert logged == [([id], "submit")]
