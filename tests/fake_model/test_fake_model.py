"""The fake is no opinion of ours: the SDK's own client understands it, and it refuses what the API refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import ToolParam

from tests.fake_model import FakeModel, Turn, call, cut, overload, refuse, reset, text, thinking
from tests.fake_model.strict import mistake, sign
from tests.plain_http import PLAIN_HTTP

TOOL: ToolParam = {"name": "read_file", "input_schema": {"type": "object"}}
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {}}


def talk(*contents: Any) -> list[dict[str, Any]]:
    """Messages in turns, the user's first."""
    return [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel() as server:
        yield server


@pytest.fixture
async def sdk(fake: FakeModel) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=fake.url, api_key=fake.key, max_retries=0) as client:
        yield client


async def test_the_sdk_reads_a_streamed_reply(fake: FakeModel, sdk: anthropic.AsyncAnthropic) -> None:
    fake.script("", [Turn([thinking("I think."), text("I say ü."), call("read_file", path="ü"), call("read_file")])])
    async with sdk.messages.stream(**ASKED, tools=[TOOL]) as stream:
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[2].to_dict()["input"] == {"path": "ü"}
    assert message.stop_reason == "tool_use"
    assert message.usage.input_tokens > 0


async def test_the_sdk_reads_a_whole_reply(sdk: anthropic.AsyncAnthropic) -> None:
    message = await sdk.messages.create(**ASKED)
    assert [block.to_dict() for block in message.content] == [text("Hello from the fake model.")]


async def test_the_sdk_sees_each_fault_for_what_it_is(fake: FakeModel, sdk: anthropic.AsyncAnthropic) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529), refuse(429, retry_after="7"), overload(), cut(), reset()])])

    async def ask() -> anthropic.types.Message:
        async with sdk.messages.stream(**ASKED) as stream:
            return await stream.get_final_message()

    with pytest.raises(anthropic.OverloadedError):
        await ask()
    with pytest.raises(anthropic.RateLimitError) as limited:
        await ask()
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        await ask()
    assert (overloaded.value.status_code, overloaded.value.type) == (200, "overloaded_error")
    assert (await ask()).stop_reason is None, "a silent cut is no error to the SDK"
    with pytest.raises(httpx2.TransportError):
        await ask()
    assert (await ask()).stop_reason == "end_turn"
    assert [asked.outcome for asked in fake.journal] == ["refused", "refused", "overload", "cut", "reset", "answered"]


async def test_who_does_not_say_the_key_is_refused(fake: FakeModel) -> None:
    async with httpx2.AsyncClient(
        verify=PLAIN_HTTP, base_url=fake.url, headers={"anthropic-version": "2026-10-21"}
    ) as client:
        answers = [
            await client.post("/v1/messages", json=ASKED, headers=headers)
            for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": fake.key})
        ]
    assert [answer.status_code for answer in answers] == [401, 401, 200]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "at least one message"),
        ({"temperature": 0.5}, "temperature"),
        ({"messages": talk("a", "b")}, "prefilling"),
        ({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}, "first message"),
        ({"messages": talk("")}, "content must not be empty"),
        ({"messages": talk([text(" ")])}, "non-empty"),
        ({"messages": talk("a", [USE], "b")}, "without tool_result"),
        ({"messages": talk("a", [USE], [])}, "content must not be empty"),
        ({"messages": talk("a", "b", [RESULT])}, "unexpected tool_use_id"),
        ({"messages": talk("a", [USE], [text("b"), RESULT])}, "must come first"),
        ({"messages": talk("a", [USE], [RESULT], [USE], [RESULT])}, "must be unique"),
        ({"messages": talk("a", [{**USE, "input": "x"}], [RESULT])}, "valid dictionary"),
        ({"messages": talk("a", [{**thinking("t"), "signature": "moved"}], "b")}, "different conversation"),
        ({"tools": [TOOL, TOOL]}, "unique"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "not allowed"),
        ({"tools": [{"name": "a"}]}, "input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, "not supported"),
        ({"tool_choice": {"type": "none"}}, "while providing tools"),
        ({"diagnostics": "m1"}, "previous_message_id"),
        ({"diagnostics": {"previous_message_id": 1}}, "valid string"),
        ({"diagnostics": {"other": "m1"}}, "previous_message_id"),
    ],
)
def test_what_the_api_refuses_is_refused(change: dict[str, Any], words: str) -> None:
    assert words in (mistake(ASKED | change) or "accepted")


def test_what_the_api_takes_is_taken() -> None:
    assert mistake(ASKED | {"tools": [TOOL], "tool_choice": {"type": "none"}, "system": "s", "stream": True}) is None
    assert mistake(ASKED | {"messages": talk("a", [USE], [RESULT, text("go on")], "b", "c")}) is None


SHORT, LONG = ({"cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in ("5m", "1h"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cache_control": {"type": "persistent"}}, "cache_control.type: Input should be 'ephemeral'"),
        ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "cache_control.ttl: Input should be '5m' or '1h'"),
        ({"cache_control": {"type": "ephemeral", "scope": "x"}}, "cache_control.scope: Extra inputs"),
        ({"tools": [{**TOOL, "cache_control": True}]}, "tools.0.cache_control.type"),
        ({"system": [text("s") | {"cache_control": {"ttl": "5m"}}]}, "system.0.cache_control.type"),
        ({"system": [text("") | SHORT]}, "system.0: cache_control cannot be set for empty text blocks"),
        ({"messages": talk([text("a") | {"cache_control": {"type": "x"}}])}, "messages.0.content.0.cache_control"),
        (
            {"messages": talk([text("a") | SHORT] * 5)},
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        ({"messages": talk([text("a") | SHORT] * 4 + [text("b")]), **SHORT}, "Found 5."),
        ({"messages": talk([text("a") | SHORT] * 4), **SHORT}, "accepted"),
        ({"messages": talk([text("a") | LONG]), **SHORT}, "different ttl"),
        ({"messages": talk([text("a") | SHORT]), "cache_control": {"type": "ephemeral"}}, "accepted"),
        ({"messages": talk([text("a") | SHORT, text("b") | LONG])}, "must not come after"),
        ({"system": [text("s") | SHORT], "tools": [TOOL | LONG]}, "accepted"),
        ({"system": [text("s") | SHORT], **LONG}, "must not come after"),
        ({"system": [text("s") | LONG], "messages": talk([text("a") | {"cache_control": None}]), **SHORT}, "accepted"),
    ],
)
def test_breakpoints_are_accepted_where_the_api_accepts_them(change: dict[str, Any], words: str) -> None:
    assert words in (mistake(ASKED | change) or "accepted")


def test_a_thought_carries_no_breakpoint_and_is_not_bound_to_those_before_it() -> None:
    body = ASKED | {"system": "s", "messages": talk([text("a") | SHORT], [], "b")}
    thought = {**thinking("t"), "signature": sign(body, 1, "t")}
    assert "thinking blocks cannot" in (mistake(body | {"messages": talk("a", [thought | SHORT], "b")}) or "")
    assert mistake(body | {"messages": talk("a", [thought], [text("b") | SHORT]), "system": [text("s") | LONG]}) is None


@pytest.mark.parametrize("changed", ["system", "tools", "messages"])
def test_a_thought_holds_only_after_the_very_prefix_it_was_thought_after(changed: str) -> None:
    body = ASKED | {"system": "s", "tools": [TOOL], "messages": talk("a", [], "b")}
    body["messages"][1]["content"] = [{**thinking("t"), "signature": sign(body, 1, "t")}]
    assert mistake(body) is None
    other = {"system": "S", "tools": [{**TOOL, "name": "other"}], "messages": [*talk("A"), *body["messages"][1:]]}
    assert "different conversation" in (mistake(body | {changed: other[changed]}) or "")


def test_it_runs_on_its_own() -> None:
    command = [sys.executable, "-m", "tests.fake_model", "--port", "0", "--key", "other-key"]
    with subprocess.Popen([*command, "--cache", "--delay", "0.2"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            headers = {"authorization": "Bearer other-key", "anthropic-version": "2026-10-21"}
            script = {"turns": [{"blocks": [text("told")]}]}
            asked = ASKED | {"messages": talk(f"FAKE: {json.dumps(script)}"), "system": "s" * 5000, **LONG}
            begun = time.monotonic()
            answers = [httpx2.post(f"{url}/v1/messages", json=asked, headers=headers).json() for _ in range(2)]
            assert time.monotonic() - begun >= 0.4
            assert [answer["content"] for answer in answers] == [[text("told")]] * 2
            tokens = answers[0]["usage"]["cache_creation"]["ephemeral_1h_input_tokens"]
            assert tokens > 1250
            assert httpx2.get(f"{url}/fake/report").json() == {
                "requests": 2,
                "open": 0,
                "aborted": 0,
                "outcomes": ["answered"] * 2,
                "usage": {
                    "input_tokens": 0,
                    "cache_creation_input_tokens": tokens,
                    "cache_read_input_tokens": tokens,
                },
            }
        finally:
            server.terminate()
