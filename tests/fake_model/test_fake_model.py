"""The fake follows the API: the SDK's own client understands it, and it refuses and caches what the API does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, TextBlockParam, ToolParam

from tests.fake_model import FakeModel, PromptCache, Turn, call, cut, overload, refuse, reset, stall, text, thinking
from tests.fake_model.strict import mistake, sign
from tests.network.plain_http import PLAIN_HTTP
from tests.waiting import until

TOOL: ToolParam = {"name": "read_file", "input_schema": {"type": "object"}}
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "read_file", "input": {}}


def talk(*contents: Any) -> list[dict[str, Any]]:
    """Messages in turns, the user's first."""
    return [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache()) as server:
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


SYSTEM: list[TextBlockParam] = [{"type": "text", "text": "s" * 8000, "cache_control": {"type": "ephemeral"}}]
TOKENS = 8025 // 4


async def ask(sdk: anthropic.AsyncAnthropic, words: str, **more: Any) -> Message:
    messages: list[Any] = [{"role": "user", "content": words}]
    async with sdk.messages.stream(
        model="claude-sonnet-5", max_tokens=100, system=SYSTEM, messages=messages, **more
    ) as stream:
        return await stream.get_final_message()


def billed(fake: FakeModel) -> list[tuple[int, int]]:
    """The tokens read and written, by request."""
    kinds = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return [(asked.usage[kinds[0]], asked.usage[kinds[1]]) for asked in fake.journal]


async def test_the_sdk_reads_what_was_read_and_written(fake: FakeModel, sdk: anthropic.AsyncAnthropic) -> None:
    first = await ask(sdk, "one", diagnostics={"previous_message_id": None})
    second = await ask(sdk, "two", diagnostics={"previous_message_id": first.id})
    assert first.usage.cache_creation_input_tokens == TOKENS
    assert first.usage.cache_creation is not None
    assert first.usage.cache_creation.ephemeral_5m_input_tokens == TOKENS
    assert first.diagnostics is None
    assert (second.usage.cache_read_input_tokens, second.usage.cache_creation_input_tokens) == (TOKENS, 0)
    assert second.diagnostics is not None
    assert second.diagnostics.cache_miss_reason is not None
    assert second.diagnostics.cache_miss_reason.type == "messages_changed"
    assert billed(fake) == [(0, TOKENS), (TOKENS, 0)]
    assert fake.journal[1].usage == second.usage.to_dict()
    async with httpx2.AsyncClient(verify=PLAIN_HTTP) as client:
        report = (await client.get(f"{fake.url}/fake/report")).json()
    rest = first.usage.input_tokens + second.usage.input_tokens
    used = {"input_tokens": rest, "cache_creation_input_tokens": TOKENS, "cache_read_input_tokens": TOKENS}
    assert report["usage"] == used


async def test_a_whole_reply_has_them_too(fake: FakeModel, sdk: anthropic.AsyncAnthropic) -> None:
    asked: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 9, "system": SYSTEM}
    asked["messages"] = [{"role": "user", "content": "one"}]
    plain = await sdk.messages.create(**asked)
    diagnosed = await sdk.messages.create(**asked, diagnostics={"previous_message_id": "unknown"})
    assert "diagnostics" not in plain.to_dict()
    reason = {"type": "previous_message_not_found"}
    assert diagnosed.to_dict()["diagnostics"] == {"cache_miss_reason": reason}
    assert billed(fake) == [(0, TOKENS), (TOKENS, 0)]


async def test_an_entry_can_be_read_with_the_first_event_and_not_before(
    fake: FakeModel, sdk: anthropic.AsyncAnthropic
) -> None:
    fake.script("slow", [Turn([text("x")], delay=600)])
    fake.script("stalled", [Turn([text("x")], faults=[stall(after=1)])])
    slow = asyncio.create_task(ask(sdk, "slow"))
    await until(lambda: len(fake.journal) == 1)
    stalled = asyncio.create_task(ask(sdk, "stalled"))
    await until(lambda: len(fake.journal) == 2 and fake.journal[1].usage["output_tokens"])
    assert (await ask(sdk, "third")).usage.cache_read_input_tokens == TOKENS
    for task in (slow, stalled):
        task.cancel()
    await asyncio.gather(slow, stalled, return_exceptions=True)
    await until(lambda: fake.aborted == 2)
    assert billed(fake) == [(0, 0), (0, TOKENS), (TOKENS, 0)]


@pytest.mark.parametrize("fault", [refuse(529), cut(after=0), reset(after=0)])
async def test_a_request_that_fails_before_its_first_event_writes_nothing(
    fake: FakeModel, sdk: anthropic.AsyncAnthropic, fault: Any
) -> None:
    fake.script("fails", [Turn([text("x")], faults=[fault])])
    with pytest.raises((anthropic.APIError, httpx2.TransportError, AssertionError)):
        await ask(sdk, "fails")
    await ask(sdk, "next")
    assert billed(fake) == [(0, 0), (0, TOKENS)]


async def test_a_turn_can_name_its_own_usage(fake: FakeModel, sdk: anthropic.AsyncAnthropic) -> None:
    fake.script("", [Turn([text("x")], usage={"cache_read_input_tokens": 7})])
    assert (await ask(sdk, "one")).usage.cache_read_input_tokens == 7
    assert billed(fake) == [(7, TOKENS)]


async def test_replies_at_once_have_ids_of_their_own(sdk: anthropic.AsyncAnthropic, fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], delay=0.01)])
    replies = await asyncio.gather(*(ask(sdk, "one") for _ in range(5)))
    assert len({reply.id for reply in replies}) == 5


async def test_without_a_cache_nothing_is_read_or_written() -> None:
    async with FakeModel() as plain:
        async with anthropic.AsyncAnthropic(base_url=plain.url, api_key=plain.key, max_retries=0) as client:
            await ask(client, "one")
            reply = await ask(client, "one", diagnostics={"previous_message_id": None})
        assert reply.usage.cache_creation is None
        assert reply.diagnostics is None
        assert billed(plain) == [(0, 0)] * 2
