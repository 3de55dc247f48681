"""How delegations are grouped in a report of what they cost."""

from __future__ import annotations

import pytest
from fakeredis import FakeAsyncRedis

from deputize.shared.delegation import Usage
from deputize.shared.ids import new_id
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.cost import Bill, check_group, cost_report, group_keys
from deputize.shared.runs.keys import INDEX
from deputize.shared.runs.store import RunStore

BILL = Bill("2026-11-23", None, "s", {"team": "docs", "kind": "x"}, Usage())


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("day", ["2026-11-23"]),
        ("model", [None]),
        ("session", ["s"]),
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


async def test_a_record_that_is_gone_costs_nothing_more() -> None:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        store, request = RunStore(redis, 60), DelegationRequest(task="t")
        await store.accept([(new_id(), request, request.limits)], 0)
        await redis.zadd(INDEX, {new_id(): 0})
        assert (await cost_report(redis, "day", None)).total.delegations == 1
