"""How delegations are grouped in a report of what they cost."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.delegation import Usage
from deputize.shared.ids import first_id, new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.cost import MOST_GROUPS, added_up, bill_of, check_group, cost_report, group_keys
from deputize.shared.runs.keys import INDEX
from deputize.shared.runs.store import RunStore

BILL = bill_of("dlg_1", "2026-11-23", None, "s", {"team": "docs", "kind": "x"}, Usage())


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("day", ["2026-11-23"]),
        ("model", [None]),
        ("session", ["s"]),
        ("delegation", ["dlg_1"]),
        ("label", ["team:docs", "kind:x"]),
        ("label:team", ["docs"]),
        ("label:other", [None]),
    ],
)
def test_a_delegation_is_in_the_groups_that_are_asked_for(by: str, groups: list[str | None]) -> None:
    assert [*group_keys(check_group(by))(BILL)] == groups


def test_what_it_cannot_be_grouped_by_is_named() -> None:
    with pytest.raises(ValueError, match="'weekday' is not one of day, model"):
        check_group("weekday")


def test_what_caching_saved_is_the_sum_of_what_is_known() -> None:
    def total(*usages: Usage) -> tuple[float | None, float | None, int]:
        bills = [bill_of("dlg_1", "2026-11-23", None, None, {}, usage) for usage in usages]
        whole = added_up(bills, "day", None).total
        return whole.usage.cost_usd, whole.usage.cache_saved_usd, whole.unpriced

    priced = Usage(cache_read_tokens=10, cost_usd=1.0, cache_saved_usd=0.5)
    unpriced = Usage(cache_read_tokens=10, cost_usd=None, cache_saved_usd=None)
    assert total(priced, priced, unpriced) == (2.0, 1.0, 1)
    assert total(unpriced) == (None, None, 1)


def test_of_single_delegations_the_dearest_are_reported_and_all_of_them_added_up() -> None:
    costs = [None, *range(20)]
    bills = [bill_of(f"dlg_{cost}", "2026-11-23", None, None, {}, Usage(cost_usd=cost)) for cost in costs]
    report = added_up(bills, "delegation", None)
    assert [item.key for item in report.items] == [f"dlg_{cost}" for cost in range(19, 9, -1)]
    assert (report.total.delegations, report.total.usage.cost_usd, report.total.unpriced) == (21, 190, 1)


@pytest.mark.parametrize("by", ["session", "model", "label:team"])
def test_of_very_many_groups_the_dearest_are_reported_and_all_of_them_added_up(by: str) -> None:
    """A session for each delegation is usual: a report of all would be as long as the index."""
    many = MOST_GROUPS + 500
    bills = [
        bill_of(f"dlg_{at}", "2026-11-23", f"m{at}", f"s{at}", {"team": f"t{at}"}, Usage(cost_usd=at))
        for at in range(many)
    ]
    bills += [bill_of("dlg_again", "2026-11-23", "m0", "s0", {"team": "t0"}, Usage(cost_usd=many))]
    report = added_up(bills, by, None)
    assert [item.usage.cost_usd for item in report.items] == [*range(many, 500, -1)]
    assert ((report.items[0].key or "")[1:], report.items[0].delegations) == ("0", 2)
    assert report.total.delegations == many + 1


def test_days_are_all_reported() -> None:
    days = [f"{2000 + year}-01-{day:02}" for year in range(40) for day in range(1, 32)]
    report = added_up([bill_of(f"dlg_{day}", day, None, None, {}, Usage()) for day in days], "day", None)
    assert [item.key for item in report.items] == days


def test_single_delegations_of_one_cost_are_ordered_by_their_tokens_and_then_by_their_ids() -> None:
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    usages = [Usage(cost_usd=1.0, **{kind: 9 - at, "cache_write_1h_tokens": at}) for at, kind in enumerate(kinds)]
    usages += [Usage(cost_usd=1.0), Usage(cost_usd=1.0), Usage(cost_usd=None, input_tokens=99), Usage(cost_usd=2.0)]
    bills = [bill_of(f"dlg_{at}", "2026-11-23", None, None, {}, usage) for at, usage in enumerate(usages)]
    for order in (bills, bills[::-1]):
        items = added_up(order, "delegation", None).items
        assert [item.key for item in items] == [f"dlg_{at}" for at in (7, 0, 1, 2, 3, 4, 5, 6)]
        assert {item.key: item.usage for item in items}["dlg_0"] == usages[0]


def test_single_delegations_take_about_as_long_as_days() -> None:
    """For each one that is left out nothing but its place is computed: this is in the service's process."""
    bills = [bill_of(f"dlg_{at}", "2026-11-23", None, None, {}, Usage(cost_usd=at % 50)) for at in range(10_000)]

    def seconds(by: str) -> float:
        begun = time.thread_time()
        added_up(bills, by, None)
        return time.thread_time() - begun

    assert min(seconds("delegation") for _ in range(3)) < 8 * min(seconds("day") for _ in range(3))


async def test_a_record_that_is_gone_costs_nothing_more() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        await store.accept([(new_id(), request, request.limits)], 0)
        await redis.zadd(INDEX, {new_id(): 0})
        assert (await cost_report(redis, "day", None)).total.delegations == 1


async def test_what_never_began_has_no_model() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t", model="a-table")
        ids = [new_id(), new_id()]
        await store.accept([(id, request, request.limits) for id in ids], 0)
        assert await store.cancel(ids[0]) == "cancelled"
        report = await cost_report(redis, "model", None)
    assert [(item.key, item.delegations) for item in report.items] == [(None, 2)]


async def test_a_delegation_has_its_id_in_the_report_whether_it_has_ended_or_not() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        ids = [new_id(), new_id()]
        await store.accept([(id, request, request.limits) for id in ids], 0)
        assert await store.cancel(ids[0]) == "cancelled"
        report = await cost_report(redis, "delegation", None)
    assert sorted(str(item.key) for item in report.items) == sorted(ids)


async def test_a_report_since_a_moment_leaves_out_what_was_accepted_before() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        days = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
        await store.accept([(first_id(day), request, request.limits) for day in days], 60)
        for day in (days[0], days[2]):
            await store.cancel(first_id(day))
        reports = [await cost_report(redis, "day", day.replace(tzinfo=None)) for day in days]
        assert [report.total.delegations for report in reports] == [4, 3, 2, 1]
