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


HOUR = Usage(input_tokens=10, cache_read_tokens=100, cache_write_tokens=1000, cache_write_1h_tokens=400)


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-4-5"])
def test_what_is_kept_for_an_hour_costs_twice_the_input(model: str) -> None:
    price = price_of(model, NOVEMBER)
    assert price is not None
    assert price.cache_write_1h == 2 * price.input
    expected = 10 * price.input + 100 * price.cache_read + 600 * price.cache_write + 400 * 2 * price.input
    assert price.cost(HOUR) == pytest.approx(expected / 1e6)


def test_above_the_band_an_hour_costs_twice_the_higher_rate() -> None:
    price = price_of("claude-haiku-5-5", NOVEMBER)
    assert price is not None
    usage = Usage(cache_write_tokens=100_001, cache_write_1h_tokens=100_001)
    assert price.cost(usage) == pytest.approx(100_001 * 2 * 0.5 / 1e6)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(input_tokens=1000, output_tokens=1000), 0),
        (Usage(cache_read_tokens=1000), 1.9e-3),
        (Usage(cache_write_tokens=1000), -0.5e-3),
        (Usage(cache_write_tokens=1000, cache_write_1h_tokens=1000), -2e-3),
        (HOUR, (100 * 1.9 - 600 * 0.5 - 400 * 2) / 1e6),
    ],
)
def test_caching_saved_what_the_tokens_would_have_cost_more_without_it(usage: Usage, dollars: float) -> None:
    price = price_of("claude-sonnet-5-5", NOVEMBER)
    assert price is not None
    assert price.cache_saved(usage) == pytest.approx(dollars)
    plain = usage.model_copy(update=dict.fromkeys(("cache_read_tokens", "cache_write_tokens"), 0))
    plain = plain.model_copy(update={"cache_write_1h_tokens": 0, "input_tokens": usage.total - usage.output_tokens})
    assert price.cost(plain) - price.cost(usage) == pytest.approx(dollars)


def test_above_the_band_caching_saves_by_the_higher_rates() -> None:
    price = price_of("claude-haiku-5-5", NOVEMBER)
    assert price is not None
    assert price.cache_saved(Usage(cache_read_tokens=100_001)) == pytest.approx(100_001 * 0.45 / 1e6)


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


@pytest.mark.parametrize("key", ["cache_write_1h", "cacheWrite1h"])
def test_a_price_of_the_settings_may_name_what_an_hour_costs(key: str) -> None:
    from deputize.shared.settings import Settings
    from deputize.worker.models import open_model

    said = f'{{"house": {{"input": 1, "output": 5, "{key}": 0}}, "other": {{"input": 1, "output": 5}}}}'
    settings = Settings.load(environ={"DEPUTIZE_PRICES": said})
    prices = [open_model(name, settings).price() for name in ("house", "other")]
    assert [price and price.cache_write_1h for price in prices] == [0, 2]
    passed = {name: text for name, text in settings.child_environment().items() if name.startswith("DEPUTIZE_")}
    assert Settings.load(environ=passed).prices == settings.prices
