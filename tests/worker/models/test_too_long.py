"""Refusals that are about the length of a conversation, in many words, and those of what an endpoint lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from deputize.shared.errors import ContextFull, ModelUnavailable
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.credentials import Credentials
from deputize.worker.models.retry import classify_error, is_overflow
from tests.fake_model import FakeModel, Turn, call, refuse, text
from tests.runs.bench import bench_at
from tests.worker.models.asking import IMPATIENT, model_at, model_of, parts_of, prompt_of, reply_of

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
    "`inputs` must have less than 4096 tokens. Given: 5321",
    "超出模型最大上下文长度",
    "输入长度 140000 超过了最大值 131072",
    "the total number of tokens (140000) is greater than the limit (131072)",
    "Sequence length 33000 is larger than max_model_len",
    "This endpoint takes 32768 tokens, and got 40123",
    "length=70123 limit=65536",
    "prompt has 210000 tokens, at most 200000",
    "トークン数が上限の 32768 を超えています: 40000",
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
    "thinking.budget_tokens: 1024 must be less than max_tokens 2000 tokens",
    "tools[3].description: string too long. Expected a string with maximum length 1024, but got length 2210",
    "messages.3.content.1.tool_use.id: String should have at most 64 characters, not 300",
    "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens",
    "temperature: Input should be less than or equal to 1",
    "This request would exceed the limit of 1000000 tokens per month (1000123 used)",
]


@pytest.mark.parametrize("reason", TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_conversation_that_is_too_long_is_recognized_in_many_wordings(
    fake: FakeModel, reason: str, status: int
) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(status, error={"message": reason})])])
    with pytest.raises(ContextFull):
        await parts_of(model_of(fake), "hello")
    assert len(fake.journal) == 1


@pytest.mark.parametrize("reason", TOO_LONG)
async def test_it_is_also_reported_within_the_stream_and_with_status_200(fake: FakeModel, reason: str) -> None:
    for error in ({"type": "invalid_request_error", "message": reason}, {"message": reason, "code": 400}, reason):
        fake.script("", [Turn(raw=[{"type": "message_start", "message": {}}, {"type": "error", "error": error}])])
        with pytest.raises(ContextFull):
            await parts_of(model_of(fake), "hello")
    fake.script("", [Turn([text("x")], faults=[refuse(200, error={"message": reason})])])
    with pytest.raises(ContextFull):
        await parts_of(model_of(fake), "hello")


@given(
    window=st.integers(1000, 2_000_000),
    more=st.integers(1, 1_000_000),
    words=st.sampled_from(
        [
            "{0} tokens are more than {1}",
            "tokens: {0} > {1}",
            "max {1} tokens, got {0}",
            "长度 {0} > {1}",
            "{1} < length {0}",
        ]
    ),
)
def test_two_lengths_and_a_word_of_length_are_enough(window: int, more: int, words: str) -> None:
    assert is_overflow({"message": words.format(window + more, window)})


LONG = "word " * 100_000
SHORT = "word " * 100


@pytest.mark.parametrize(
    ("words", "status", "reason", "full"),
    [
        (LONG, 400, "bad request", True),
        (LONG, 422, "", True),
        (SHORT, 400, "bad request", False),
        (LONG, 401, "bad request", False),
        (LONG, 400, "cache_control: Extra inputs are not permitted", False),
    ],
)
async def test_an_unknown_refusal_of_a_long_conversation_may_be_about_its_length(
    fake: FakeModel, words: str, status: int, reason: str, full: bool
) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(status, error={"message": reason})])])
    with pytest.raises(ModelUnavailable) as error:
        await reply_of(model_of(fake, name="m"), prompt_of(words))
    assert isinstance(error.value, ContextFull) is full


async def test_a_run_that_is_refused_without_a_known_reason_is_shortened_once(
    fake: FakeModel, redis_url: str, tmp_path: Path
) -> None:
    refused = refuse(400, error={"message": "bad request"})
    read = Turn([call("write_file", path="a.txt", content=LONG)])
    fake.script("", [read, Turn([text("x")], faults=[refused] * 9)])
    fake.script("Work so far", [Turn([text("done")])])
    async with bench_at(fake, redis_url, tmp_path / "home", context_tokens=200_000) as bench:
        result = await bench.run()
    assert (result.summary, result.files_modified) == ("done", ["a.txt"])
    fake.script("", [read, Turn([text("x")], faults=[refused] * 9)])
    fake.script("Work so far", [Turn([text("x")], faults=[refused] * 9)])
    async with bench_at(fake, redis_url, tmp_path / "home", context_tokens=200_000) as bench:
        result = await bench.run()
    assert (result.termination_reason, "bad request" in result.errors[0]) == ("model_unavailable", True)


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        (
            "cache_control: Extra inputs are not permitted",
            'Set lacks = ["cache_control"] in [models."claude-sonnet-5-5"]',
        ),
        ("Unrecognized request argument supplied: cache_control", 'Set lacks = ["cache_control"]'),
        ("thinking: adaptive is not supported", 'Set lacks = ["thinking"]'),
        ("this model has no reasoning", 'Set lacks = ["thinking"]'),
        ("diagnostics: Extra inputs are not permitted", "Set DEPUTIZE_CACHE_DIAGNOSTICS=false"),
        ("Unexpected value(s) `a-2025` for the `anthropic-beta` header", "Check ANTHROPIC_CUSTOM_HEADERS"),
    ],
)
async def test_a_refusal_of_what_a_gateway_lacks_names_the_setting(fake: FakeModel, reason: str, setting: str) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(400, error={"message": reason})])])
    variables = {
        "ANTHROPIC_API_KEY": fake.key,
        "ANTHROPIC_BASE_URL": fake.url,
        "ANTHROPIC_CUSTOM_HEADERS": "anthropic-beta: a-2025",
    }
    credentials = Credentials({name: SecretStr(value) for name, value in variables.items()})
    model = AnthropicModel("claude-sonnet-5-5", credentials, IMPATIENT, cache_diagnostics=True)
    with pytest.raises(ModelUnavailable) as error:
        await reply_of(model, "hello")
    assert setting in str(error.value)


@pytest.mark.parametrize("lack", ["cache_control", "thinking"])
async def test_no_setting_is_named_that_is_made_already(fake: FakeModel, lack: str) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(400, error={"message": f"{lack}: no"})])])
    model = model_at(fake.url, fake.key, name="claude-sonnet-5-5", lacks=[lack])
    with pytest.raises(ModelUnavailable) as error:
        await reply_of(model, "hello")
    assert "lacks" not in str(error.value)


@pytest.mark.parametrize("reason", NOT_TOO_LONG)
def test_other_reasons_are_not_taken_for_that(reason: str) -> None:
    assert not is_overflow({"message": reason})


def test_a_rate_limit_is_never_taken_for_that() -> None:
    error = {"type": "rate_limit_error", "message": "too many tokens, prompt is too long for now"}
    failure = classify_error({"error": error}, "inside the stream", unknown_passes=True)
    assert (failure.too_long, failure.retryable) == (False, True)
