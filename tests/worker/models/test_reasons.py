"""The reasons of failures, in many words: which of them are mended, and that every one is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deputize.shared.errors import ContextFull, ModelUnavailable
from deputize.worker.models.retry import classify_error, error_in, is_overflow, output_maximum
from tests.fake_model import FakeModel, Turn, refuse, text
from tests.worker.models.asking import model_of, parts_of, prompt_of, reply_of, retries

TOO_LONG = [
    "prompt is too long: 213462 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",
    "maximum context length is 8192 tokens: yours resulted in 9000 tokens (8000 in messages, 1000 in functions)",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "prompt token count of 135000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 262144 (requested: 300000)",
    "Range of input length should be [1, 30720]",
    "Prompt exceeds max length",
    "Input length 70000 exceeds the maximum length 65536",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "request too large",
    "The conversation is too long, please start a new one",
    "too many tokens in the prompt",
    "The message you submitted was too long, please reload and submit something shorter",
    "messages too long",
]
NOT_TOO_LONG = [
    "max_tokens: must be at least 1",
    "thinking.budget_tokens: Input should be greater than or equal to 1024",
    "messages.1.content.0.tool_use.name: String should have at most 128 characters",
    "messages.3.content.0.image.source.base64: image exceeds 5 MB maximum",
    "400 Request Header Or Cookie Too Large",
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
    "You exceeded your current quota, please check your plan",
    "tools: Tool names must be unique",
    "model: claude-9 does not exist",
]


@pytest.mark.parametrize("reason", TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_conversation_that_is_too_long_is_told_in_many_words(fake: FakeModel, reason: str, status: int) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(status, error={"message": reason})])])
    with pytest.raises(ContextFull):
        await parts_of(model_of(fake), "hello")
    assert len(fake.journal) == 1


@pytest.mark.parametrize("reason", TOO_LONG)
async def test_it_is_also_told_within_the_stream_and_with_status_200(fake: FakeModel, reason: str) -> None:
    for error in ({"type": "invalid_request_error", "message": reason}, {"message": reason, "code": 400}, reason):
        fake.script("", [Turn(raw=[{"type": "message_start", "message": {}}, {"type": "error", "error": error}])])
        with pytest.raises(ContextFull):
            await parts_of(model_of(fake), "hello")
    fake.script("", [Turn([text("x")], faults=[refuse(200, error={"message": reason})])])
    with pytest.raises(ContextFull):
        await parts_of(model_of(fake), "hello")


@pytest.mark.parametrize("reason", NOT_TOO_LONG)
def test_other_reasons_are_not_taken_for_that(reason: str) -> None:
    assert not is_overflow({"message": reason})


def test_a_rate_limit_is_never_taken_for_that() -> None:
    error = {"type": "rate_limit_error", "message": "too many tokens, prompt is too long for now"}
    failure = classify_error({"error": error}, "inside the stream", unknown_passes=True)
    assert (failure.too_long, failure.retryable) == (False, True)


MAXIMA = [
    ("max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku", 8192, True),
    ("max_tokens is too large: 16000. This model supports at most 4096 completion tokens.", 4096, True),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192, True),
    ("Range of max_tokens should be [1, 8192]", 8192, True),
    ("it has a maxOutputTokens value of 16000 but the supported range is from 1 (inclusive) to 8193 (exclusive).",
     8192, True),
    ("`max_tokens` must be less than or equal to `8192`", 8192, True),
    ("The maximum tokens you requested exceeds the model limit of 8192. Try a value that is lower than 8192.",
     8191, True),
    ("too many tokens: max tokens must be less than or equal to 4,096", 4096, True),
    ("input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000", 10000, False),
    ("'max_tokens' is too large: 16000. maximum context length is 8192, request has 500 tokens (16000 > 8192 - 500)",
     7692, False),
    ("maximum context length is 8192 tokens, you requested 16500 tokens (500 in the messages, 16000 in the completion)",
     7692, False),
    ("maximum context length is 32768, you requested about 41000 tokens (25000 of text input, 16000 in the output)",
     7768, False),
    ("`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 3000 `inputs` tokens and 16000 `max_new_tokens`",
     1097, False),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "tokens", "lasting"), MAXIMA)
async def test_the_maximum_of_output_that_a_refusal_names_is_heeded_and_a_models_own_remembered(
    fake: FakeModel, reason: str, tokens: int, lasting: bool
) -> None:
    fake.script("", [Turn([text("done")], faults=[refuse(400, error={"message": reason})])])
    model, prompt = model_of(fake), prompt_of("hello", max_output_tokens=16_000)
    parts = await parts_of(model, prompt)
    assert not retries(parts)
    await reply_of(model, prompt)
    await reply_of(model, prompt_of("hello", max_output_tokens=100))
    asked = [each.body["max_tokens"] for each in fake.journal]
    assert asked == [16_000, tokens, tokens if lasting else 16_000, 100]


@pytest.mark.parametrize(
    "reason",
    [
        "max_tokens: must be at least 1",
        "max_tokens is invalid",
        "max_tokens: 16000 is not allowed",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "maximum context length is 8192 tokens; requested 24500 tokens (8500 in the messages, 16000 in the output)",
        "maximum context length is 8192 tokens; requested 24100 tokens (8100 in the messages, 16000 in the output)",
    ],
)
def test_no_maximum_is_made_up(reason: str) -> None:
    assert output_maximum(reason, 16_000) is None


async def test_an_endpoint_that_names_smaller_and_smaller_maxima_is_given_up(fake: FakeModel) -> None:
    faults = [refuse(400, error={"message": f"max_tokens must be at most {most}"}) for most in (900, 800, 800)]
    fake.script("", [Turn([text("x")], faults=faults)])
    with pytest.raises(ModelUnavailable, match=r"must be at most 800.*DEPUTIZE_MAX_OUTPUT_TOKENS"):
        await parts_of(model_of(fake), prompt_of("hello", max_output_tokens=1000))
    assert [each.body["max_tokens"] for each in fake.journal] == [1000, 900, 800]


FORMS = [
    {"error": {"type": "invalid_request_error", "message": "no such model"}},
    {"error": "no such model"},
    {"error": {"error": {"message": "no such model"}}},
    {"message": "no such model", "code": 404},
    {"detail": "no such model"},
    {"detail": [{"loc": ["body"], "msg": "no such model"}]},
    {"errors": [{"message": "no such model"}]},
    [{"error": {"message": "no such model"}}],
    {"code": "1211", "msg": "no such model"},
    {"error": {"message": "Provider returned error", "metadata": {"raw": "no such model"}}},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_reason_is_found_in_every_form(form: Any) -> None:
    assert error_in(json.dumps(form).encode())["message"].endswith("no such model")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"1", b"{}", b"<html>", b"[" * 100_000, b'{"type": "message"}'])
def test_what_is_no_error_has_no_reason(body: bytes) -> None:
    assert not error_in(body).get("message")


async def test_an_error_with_status_200_is_shown_with_the_gateways_own_reason(fake: FakeModel) -> None:
    error = {"type": "insufficient_quota", "message": "the balance of this account is used up"}
    fake.script("", [Turn([text("x")], faults=[refuse(200, error=error)])])
    with pytest.raises(ModelUnavailable, match="the balance of this account is used up") as raised:
        await parts_of(model_of(fake), "hello")
    assert "not a Messages API" not in str(raised.value)
    assert not raised.value.may_pass


@pytest.mark.parametrize(
    "error", [{"type": "overloaded_error"}, {"type": "x", "code": 529}, {"type": "x", "code": 429}]
)
async def test_one_that_may_pass_is_tried_again(fake: FakeModel, error: dict[str, Any]) -> None:
    fake.script("", [Turn([text("done")], faults=[refuse(200, error=error)])])
    assert (await reply_of(model_of(fake), "hello")).text == "done"
    assert len(fake.journal) == 2


@pytest.mark.parametrize("event", [{"error": {"message": "no such model", "code": 404}}, {"error": "no such model"}])
async def test_an_error_event_without_a_type_is_one_as_well(fake: FakeModel, event: dict[str, Any]) -> None:
    fake.script("", [Turn(raw=[{"type": None, **event}])])
    with pytest.raises(ModelUnavailable, match="no such model"):
        await parts_of(model_of(fake), "hello")
