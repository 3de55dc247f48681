"""The tools `send_message` and `wrap_up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.message import MessageMode
from tests.orchestrator.access_tokens import entry, secret_of, serving, write
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.mcp.clients import WAYS, connected, content, texts


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_and_a_request_to_wrap_up_are_sent(way: str, url: str, service: FakeService) -> None:
    async with connected(way, url) as client:
        id = content(await client.call_tool("delegate_start", {"task": "x"}))["id"]
        service.begin(id)
        sent = await client.call_tool("send_message", {"id": id, "text": "go left"})
        ended = await client.call_tool("wrap_up", {"id": id})
        kept = service.inboxes[id]
        assert [content(each) for each in (sent, ended)] == [{"messageId": each.message_id} for each in kept]
        assert [(each.text, each.mode) for each in kept] == [("go left", MessageMode.STEER), ("", MessageMode.WRAP_UP)]
        assert texts(ended)[0].endswith("; delegate_result waits for the report")
        service.finish(id)
        late = await client.call_tool("send_message", {"id": id, "text": "late"})
        assert (late.is_error, "has ended" in texts(late)[0]) == (True, True)
        blank = await client.call_tool("send_message", {"id": id, "text": " "})
        assert (blank.is_error, "/text" in texts(blank)[0]) == (True, True)


async def test_they_need_the_scope_submit_and_name_the_token(service: FakeService, tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens.toml", entry("reader", "read", "all"), entry("sender", "submit", "all"))
    async with serving(service, tokens) as http:
        headers = {"Authorization": f"Bearer {secret_of('sender')}"}
        id = (await http.post("/v1/delegations", json={"task": "x"}, headers=headers)).json()["id"]
        for name in ("reader", "sender"):
            async with connected("http", str(http.base_url), token=secret_of(name)) as client:
                answer = await client.call_tool("send_message", {"id": id, "text": name})
                assert answer.is_error is (name == "reader")
    assert [(each.text, each.by) for each in service.inboxes[id]] == [("sender", "sender")]
