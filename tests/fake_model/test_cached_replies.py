"""The prompt cache over the wire: the SDK reads what was billed, and when an entry becomes readable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, TextBlockParam

from tests.fake_model import FakeModel, PromptCache, Turn, cut, refuse, reset, stall, text
from tests.plain_http import PLAIN_HTTP
from tests.waiting import until

SYSTEM: list[TextBlockParam] = [{"type": "text", "text": "s" * 8000, "cache_control": {"type": "ephemeral"}}]
TOKENS = 8025 // 4


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache()) as server:
        yield server


@pytest.fixture
async def sdk(fake: FakeModel) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=fake.url, api_key=fake.key, max_retries=0) as client:
        yield client


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
