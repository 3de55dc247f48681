"""What endpoints are asked about their prompt cache, and what they report: writes by lifetime, and misses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.settings import Settings
from deputize.worker.core.conversation import Conversation
from deputize.worker.models import close_models, open_model
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Model, Price, Prompt, Reply
from deputize.worker.models.stream import ReplyAssembler
from deputize.worker.tools.base import ToolResult
from deputize.worker.xml_calls.model import XmlCalls
from tests.fake_model import FakeModel, PromptCache, Turn, call, text
from tests.worker.models.asking import READ, model_at, prompt_of, reply_of

PRICE = Price(input=2, output=10, cache_read=0.2, cache_write=2.5)


def assembled(message: dict[str, Any], *more: dict[str, Any], price: Price | None = None) -> Reply:
    assembler = ReplyAssembler(price)
    assembler.feed([{"type": "message_start", "message": message}, *more, {"type": "message_stop"}])
    assert assembler.done
    return assembler.finish()


def used(**counts: Any) -> Usage:
    return assembled({"usage": {"input_tokens": 10, "cache_creation_input_tokens": 1000, **counts}}).usage


def lifetimes(short: Any, long: Any) -> dict[str, Any]:
    return {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}


@pytest.mark.parametrize(
    ("cache_creation", "kept"),
    [
        (lifetimes(600, 400), 400),
        (lifetimes(1000, 0), 0),
        (lifetimes(0, 1000), 1000),
        (lifetimes(0, 2000), 1000),
        (lifetimes(None, None), 0),
        ({}, 0),
        (None, 0),
        ("?", 0),
        ([400], 0),
    ],
    ids=repr,
)
def test_what_is_kept_for_an_hour_is_a_part_of_what_was_written(cache_creation: Any, kept: int) -> None:
    usage = used(cache_creation=cache_creation)
    assert (usage.cache_write_tokens, usage.cache_write_1h_tokens, usage.total) == (1000, kept, 1010)


def test_an_endpoint_that_does_not_split_its_writes_keeps_them_for_minutes() -> None:
    assert used().cache_write_1h_tokens == 0


def test_the_hour_is_billed_from_the_beginning_of_a_reply_on() -> None:
    counts = {"cache_creation_input_tokens": 1000, "cache_creation": lifetimes(600, 400)}
    assembler = ReplyAssembler(PRICE)
    (started,) = assembler.feed([{"type": "message_start", "message": {"usage": counts}}])
    assert assembler.usage == started.usage  # pyright: ignore[reportAttributeAccessIssue]
    assert assembler.usage.cost_usd == pytest.approx((600 * 2.5 + 400 * 4) / 1e6)
    assert assembler.usage.cache_saved_usd == pytest.approx(-(600 * 0.5 + 400 * 2) / 1e6)


@pytest.mark.parametrize(
    ("message", "id"), [({"id": "msg_1"}, "msg_1"), ({}, ""), ({"id": None}, ""), ({"id": 7}, "")], ids=repr
)
def test_a_reply_has_the_endpoints_id(message: dict[str, Any], id: str) -> None:
    assert assembled(message).id == id


REASONS = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "previous_message_not_found",
    "unavailable",
)


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_read_was_missed_is_the_type_of_the_reason(reason: str) -> None:
    missed = {"type": reason, "cache_missed_input_tokens": 900}
    assert assembled({"diagnostics": {"cache_miss_reason": missed}}).cache_miss == reason


def test_every_reason_that_the_sdk_knows_is_tried() -> None:
    from anthropic.types import cache_miss_reason

    names = [name for name in vars(cache_miss_reason) if name.startswith("CacheMiss") and name != "CacheMissReason"]
    known = [getattr(cache_miss_reason, name).model_fields["type"].annotation.__args__[0] for name in names]
    assert sorted(known) == sorted(REASONS)


@pytest.mark.parametrize(
    "diagnostics",
    [
        None,
        {"cache_miss_reason": None},
        {},
        {"cache_miss_reason": {}},
        {"cache_miss_reason": {"type": None}},
        {"cache_miss_reason": {"type": ""}},
        {"cache_miss_reason": "tools_changed"},
        [1],
        "?",
    ],
    ids=repr,
)
def test_where_nothing_is_reported_there_is_no_reason(diagnostics: Any) -> None:
    assert assembled({"diagnostics": diagnostics}).cache_miss is None


def test_a_reason_is_not_longer_than_a_name() -> None:
    missed = {"type": "x" * 100_000}
    assert assembled({"diagnostics": {"cache_miss_reason": missed}}).cache_miss == "x" * 64


LONG = "You are a worker. " * 400
"""The fake endpoint's cache keeps no shorter prefix."""


@pytest.fixture
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel(cache=PromptCache()) as server:
        yield server
        await close_models()


def model_that_asks(fake: FakeModel, url: str, asked: bool | None) -> AnthropicModel:
    return model_at(url, fake.key, name="claude-sonnet-5-5", cache_diagnostics=asked)


def asked_with(fake: FakeModel) -> list[Any]:
    return [asked.body.get("diagnostics", "nothing") for asked in fake.journal]


@pytest.mark.parametrize("wrapped", [lambda model: model, XmlCalls], ids=["native", "xml"])
async def test_each_prompt_names_the_reply_before_and_the_reason_comes_back(
    fake: FakeModel, wrapped: Callable[[Model], Model]
) -> None:
    model, history = wrapped(model_that_asks(fake, fake.url, True)), Conversation()
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
    await reply_of(model_that_asks(fake, fake.url, True), prompt)
    await reply_of(model_that_asks(fake, fake.url, False), replace(prompt, previous_reply=None))
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
    await reply_of(model_that_asks(fake, f"http://{host}", setting), "hello")
    assert asked_with(fake) == [{"previous_message_id": None} if asked else "nothing"]


@pytest.mark.parametrize(("variable", "asked"), [("true", True), ("false", False), (None, False)])
async def test_the_setting_decides(fake: FakeModel, variable: str | None, asked: bool) -> None:
    environ = fake.variables
    settings = Settings.load(environ=environ | ({"DEPUTIZE_CACHE_DIAGNOSTICS": variable} if variable else {}))
    await reply_of(open_model("claude-sonnet-5-5", settings), prompt_of("hello", (READ,)))
    assert asked_with(fake) == [{"previous_message_id": None} if asked else "nothing"]
