"""How long failures are borne: by a clock that the test moves, and against an endpoint that fails."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pydantic import SecretStr

from deputize.shared.delegation import Usage
from deputize.shared.errors import ModelUnavailable
from deputize.shared.settings import Settings
from deputize.worker.models import close_models
from deputize.worker.models.anthropic import AnthropicModel
from deputize.worker.models.base import Reply, TextPart
from deputize.worker.models.retry import Failure, RetryPolicy, RetryState
from tests.fake_model import FakeModel, Fault, Turn, bad_json, cut, overload, refuse, reset, stall, text
from tests.waiting import until
from tests.worker.models.asking import IMPATIENT, MANY, model_of, parts_of, retries


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
async def test_a_passing_failure_is_said_and_tried_again(fake: FakeModel, fault: Fault) -> None:
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
async def test_what_a_failed_try_cost_is_said(fake: FakeModel, fault: Fault) -> None:
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
async def test_the_endpoint_says_when_to_come_back(
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


async def test_an_endpoint_may_fail_for_as_long_as_the_setting_says(fake: FakeModel) -> None:
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
    endpoint = {"ANTHROPIC_API_KEY": SecretStr("sk-key-x"), "ANTHROPIC_BASE_URL": SecretStr(url)}
    model = AnthropicModel("m", endpoint, IMPATIENT)
    with pytest.raises(ModelUnavailable, match=f"after 6 tries; .*no connection to {url}"):
        await parts_of(model, "hello")
    await close_models()
