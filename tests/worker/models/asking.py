"""How the tests of models ask them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from deputize.worker.core.conversation import Conversation
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Model, Part, Prompt, Reply, ReplyStarted, Retrying, ToolSpec
from deputize.worker.models.credentials import Credentials
from deputize.worker.models.retry import RetryPolicy
from tests.fake_model import FakeModel

MANY = "words " * 200
IMPATIENT = RetryPolicy(tries=6, first_delay=0.001, longest_delay=0.01)
READ = ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def model_of(fake: FakeModel, retry_policy: RetryPolicy = IMPATIENT, name: str = "claude-sonnet-5-5") -> AnthropicModel:
    return model_at(fake.url, fake.key, retry_policy, name)


def model_at(
    url: str, key: str = "sk-key-x", retry_policy: RetryPolicy = IMPATIENT, name: str = "m", **more: Any
) -> AnthropicModel:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr(key), "ANTHROPIC_BASE_URL": SecretStr(url)}
    return AnthropicModel(name, Credentials(endpoint), retry_policy, **more)


def prompt_of(messages: Sequence[bytes] | str, tools: tuple[ToolSpec, ...] = (READ,), **more: Any) -> Prompt:
    if isinstance(messages, str):
        history = Conversation()
        history.ask(messages)
        messages = history.messages
    return Prompt(**{"system": "You are a worker.", "max_output_tokens": 1000} | more, tools=tools, messages=messages)


async def parts_of(model: Model, prompt: Prompt | str) -> list[Part]:
    """What a reply is made of, without the notice that it has begun; waits before further tries as a run does."""
    parts: list[Part] = []
    async for part in model.reply(prompt if isinstance(prompt, Prompt) else prompt_of(prompt)):
        if isinstance(part, Retrying):
            await part.wait()
        if not isinstance(part, ReplyStarted):
            parts.append(part)
    return parts


async def reply_of(model: Model, prompt: Prompt | str) -> Reply:
    last = (await parts_of(model, prompt))[-1]
    assert isinstance(last, Reply)
    return last


def retries(parts: Sequence[Part]) -> list[Retrying]:
    return [part for part in parts if isinstance(part, Retrying)]
