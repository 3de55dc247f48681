"""Our adapter against endpoints that others wrote: what they accept and how they judge us is not our opinion."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply as LlmockReply
from llmock.scenarios import ToolCall
from pydantic import SecretStr

from deputize.shared.errors import ModelUnavailable
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Call, Model, Reply, Retrying, TextPart, ThinkingPart
from deputize.worker.models.credentials import Credentials
from deputize.worker.models.retry import RetryPolicy
from deputize.worker.tools.base import ToolResult
from tests.network.plain_http import PLAIN_HTTP
from tests.waiting import until_sync
from tests.worker.models.asking import parts_of, prompt_of, reply_of

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
NODE = ROOT / ".venv" / "bin" / "node"
AIMOCK = ROOT / ".venv" / "npm" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
LONG = "The quick brown fox reads one more file and reports what it found. " * 10
QUICK = RetryPolicy(first_delay=0.1)
SHORT = RetryPolicy(first_delay=0.1, read_timeout=0.5)


@pytest.fixture(autouse=True)
async def connections() -> AsyncIterator[None]:
    yield
    await close_models()


def at(url: str, patience: RetryPolicy = QUICK) -> AnthropicModel:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("any-test-key"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    return AnthropicModel("claude-sonnet-5-5", Credentials(endpoint), patience)


async def converse(model: Model, task: str) -> tuple[list[Reply], Conversation]:
    """Asks until no tool is called any more; every call is answered with its own arguments."""
    history = Conversation()
    history.ask(task)
    replies: list[Reply] = []
    while not replies or replies[-1].calls:
        replies.append(await reply_of(model, prompt_of(history.messages)))
        history.add(replies[-1])
        if replies[-1].calls:
            history.answer([(call, ToolResult(json.dumps(call.arguments))) for call in replies[-1].calls])
    return replies, history


# llmock: faults, and a verdict on the client


def silent_about(llmock: LLMock) -> bool:
    """Neither errors nor warnings: nothing that llmock would have a client do differently."""
    return not llmock.verdict().findings


async def test_llmock_a_text_is_streamed(llmock: LLMock) -> None:
    llmock.reply(LONG)
    *deltas, reply = await parts_of(at(llmock.base_url("anthropic")), "hello")
    assert isinstance(reply, Reply)
    assert "".join(part.text for part in deltas if isinstance(part, TextPart)) == reply.text == LONG
    assert reply.usage.input_tokens > 0
    assert silent_about(llmock)


async def test_llmock_tool_calls_go_to_and_fro(llmock: LLMock) -> None:
    calls = (ToolCall("read_file", {"path": "a"}), ToolCall("read_file", {"path": "ü"}))
    llmock.add(LlmockReply(text="Two at once.", tool_calls=calls), LlmockReply(text="Done."))
    (asking, done), _ = await converse(at(llmock.base_url("anthropic")), "hello")
    assert [call.arguments for call in asking.calls] == [{"path": "a"}, {"path": "ü"}]
    assert (asking.text, asking.stop_reason, done.text) == ("Two at once.", "tool_use", "Done.")
    assert silent_about(llmock)


@pytest.mark.requirement("P-10")
async def test_llmock_arguments_that_are_no_json_are_not_executed(llmock: LLMock) -> None:
    llmock.call_tool("read_file", {"path": "a"}).break_tool_call("malformed_arguments")
    (call,) = (await reply_of(at(llmock.base_url("anthropic")), "hello")).calls
    assert call.problem is not None
    assert call.arguments == {}


@pytest.mark.parametrize(
    "fault", ["429 with Retry-After", "500", "529 with Retry-After", "cut", "silent cut", "bad JSON", "stall"]
)
async def test_llmock_finds_no_fault_with_how_we_bear_faults(llmock: LLMock, fault: str) -> None:
    llmock.tool_mode("off")
    match fault:
        case "429 with Retry-After":
            llmock.rate_limit(times=2, retry_after=0.3)
        case "529 with Retry-After":
            llmock.fail(529, times=2, retry_after=0.3)
        case "cut":
            llmock.reply(LONG, times=2).disconnect(after_chunks=5)
        case "silent cut":
            llmock.reply(LONG, times=2).truncate(after_chunks=5)
        case "bad JSON":
            llmock.reply(LONG, times=2).corrupt(after_chunks=5)
        case "stall":
            llmock.reply(LONG, times=2).stall(after_chunks=5, seconds=2)
        case status:
            llmock.fail(int(status), times=3)
    parts = await parts_of(at(llmock.base_url("anthropic"), SHORT if fault == "stall" else QUICK), "hello")
    retries = [part for part in parts if isinstance(part, Retrying)]
    assert retries
    assert isinstance(parts[-1], Reply)
    assert parts[-1].stop_reason == "end_turn"
    assert llmock.last_request.completed
    assert silent_about(llmock), llmock.verdict().render()


async def test_llmock_finds_no_fault_with_how_we_give_up(llmock: LLMock) -> None:
    llmock.outage(status=503)
    with pytest.raises(ModelUnavailable, match="3 tries"):
        await parts_of(at(llmock.base_url("anthropic"), RetryPolicy(tries=3)), "hello")
    assert len(llmock.requests) == 3
    assert silent_about(llmock), llmock.verdict().render()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
async def test_llmock_what_cannot_succeed_is_asked_once(llmock: LLMock, status: int) -> None:
    llmock.fail(status, times=None)
    with pytest.raises(ModelUnavailable, match=f"HTTP {status}"):
        await parts_of(at(llmock.base_url("anthropic")), "hello")
    assert len(llmock.requests) == 1
    assert silent_about(llmock), llmock.verdict().render()


# aimock: whole conversations, thinking with signatures, a journal of what it was sent


def told(marker: str, turn: int, **response: Any) -> dict[str, Any]:
    return {"match": {"userMessage": marker, "turnIndex": turn}, "response": response}


def once(marker: str, response: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    """A fixture for the first request with this marker, and a good answer for the second."""
    return [
        {"match": {"userMessage": marker, "sequenceIndex": 0}, "response": response, **how},
        {"match": {"userMessage": marker, "sequenceIndex": 1}, "response": {"content": f"after {marker}"}},
    ]


def tool(id: str, **arguments: str) -> dict[str, Any]:
    return {"id": id, "name": "read_file", "arguments": arguments}


FIXTURES = [
    told(
        "LOOP",
        0,
        content="I read it.",
        toolCalls=[tool("toolu_1", path="/a")],
        usage={"input_tokens": 1234, "output_tokens": 56},
    ),
    told("LOOP", 1, content="And more.", toolCalls=[tool("toolu_2", path="/b"), tool("toolu_3", path="/ü")]),
    told("LOOP", 2, content="The answer is 42."),
    told(
        "THINK", 0, reasoning="Which file first?", reasoningSignature="c2lnLTE=", toolCalls=[tool("toolu_4", path="/a")]
    ),
    told("THINK", 1, content="Thought through."),
    *once("LIMITED", {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429, "retryAfter": 1}),
    *once("BUSY", {"error": {"message": "Overloaded", "type": "overloaded_error"}, "status": 529}),
    *once("CUT", {"content": LONG}, truncateAfterChunks=6, latency=10),
    *once("STALL", {"content": LONG}, latency=5000),
]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an aimock; skips at home and fails in CI where it is not installed."""
    if not (NODE.exists() and AIMOCK.exists()):
        reason = f"aimock or node is missing ({AIMOCK}): run `make .venv/.npm-installed`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    command = [str(NODE), str(AIMOCK), "-p", "0", "-f", str(folder / "fixtures.json"), "--strict", "--validate-on-load"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            yield until_sync(lambda: _url_in((folder / "log").read_text()), timeout=45)
        finally:
            server.terminate()


def _url_in(log: str) -> str | None:
    return next((word for word in log.split() if word.startswith("http://127.0.0.1:") and word[-1].isdigit()), None)


async def journal(url: str, marker: str) -> list[dict[str, Any]]:
    """The bodies aimock was sent in the conversation with this marker."""
    import httpx2

    async with httpx2.AsyncClient(verify=PLAIN_HTTP) as client:
        entries = (await client.get(f"{url}/__aimock/journal")).json()
    return [entry["body"] for entry in entries if marker in json.dumps(entry["body"]["messages"])]


async def test_aimock_a_conversation_with_parallel_calls_runs_to_its_end(aimock: str) -> None:
    replies, _ = await converse(at(aimock), "LOOP")
    assert [reply.text for reply in replies] == ["I read it.", "And more.", "The answer is 42."]
    assert replies[0].usage.model_copy(update={"cost_usd": None}).total == 1290
    assert replies[1].calls == [
        Call("toolu_2", "read_file", {"path": "/b"}),
        Call("toolu_3", "read_file", {"path": "/ü"}),
    ]
    assert [reply.stop_reason for reply in replies] == ["tool_use", "tool_use", "end_turn"]


async def test_aimock_thinking_goes_back_with_its_signature(aimock: str) -> None:
    model, history = at(aimock), Conversation()
    history.ask("THINK")
    parts = await parts_of(model, prompt_of(history.messages))
    reply = parts[-1]
    assert isinstance(reply, Reply)
    assert "".join(part.text for part in parts if isinstance(part, ThinkingPart)) == "Which file first?"
    assert reply.content[0] == {"type": "thinking", "thinking": "Which file first?", "signature": "c2lnLTE="}
    history.add(reply)
    history.answer([(call, ToolResult("x")) for call in reply.calls])
    assert (await reply_of(model, prompt_of(history.messages))).text == "Thought through."
    assert len(await journal(aimock, "THINK")) == 2


@pytest.mark.parametrize(
    ("marker", "words", "shortest"),
    [("LIMITED", "slow down", 1.0), ("BUSY", "Overloaded", 0.0), ("CUT", "broke", 0.0), ("STALL", "stalled", 0.0)],
)
async def test_aimock_a_fault_is_borne(aimock: str, marker: str, words: str, shortest: float) -> None:
    parts = await parts_of(at(aimock, SHORT if marker == "STALL" else QUICK), marker)
    (retry,) = [part for part in parts if isinstance(part, Retrying)]
    assert words in retry.error
    assert retry.delay >= shortest
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == f"after {marker}"
    assert len(await journal(aimock, marker)) == 2
