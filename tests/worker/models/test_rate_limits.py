"""What an endpoint states of its rate limits, in responses that serve a request and in those that refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from deputize.worker.models.base import Retrying
from deputize.worker.models.rate_limits import RateLimit, RateLimits, limits_in
from deputize.worker.models.retry import RetryPolicy
from tests.fake_model import FakeModel, Fault, Turn, refuse, text
from tests.worker.models.asking import model_of, parts_of, retries

OURS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2026-11-29T12:00:00Z",
    "anthropic-ratelimit-tokens-limit": "60000",
    "anthropic-ratelimit-tokens-remaining": "58000",
}


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, {}),
        ({"content-type": "text/event-stream"}, {}),
        (OURS, {"requests": (50, 49), "tokens": (60_000, 58_000)}),
        ({name.title(): value for name, value in OURS.items()}, {"requests": (50, 49), "tokens": (60_000, 58_000)}),
        (
            OURS
            | {
                "anthropic-ratelimit-input-tokens-limit": "50000",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-output-tokens-limit": "10000",
                "anthropic-ratelimit-output-tokens-remaining": "10000",
            },
            {"requests": (50, 49), "input": (50_000, 0), "output": (10_000, 10_000)},
        ),
        (
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-limit-tokens": "150000",
                "x-ratelimit-remaining-tokens": "149984",
            },
            {"requests": (60, 59), "tokens": (150_000, 149_984)},
        ),
        ({"x-ratelimit-limit-requests": "60"}, {}),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "0"}, {}),
        ({"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "nan"}, {}),
        ({"x-ratelimit-limit-requests": "9" * 400, "x-ratelimit-remaining-requests": "1"}, {}),
        ({"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "99"}, {"requests": (10, 10)}),
    ],
)
def test_the_headers_of_the_api_and_of_gateways_are_read(
    headers: dict[str, str], found: dict[str, tuple[float, float]]
) -> None:
    expected = {kind: RateLimit(*each) for kind, each in found.items()}
    assert limits_in(CIMultiDict(headers)) == expected


async def test_limits_are_reported_of_a_refusal_too(fake: FakeModel) -> None:
    headers: dict[str, Any] = {name.replace("-", "_"): value for name, value in OURS.items()}
    heard = list[RateLimits]()
    fake.script("", [Turn([text("done")], faults=[refuse(429, **headers)])])
    model = model_of(fake)
    model.report_limits = heard.append
    await parts_of(model, "do it")
    assert heard == [{"requests": RateLimit(50, 49), "tokens": RateLimit(60_000, 58_000)}]


@pytest.mark.parametrize(
    ("fault", "is_refused"), [(refuse(429), True), (refuse(529), True), (refuse(500), False), (refuse(503), False)]
)
async def test_a_refusal_for_the_rate_is_told_from_other_failures(
    fake: FakeModel, fault: Fault, is_refused: bool
) -> None:
    fake.script("", [Turn([text("done")], faults=[fault])])
    (retry,) = retries(await parts_of(model_of(fake, RetryPolicy(tries=2, first_delay=0.001)), "do it"))
    assert isinstance(retry, Retrying)
    assert retry.refused is is_refused
