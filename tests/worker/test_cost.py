"""What delegations cost, as workers write it and a report adds it up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from deputize.shared.delegation import Usage
from deputize.shared.request import DelegationRequest, Limits
from deputize.shared.runs.cost import cost_report
from deputize.shared.wire import now
from deputize.worker.limits import Meter
from deputize.worker.models.base import Price
from tests.running import Bench, say, script

PRICE = {"input": 2.0, "output": 10.0}


async def test_a_report_adds_up_what_the_runs_spent(bench: Bench, tmp_path: Path) -> None:
    turn = {"blocks": [say("done")], "usage": {"input": 100_000, "output": 1000}}
    priced, unpriced = script(tmp_path, turn, price=PRICE), script(tmp_path, turn)
    first = await bench.run(model=priced, labels={"team": "docs", "kind": "x"})
    await bench.run(model=priced, labels={"team": "shop"}, session_id="s")
    await bench.run(model=unpriced)
    await bench.accept(DelegationRequest(task="waits", labels={"team": "docs"}))
    assert first.usage.cost_usd == pytest.approx(0.21)
    report = await cost_report(bench.store.redis, "label:team", None)
    rows = {item.key: (item.delegations, item.unpriced, item.usage.cost_usd) for item in report.items}
    assert rows == {"docs": (2, 0, 0.21), "shop": (1, 0, 0.21), None: (1, 1, None)}
    assert (report.total.delegations, report.total.usage.total) == (4, 303_000)
    assert report.total.usage.cost_usd == pytest.approx(0.42)
    by_model = await cost_report(bench.store.redis, "model", None)
    assert {item.key: item.delegations for item in by_model.items} == {priced: 2, unpriced: 1, None: 1}
    by_day = await cost_report(bench.store.redis, "day", None)
    assert [item.key for item in by_day.items] == [f"{now():%Y-%m-%d}"]


async def test_a_report_begins_where_it_is_asked_to(bench: Bench) -> None:
    await bench.accept(DelegationRequest(task="now"))
    for since, many in ((now() - timedelta(hours=1), 1), (now() + timedelta(hours=1), 0)):
        assert (await cost_report(bench.store.redis, "day", since)).total.delegations == many


def test_what_children_spent_is_in_the_usage_of_a_run_and_not_in_its_own() -> None:
    meter = Meter(Limits(), Price(2, 10, 0.2, 2.5))
    meter.spend(Usage(input_tokens=1_000_000))
    meter.book("child", Usage(input_tokens=500_000, cost_usd=1.0))
    assert (meter.usage.cost_usd, meter.own.cost_usd) == (3.0, 2.0)
    meter.begin_reply(Usage(input_tokens=1_000_000), counted=True)
    again = Meter.restored(Limits(), {**meter.checkpoint()})
    assert (again.usage.cost_usd, again.own.cost_usd) == (5.0, 4.0)
