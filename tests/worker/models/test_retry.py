"""Failed requests: how long they are retried, and the reasons of endpoints and gateways, in many words."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.errors import ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Reply, TextPart
from deputize.worker.models.retry import (
    Failure,
    RetryPolicy,
    RetryState,
    error_in,
    output_maximum,
)
from tests.fake_model import FakeModel, Fault, Turn, bad_json, cut, overload, refuse, reset, stall, text
from tests.waiting import until
from tests.worker.models.asking import MANY, model_at, model_of, parts_of, prompt_of, reply_of, retries


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def delays_of(
    retry_policy: RetryPolicy, *, try_seconds: float = 0.0, replied: bool = False, asked: float | None = None
) -> list[float]:
    """The delays until an endpoint is given up whose every try fails after so many seconds."""
    clock, delays = Clock(), list[float]()
    state = RetryState(retry_policy, clock)
    failure = Failure("overloaded", retryable=True, retry_after=asked)
    while len(delays) < 10_000:
        state.begin_try()
        clock.now += try_seconds
        delay = state.next_delay(failure, replied=replied)
        if delay is None:
            return delays
        delays.append(delay)
        clock.now += delay
    raise AssertionError("never given up")


def test_failures_are_borne_for_the_whole_time_and_no_longer() -> None:
    delays = delays_of(RetryPolicy(seconds=300))
    assert sum(delays) == pytest.approx(300)
    assert len(delays) > 10
    assert max(delays) <= RetryPolicy().longest_delay


def test_the_time_of_tries_that_got_nothing_counts_too() -> None:
    assert len(delays_of(RetryPolicy(seconds=300), try_seconds=120)) in (3, 4)


def test_the_first_try_may_take_longer_than_failures_are_borne() -> None:
    assert len(delays_of(RetryPolicy(seconds=10, first_delay=1), try_seconds=100)) == 1


def test_the_time_of_replies_that_were_cut_does_not_count() -> None:
    delays = delays_of(RetryPolicy(seconds=300), try_seconds=600, replied=True)
    assert sum(delays) == pytest.approx(300)


@pytest.mark.parametrize(("asked", "first"), [(45, (45, 49.5)), (290, (60, 60)), (7200, (60, 60))])
def test_a_retry_after_is_honoured_for_up_to_a_minute(asked: float, first: tuple[float, float]) -> None:
    delays = delays_of(RetryPolicy(seconds=300), asked=asked)
    assert first[0] <= delays[0] <= first[1]
    assert sum(delays) == pytest.approx(300)


def test_many_tries_do_not_overflow_the_delay() -> None:
    assert RetryPolicy().delay(5000, None) <= RetryPolicy().longest_delay


@pytest.mark.parametrize(
    "failure", [Failure("wrong key", retryable=False), Failure("too long", retryable=True, too_long=True)]
)
def test_what_would_fail_again_is_given_up_at_once(failure: Failure) -> None:
    assert RetryState(RetryPolicy()).next_delay(failure, replied=False) is None


def test_no_time_for_failures_means_one_try() -> None:
    assert delays_of(RetryPolicy(seconds=0)) == []


PASSING = [
    *(refuse(status, retry_after_ms="1") for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    refuse(529),
    refuse(400, x_should_retry="true"),
    overload(),
    overload(after=0),
    cut(),
    cut(after=0),
    reset(),
    bad_json(),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.after}")
async def test_a_transient_failure_is_reported_and_retried(fake: FakeModel, fault: Fault) -> None:
    fake.script("", [Turn([text(MANY)], faults=[fault, fault])])
    parts = await parts_of(model_of(fake), "hello")
    assert len(retries(parts)) == 2
    at = parts.index(retries(parts)[-1])
    assert "".join(part.text for part in parts[at + 1 : -1] if isinstance(part, TextPart)) == MANY
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == MANY
    assert [asked.outcome for asked in fake.journal][-1] == "answered"


async def test_a_stream_that_stalls_is_left_and_asked_for_again(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], faults=[stall()])])
    parts = await parts_of(model_of(fake, RetryPolicy(first_delay=0.001, read_timeout=0.5)), "hello")
    assert "stalled" in retries(parts)[0].error
    assert isinstance(parts[-1], Reply)
    await until(lambda: fake.aborted >= 1)


async def test_an_endpoint_that_answers_nothing_at_all_is_a_stall_too(fake: FakeModel) -> None:
    fake.script("", [Turn([text(MANY)], delay=30)])
    with pytest.raises(ModelUnavailable, match="stalled"):
        await parts_of(model_of(fake, RetryPolicy(tries=2, first_delay=0.001, read_timeout=0.05)), "hello")
    await until(lambda: fake.aborted == 2)


@pytest.mark.parametrize("fault", [overload(), bad_json()], ids=lambda fault: fault.kind)
async def test_the_cost_of_a_failed_try_is_reported(fake: FakeModel, fault: Fault) -> None:
    fake.script("", [Turn([text(MANY)], usage={"input_tokens": 1000}, faults=[fault, refuse(529)])])
    streamed, refused = retries(await parts_of(model_of(fake), "hello"))
    assert streamed.wasted == Usage(input_tokens=1000, output_tokens=1, cost_usd=0.00201)
    assert refused.wasted == Usage()


@pytest.mark.parametrize(
    ("headers", "shortest", "longest"),
    [
        ({"retry_after_ms": "20"}, 0.02, 0.022),
        ({"retry_after": "0.03"}, 0.03, 0.033),
        ({"retry_after": "1000"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 2100 23:59:59 GMT"}, 0.05, 0.055),
        ({"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0, 0),
        ({"retry_after": "soon"}, 0.0005, 0.001),
        ({}, 0.0005, 0.001),
    ],
)
async def test_the_endpoint_sets_when_to_come_back(
    fake: FakeModel, headers: dict[str, Any], shortest: float, longest: float
) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(429, **headers)])])
    (retry,) = retries(await parts_of(model_of(fake, RetryPolicy(first_delay=0.001, longest_wait=0.05)), "hello"))
    assert shortest <= retry.delay <= longest


def test_delays_grow_up_to_a_roof() -> None:
    retry_policy = RetryPolicy(first_delay=1, longest_delay=4)
    delays = [[retry_policy.delay(tries, None) for _ in range(50)] for tries in (1, 2, 3, 4, 5)]
    for roof, some in zip([1, 2, 4, 4, 4], delays, strict=True):
        assert all(roof / 2 <= delay <= roof for delay in some)
        assert len(set(some)) > 1


async def test_an_endpoint_may_fail_for_as_long_as_the_setting_allows(fake: FakeModel) -> None:
    """Not for a number of tries: fifteen bad seconds must not end what was paid for."""
    faults = [refuse(529), refuse(500), refuse(429), cut(), reset(), overload()] * 4
    fake.script("", [Turn([text(MANY)], faults=faults)])
    retry_policy = RetryPolicy(seconds=300, first_delay=0.001, longest_delay=0.002)
    parts = await parts_of(model_of(fake, retry_policy), "hello")
    assert len(retries(parts)) == len(faults)
    assert isinstance(parts[-1], Reply)
    assert parts[-1].text == MANY


@pytest.mark.parametrize("seconds", [0, 0.05])
async def test_when_that_time_is_over_the_setting_is_named(fake: FakeModel, seconds: float) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)] * 500)])
    settings = Settings.load(
        environ={
            "ANTHROPIC_API_KEY": fake.key,
            "ANTHROPIC_BASE_URL": fake.url,
            "DEPUTIZE_MODEL_RETRY_SECONDS": str(seconds),
        }
    )
    with pytest.raises(ModelUnavailable, match=rf"DEPUTIZE_MODEL_RETRY_SECONDS \({seconds:g}\)"):
        await parts_of(AnthropicModel.open("m", settings), "hello")
    assert len(fake.journal) == (2 if seconds else 1)


async def test_after_six_tries_the_url_is_named(fake: FakeModel) -> None:
    fake.script("", [Turn([text("x")], faults=[refuse(529)] * 9)])
    with pytest.raises(ModelUnavailable) as error:
        await parts_of(model_of(fake), "hello")
    assert len(fake.journal) == 6
    for words in (f"{fake.url}/v1/messages", "6 tries", "HTTP 529", "ANTHROPIC_BASE_URL"):
        assert words in str(error.value)


async def test_an_endpoint_that_is_down_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ModelUnavailable, match=f"after 6 tries; .*no connection to {url}"):
        await parts_of(model_at(url), "hello")
    await close_models()


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
