"""Which endpoints are asked why their prompt cache was missed, and what they are asked with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from deputize.shared.settings import Settings
from deputize.worker.conversation import Conversation
from deputize.worker.models import close_models, open_model
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Model, Prompt
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, PromptCache, Turn, call, text
from tests.worker.models.asking import IMPATIENT, READ, prompt_of, reply_of

LONG = "You are a worker. " * 400
"""The fake endpoint's cache keeps no shorter prefix."""


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache()) as server:
        yield server
        await close_models()


def model_at(fake: FakeModel, url: str, asked: bool | None) -> AnthropicModel:
    endpoint = {"ANTHROPIC_API_KEY": SecretStr(fake.key), "ANTHROPIC_BASE_URL": SecretStr(url)}
    return AnthropicModel("claude-sonnet-5-5", endpoint, IMPATIENT, cache_diagnostics=asked)


def asked_with(fake: FakeModel) -> list[Any]:
    return [asked.body.get("diagnostics", "nothing") for asked in fake.journal]


@pytest.mark.parametrize("wrapped", [lambda model: model, XmlCalls], ids=["native", "xml"])
async def test_each_prompt_names_the_reply_before_and_the_reason_comes_back(
    fake: FakeModel, wrapped: Callable[[Model], Model]
) -> None:
    model, history = wrapped(model_at(fake, fake.url, True)), Conversation()
    history.ask("read it")
    fake.script("", [Turn([call("read_file", path="a")]), Turn([text("Done.")])])

    def prompt(previous: str | None, **more: Any) -> Prompt:
        return prompt_of(history.messages, **{"system": LONG, "previous_reply": previous, **more})

    first = await reply_of(model, prompt(None))
    history.add(first)
    history.answer([(each, ToolResult("x")) for each in first.calls])
    second = await reply_of(model, prompt(first.id))
    changed = await reply_of(model, prompt(first.id, system=f"{LONG}!"))
    unknown = await reply_of(model, prompt("msg_of_another_run"))
    assert asked_with(fake) == [{"previous_message_id": id} for id in (None, first.id, first.id, "msg_of_another_run")]
    assert first.id != second.id
    reasons = [each.cache_miss for each in (first, second, changed, unknown)]
    assert reasons == [None, None, "system_changed", "previous_message_not_found"]
    assert second.usage.cache_read_tokens > 1000
    assert "max_tokens" in fake.journal[0].body


async def test_forbidding_tools_does_not_change_what_is_asked(fake: FakeModel) -> None:
    prompt = prompt_of("hello", allow_tools=False, previous_reply='msg_"ü')
    await reply_of(model_at(fake, fake.url, True), prompt)
    await reply_of(model_at(fake, fake.url, False), replace(prompt, previous_reply=None))
    first, second = (asked.body for asked in fake.journal)
    assert first == {**second, "diagnostics": {"previous_message_id": 'msg_"ü'}}
    assert second["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("host", "setting", "asked"),
    [
        ("api.anthropic.com", None, True),
        ("API.Anthropic.com", None, True),
        ("api.anthropic.com:8080", None, True),
        ("api.anthropic.com", True, True),
        ("api.anthropic.com", False, False),
        ("api.anthropic.com.example.org", None, False),
        ("eu.api.anthropic.com", None, False),
        ("gateway.example.org", None, False),
        ("gateway.example.org", True, True),
        ("gateway.example.org", False, False),
    ],
)
async def test_other_endpoints_are_asked_only_where_it_is_set(
    fake: FakeModel, monkeypatch: pytest.MonkeyPatch, host: str, setting: bool | None, asked: bool
) -> None:
    monkeypatch.setenv("http_proxy", fake.url)
    await reply_of(model_at(fake, f"http://{host}", setting), "hello")
    assert asked_with(fake) == [{"previous_message_id": None} if asked else "nothing"]


@pytest.mark.parametrize(("variable", "asked"), [("true", True), ("false", False), (None, False)])
async def test_the_setting_decides(fake: FakeModel, variable: str | None, asked: bool) -> None:
    environ = fake.variables
    settings = Settings.load(environ=environ | ({"DEPUTIZE_CACHE_DIAGNOSTICS": variable} if variable else {}))
    await reply_of(open_model("claude-sonnet-5-5", settings), prompt_of("hello", (READ,)))
    assert asked_with(fake) == [{"previous_message_id": None} if asked else "nothing"]
