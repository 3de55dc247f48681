"""The price table: facts with dates."""

from __future__ import annotations

from datetime import date

import pytest

from deputize.shared.delegation import Usage
from deputize.worker.models.anthropic import price_of
from deputize.worker.models.base import Price

NOVEMBER = date(2026, 11, 21)


def test_a_model_costs_what_its_provider_says() -> None:
    assert price_of("claude-sonnet-5-5", NOVEMBER) == Price(input=2, output=10, cache_read=0.1, cache_write=2.5)


def test_the_price_is_that_of_the_day() -> None:
    before, after = (price_of("claude-sonnet-5-5", date(2026, 10, day)) for day in (6, 7))
    assert before is not None
    assert after is not None
    assert (before.cache_read, after.cache_read) == (0.2, 0.1)


def test_before_its_first_price_a_model_has_none() -> None:
    assert price_of("claude-haiku-5-5", date(2026, 1, 1)) is None


def test_a_dated_name_is_the_model_without_its_date() -> None:
    assert price_of("claude-haiku-4-5-20251001", NOVEMBER) == price_of("claude-haiku-4-5", NOVEMBER)


@pytest.mark.parametrize("name", ["", "gpt-6", "claude-sonnet-5-5-fast", "claude-sonnet", "scripted"])
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert price_of(name, NOVEMBER) is None


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(input_tokens=100_000, output_tokens=1000), 0.0105),
        (Usage(input_tokens=100_001, output_tokens=1000), 0.0525005),
        (Usage(input_tokens=1, cache_read_tokens=60_000, cache_write_tokens=39_999), 0.005599975),
        (Usage(input_tokens=1, cache_read_tokens=60_000, cache_write_tokens=40_000), 0.0280005),
    ],
)
def test_a_long_prompt_pays_the_higher_rate_for_the_whole_request(usage: Usage, dollars: float) -> None:
    price = price_of("claude-haiku-5-5", NOVEMBER)
    assert price is not None
    assert price.cost(usage) == pytest.approx(dollars)


def test_the_default_model_has_a_price() -> None:
    from deputize.shared.settings import Settings

    assert price_of(Settings().model) is not None


def test_a_price_of_the_settings_comes_first_and_caches_nothing_unsaid() -> None:
    from deputize.shared.settings import Settings
    from deputize.worker.models import open_model

    said = '{"house": {"input": 1, "output": 5}, "claude-sonnet-5-5": {"input": 9, "output": 9, "cache_read": 0}}'
    settings = Settings.load(environ={"DEPUTIZE_PRICES": said})
    assert open_model("house", settings).price() == Price(1, 5, 1, 1)
    assert open_model("house-20261123", settings).price() == Price(1, 5, 1, 1)
    assert open_model("claude-sonnet-5-5", settings).price() == Price(9, 9, 0, 9)
    assert open_model("claude-opus-5-5", settings).price() == price_of("claude-opus-5-5")
