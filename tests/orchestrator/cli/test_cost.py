"""`deputize cost`: tables of what delegations cost."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from deputize.shared.delegation import Usage
from deputize.shared.request import DelegationRequest
from tests.orchestrator.cli.following import called
from tests.orchestrator.fake_service import FakeService
from tests.wire.examples import CAP, FORECAST


async def spent(
    service: FakeService, cost: float | None, days_ago: int = 0, cached: dict[str, Any] | None = None, **fields: Any
) -> None:
    id = (await service.create(DelegationRequest(task="do it", **fields))).delegation.id
    service.finish(id, usage=Usage(**{"input_tokens": 1000, "cost_usd": cost, **(cached or {})}))
    made = service.runs[id].created_at - timedelta(days=days_ago)
    service.runs[id] = service.runs[id].model_copy(update={"created_at": made})


async def test_the_cost_of_each_day_and_of_all(url: str, service: FakeService) -> None:
    await spent(service, 0.25)
    await spent(service, 0.5)
    await spent(service, 1.0, days_ago=3)
    done = await called(url, "cost")
    heads, *rows = [line.split() for line in done.stdout.splitlines()]
    assert heads == ["day", "delegations", "tokens", "cached", "cost", "saved"]
    assert [row[1:] for row in rows] == [
        ["1", "1,000", "0.0%", "$1.0000", "$0.0000"],
        ["2", "2,000", "0.0%", "$0.7500", "$0.0000"],
        ["3", "3,000", "0.0%", "$1.7500", "$0.0000"],
    ]
    assert rows[0][0] < rows[1][0]
    assert (rows[2][0], done.exit_code) == ("total", 0)
    assert done.stderr == "the cost of subagents counts as theirs here; the result of their parent has it, too\n"


async def test_the_cost_of_each_value_of_a_label_dearest_first(url: str, service: FakeService) -> None:
    await spent(service, 0.25, labels={"team": "docs"})
    await spent(service, 0.5, labels={"team": "shop"})
    await spent(service, 0.125)
    done = await called(url, "cost", "--by", "label:team")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["label:team", "shop", "docs", "(none)", "total"]
    report = json.loads((await called(url, "cost", "--by", "label", "--json")).stdout)
    assert [(item["key"], item["usage"]["costUsd"]) for item in report["items"]] == [
        ("team:shop", 0.5),
        ("team:docs", 0.25),
        (None, 0.125),
    ]


async def test_what_was_accepted_before_does_not_count(url: str, service: FakeService) -> None:
    await spent(service, 1.0, days_ago=3)
    await spent(service, 0.25)
    for since in ("2d", "30h"):
        assert "$0.2500" in (await called(url, "cost", "--since", since)).stdout.splitlines()[-1]
    assert "$1.2500" in (await called(url, "cost", "--since", "2020-01-01")).stdout.splitlines()[-1]


async def test_an_unknown_price_is_not_zero_and_is_reported(url: str, service: FakeService) -> None:
    await spent(service, None, cached={"cache_saved_usd": None}, model="house-model")
    done = await called(url, "cost", "--by", "model")
    assert done.stdout.splitlines()[1].split() == ["house-model", "1", "1,000", "0.0%", "–", "–"]
    assert "the cost of 1 delegation is not known" in done.stderr
    await spent(service, 0.5, model="claude")
    total = (await called(url, "cost")).stdout.splitlines()[-1].split()
    assert total == ["total", "2", "2,000", "0.0%", "$0.5000", "$0.0000"]


async def test_what_the_cache_had_and_saved_is_shown_of_each_group(url: str, service: FakeService) -> None:
    read = {"cache_read_tokens": 3000, "cache_saved_usd": 0.75}
    await spent(service, 0.5, cached=read, model="a")
    await spent(service, 0.25, cached={"cache_write_tokens": 1000, "cache_saved_usd": -0.125}, model="b")
    rows = [line.split() for line in (await called(url, "cost", "--by", "model")).stdout.splitlines()[1:]]
    assert rows == [
        ["a", "1", "4,000", "75.0%", "$0.5000", "$0.7500"],
        ["b", "1", "2,000", "0.0%", "$0.2500", "-$0.1250"],
        ["total", "2", "6,000", "50.0%", "$0.7500", "$0.6250"],
    ]


async def test_a_group_or_a_time_that_is_none_is_a_mistake(url: str) -> None:
    done = await called(url, "cost", "--by", "colour")
    assert done.exit_code == 2
    assert "--by: 'colour' is not one of day, model, session, label, label:KEY or delegation" in done.stderr.replace(
        "'--by'", "--by"
    )
    done = await called(url, "cost", "--since", "yesterday")
    assert done.exit_code == 2
    assert "'yesterday' is neither like 7d or 24h nor a date" in done.stderr


async def test_the_caps_and_the_forecasts_follow(url: str, service: FakeService) -> None:
    service.money = {"caps": [CAP], "forecasts": [FORECAST]}
    done = await called(url, "cost")
    _, total, _, *rows = [line.split("  ") for line in done.stdout.splitlines()]
    assert total[0] == "total"
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["cap", "US dollars", "spent", "reserved", "left"],
        ["spend.weekly_usd", "$50.0000", "$12.5000", "$0.2500", "$37.2500"],
        [],
        ["running", "turn", "spent", "forecast", "limit"],
        [FORECAST.delegation_id, "3 of 12", "$0.0600", "$0.2400", "$0.2500"],
    ]
    assert "uses all of its turns" in done.stderr
