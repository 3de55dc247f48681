"""Thinking that an endpoint refuses: its signature is lost, or that of another model. The run goes on without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.errors import ModelUnavailable
from deputize.shared.request import DelegationRequest
from deputize.worker.core.conversation import Conversation
from deputize.worker.models.base import Reply
from deputize.worker.models.retry import classify_error, classify_response
from deputize.worker.task import carry_out
from deputize.worker.tools.base import ToolResult
from tests.fake_model import FakeModel, Fault, Turn, call, refuse, text, thinking
from tests.runs.bench import bench_at
from tests.worker.models.asking import model_of, parts_of, prompt_of, reply_of, retries

REFUSALS = [
    (400, "messages.1.content.0: Invalid `signature` in `thinking` block"),
    (400, "messages.1.content.0.thinking.signature: Field required"),
    (400, "messages.5.content.0: Invalid `data` in `redacted_thinking` block"),
    (400, "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"),
    (400, "messages.1.content.0: Input tag 'thinking' found using 'type' does not match any of the expected tags"),
    (400, "Corrupted thought signature."),
    (400, "The encrypted content for item rs_1 could not be verified."),
    (422, "reasoning content is not supported in messages"),
    (400, "思维链签名无效"),
    (500, "ValidationException: messages.1.content.0: Invalid signature in thinking block"),
]
OTHERS = [
    (403, "The request signature we calculated does not match the signature you provided."),
    (400, "tools.0.name: String should match pattern"),
    (500, "the model is thinking for too long"),
    (404, "there is no thinking model of this name"),
]


def refusal(status: int, message: str) -> Fault:
    return refuse(status, error={"message": message})


@pytest.mark.parametrize(("status", "message"), REFUSALS)
def test_a_refusal_of_thinking_is_recognized(status: int, message: str) -> None:
    error = b'{"error": {"message": "%b"}}' % message.encode()
    assert classify_response(status, {}, error, "m", "http://h").is_of_thinking


def test_one_within_the_stream_is_recognized() -> None:
    for error in ({"type": "invalid_request_error"}, {"type": "api_error"}, {"code": 400}):
        failure = classify_error({"error": {"message": REFUSALS[0][1], **error}}, "inside", unknown_passes=True)
        assert failure.is_of_thinking


@pytest.mark.parametrize(("status", "message"), OTHERS)
def test_other_refusals_are_not_taken_for_that(status: int, message: str) -> None:
    error = b'{"error": {"message": "%b"}}' % message.encode()
    assert not classify_response(status, {}, error, "m", "http://h").is_of_thinking


def blocks_of(body: Mapping[str, Any]) -> list[str]:
    return [block["type"] for message in body["messages"] for block in message["content"]]


async def thoughtful(fake: FakeModel, *faults: Fault) -> Conversation:
    """A conversation with thinking, after which the endpoint refuses so often."""
    work = Turn([thinking("Hm."), call("read_file", path="a")])
    fake.script("", [work, Turn([text("done")], faults=faults)])
    history = Conversation(task=("think hard",), model="m")
    reply = history.add(await reply_of(model_of(fake), prompt_of(history.messages)))
    history.answer([(each, ToolResult("x")) for each in reply.calls])
    return history


@pytest.mark.parametrize(("status", "message"), REFUSALS)
async def test_a_refusal_is_asked_once_more_without_thinking(fake: FakeModel, status: int, message: str) -> None:
    history = await thoughtful(fake, refusal(status, message))
    parts = await parts_of(model_of(fake), prompt_of(history.messages))
    assert isinstance(parts[-1], Reply)
    assert (parts[-1].text, parts[-1].refused_thinking, retries(parts)) == ("done", True, [])
    _, first, second = (each.body for each in fake.journal)
    assert blocks_of(first) == ["text", "thinking", "tool_use", "tool_result"]
    assert blocks_of(second) == ["text", "tool_use", "tool_result"]


async def test_one_that_is_refused_without_thinking_as_well_is_given_up(fake: FakeModel) -> None:
    history = await thoughtful(fake, *[refusal(*REFUSALS[0])] * 5)
    with pytest.raises(ModelUnavailable, match="Invalid `signature`"):
        await parts_of(model_of(fake), prompt_of(history.messages))
    assert len(fake.journal) == 3


async def test_an_endpoint_that_accepts_thinking_gets_it(fake: FakeModel) -> None:
    history = await thoughtful(fake)
    assert not (await reply_of(model_of(fake), prompt_of(history.messages))).refused_thinking


async def test_a_refusal_in_the_middle_of_a_run_does_not_end_it_and_is_not_repeated(
    fake: FakeModel, redis_url: str, tmp_path: Path
) -> None:
    work = [Turn([thinking("Hm."), call("write_file", path=f"{n}.txt", content="x")]) for n in range(3)]
    last = Turn([thinking("Hm."), call("glob", pattern="*")], faults=[refusal(*REFUSALS[0])])
    fake.script("", [*work, last, Turn([thinking("So."), text("done")])])
    async with bench_at(fake, redis_url, tmp_path / "home") as bench:
        result = await bench.run()
    assert (result.summary, result.files_modified) == ("done", ["0.txt", "1.txt", "2.txt"])
    assert [each.status for each in fake.journal] == [200, 200, 200, 400, 200, 200]
    assert "thinking" not in blocks_of(fake.journal[-1].body)


@pytest.mark.parametrize(("model", "sent"), [("claude-opus-5", False), (None, True)])
async def test_a_run_that_is_continued_sends_no_thinking_of_another_model(
    fake: FakeModel, redis_url: str, tmp_path: Path, model: str | None, sent: bool
) -> None:
    fake.script("", [Turn([thinking("Hm."), call("glob", pattern="*")]), Turn([text("done")])])
    async with bench_at(fake, redis_url, tmp_path / "home") as bench:
        first = await bench.run()
        id = await bench.accept(DelegationRequest(task="go on", continues=first.delegation_id, model=model))
        await carry_out(bench.services, id)
        assert (await bench.result(id)).status == "succeeded"
    assert {each.status for each in fake.journal} == {200}
    assert ("thinking" in blocks_of(fake.journal[-1].body)) is sent
