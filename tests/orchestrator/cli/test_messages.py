"""`deputize send` and `deputize wrap-up`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.shared.message import MessageMode
from deputize.shared.request import DelegationRequest
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served


async def running(service: FakeService) -> str:
    id = (await service.create(DelegationRequest(task="t"))).delegation.id
    service.begin(id)
    return id


async def called(service: FakeService, *arguments: str) -> Done:
    async with served(service) as url:
        return await deputize(*arguments, DEPUTIZE_URL=url, DEPUTIZE_TOKEN="t")


async def test_send_prints_the_id_of_the_message(tmp_path: Path) -> None:
    service = FakeService()
    id = await running(service)
    (tmp_path / "note.md").write_text("from a file\n")
    done = await called(service, "send", id[-6:], f"@{tmp_path / 'note.md'}")
    (kept,) = service.inboxes[id]
    assert (done.code, done.out, done.err) == (0, f"{kept.message_id}\n", "")
    assert (kept.text, kept.mode) == ("from a file\n", MessageMode.STEER)


@pytest.mark.parametrize(("arguments", "text"), [([], ""), (["that is enough"], "that is enough")])
async def test_wrap_up_may_have_a_text(arguments: list[str], text: str) -> None:
    service = FakeService()
    id = await running(service)
    done = await called(service, "wrap-up", "@last", *arguments, "--json")
    (kept,) = service.inboxes[id]
    assert (done.code, json.loads(done.out)) == (0, {"messageId": kept.message_id})
    assert (kept.text, kept.mode) == (text, MessageMode.WRAP_UP)


async def test_what_cannot_be_sent_is_refused_with_the_remedy() -> None:
    service = FakeService()
    id = await running(service)
    empty = await called(service, "send", id, "  ")
    assert (empty.code, "the message is empty" in empty.err) == (2, True)
    service.finish(id)
    late = await called(service, "send", id, "hello")
    remedy = f"deputize: {id} has ended, so nothing reads a message; `deputize continue {id} TEXT` goes on with it\n"
    assert (late.code, late.out, late.err) == (2, "", remedy)
