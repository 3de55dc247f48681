"""The caps of owners in the tokens file: they hold for new delegations, and soon after a change of the file."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.access_tokens import parse_tokens
from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.owner_caps import caps_by_owner
from deputize.shared.delegation import Progress
from deputize.shared.errors import Misconfigured, SpendCapReached
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import (
    OWNER_CAPS,
    OWNER_WEIGHTS,
    RESERVED_MONEY,
    SPENT_MONEY,
    record_key,
    spend_key,
)
from deputize.shared.runs.spend_report import owner_caps
from deputize.shared.settings import Settings, SpendSettings
from deputize.shared.wire import now
from tests.orchestrator.access_tokens import entry, write
from tests.waiting import until

CAPPED = "spend = {weekly_usd = 5, total_usd = 50}\n"


def using(folder: Path, redis_url: str, *entries: str) -> Settings:
    return Settings(redis_url=redis_url, home=folder, tokens_file=write(folder / "tokens.toml", *entries))


async def spend(redis: Any, counter: str, usd: float, days_ago: int = 0) -> None:
    key = spend_key(f"{now() - timedelta(days=days_ago):%Y-%m-%d}")
    await redis.hset(key, counter, round(usd * 1e9))
    await redis.expire(key, 60)


@pytest.mark.parametrize(("days_ago", "is_refused"), [(0, True), (6, True), (7, False)])
async def test_a_window_moves_on_with_each_day(redis_url: str, tmp_path: Path, days_ago: int, is_refused: bool) -> None:
    async with open_service(using(tmp_path, redis_url, entry("ann", "submit", more=CAPPED)), redis_url) as service:
        await spend(service.store.redis, "@ann", 5, days_ago)
        ann, bob = service.of("ann", is_confined=True), service.of("bob", is_confined=True)
        await bob.create(DelegationRequest(task="t", labels={"owner": "ann"}))
        if not is_refused:
            await ann.create(DelegationRequest(task="t"))
            return
        for labels in ({}, {"team": "another"}):
            with pytest.raises(SpendCapReached, match=r"weekly_usd of the owner ann: \$5.0000 of \$5 in 7 days"):
                await ann.create_many([DelegationRequest(task="t", labels=labels)])


async def test_weights_are_published_and_the_highest_of_an_owner_s_tokens_holds(redis_url: str, tmp_path: Path) -> None:
    own = ("weight = 2\n", "weight = 3\nowner = 'ann'\n", "weight = 0.5\nowner = 'low'\n", "weight = 1\n")
    entries = [entry(name, "submit", more=more) for name, more in zip(("ann", "b", "c", "d"), own, strict=True)]
    async with open_service(using(tmp_path, redis_url, *entries), redis_url) as service:
        assert await service.store.redis.hgetall(OWNER_WEIGHTS) == {"ann": "3.0", "low": "0.5"}


@pytest.mark.parametrize("weight", ["0", "-1", "1001", "inf", "nan", "'2'", "true"])
def test_a_weight_is_a_positive_number(weight: str) -> None:
    with pytest.raises(Misconfigured, match="line 5: weight:"):
        parse_tokens(entry("ann", "submit", more=f"weight = {weight}\n").encode(), Path("tokens.toml"))


@pytest.mark.parametrize(
    ("caps", "is_refused"),
    [
        ("weekly_usd = 5", False),
        ("weekly_usd = 0", True),
        ("total_usd = 5", True),
        ("daily_usd = 9, total_usd = 5", True),
    ],
)
async def test_what_waits_at_a_cap_is_accepted_where_its_window_moves_on(
    redis_url: str, tmp_path: Path, caps: str, is_refused: bool
) -> None:
    settings = using(tmp_path, redis_url, entry("ann", "submit", more=f"spend = {{{caps}}}\n"))
    async with open_service(settings, redis_url) as service:
        await spend(service.store.redis, "@ann", 5)
        await service.store.redis.hset(SPENT_MONEY, "@ann", 5 * 10**9)
        request = DelegationRequest(task="t", on_cap="wait")
        with pytest.raises(SpendCapReached) if is_refused else nullcontext():
            await service.of("ann").create(request)


async def test_a_cap_on_all_time_ends_with_no_day(redis_url: str, tmp_path: Path) -> None:
    async with open_service(using(tmp_path, redis_url, entry("ann", "submit", more=CAPPED)), redis_url) as service:
        await service.store.redis.hset(SPENT_MONEY, "@ann", 50 * 10**9)
        with pytest.raises(SpendCapReached, match=r"total_usd .* in all is spent; .* before it is raised"):
            await service.of("ann").create(DelegationRequest(task="t"))


@pytest.mark.parametrize("name", ["daily_usd", "weekly_usd", "total_usd"])
async def test_at_a_cap_of_zero_nothing_starts_until_it_is_raised(redis_url: str, tmp_path: Path, name: str) -> None:
    entries = entry("ann", "submit", more=f"spend = {{{name} = 0}}\n")
    async with open_service(using(tmp_path, redis_url, entries), redis_url) as service:
        with pytest.raises(
            SpendCapReached, match=f"^{name} .*: it is \\$0, so nothing starts before it is raised"
        ) as refused:
            await service.of("ann").create(DelegationRequest(task="t"))
        assert "midnight" not in str(refused.value)


async def test_a_changed_file_is_published_and_a_wrong_one_changes_nothing(redis_url: str, tmp_path: Path) -> None:
    settings = using(tmp_path, redis_url, entry("ann", "submit", more=CAPPED))
    async with open_service(settings, redis_url) as service:
        redis = service.store.redis
        assert [(cap.name, cap.days, cap.usd) for cap in await owner_caps(redis)] == [
            ("weekly_usd of the owner ann", 7, 5),
            ("total_usd of the owner ann", 0, 50),
        ]
        write(tmp_path / "tokens.toml", entry("ann", "submit", more="spend = {weekly_usd = -1}\n"))

        async def is_lowered() -> bool:
            return [cap.usd for cap in await owner_caps(redis, "ann")] == [1]

        write(tmp_path / "tokens.toml", entry("ann", "submit", more="spend = {daily_usd = 1}\n"))
        await until(is_lowered)
    write(tmp_path / "tokens.toml", "nonsense")
    async with open_service(settings, redis_url) as service:
        assert await service.store.redis.hkeys(OWNER_CAPS) == ["ann"]
    write(tmp_path / "tokens.toml", entry("bob", "submit"))  # the last token of Ann is removed, her delegations are not
    async with open_service(settings, redis_url) as service:
        assert [cap.usd for cap in await owner_caps(service.store.redis)] == [1]
    write(tmp_path / "tokens.toml", entry("ann", "submit"))
    async with open_service(settings, redis_url) as service:
        assert await owner_caps(service.store.redis) == []


def test_of_several_tokens_of_an_owner_the_lowest_cap_of_each_window_holds() -> None:
    text = "\n".join(
        [
            entry("a", "submit", more='owner = "team"\nspend = {daily_usd = 3, weekly_usd = 5}\n'),
            entry("b", "submit", more='owner = "team"\nspend = {daily_usd = 2, total_usd = 9}\n'),
            entry("team", "submit", more="spend = {weekly_usd = 8}\n"),
            entry("c", "submit"),
        ]
    )
    caps = caps_by_owner(parse_tokens(text.encode(), Path("tokens.toml")))
    assert {owner: {(cap.days, cap.usd) for cap in own} for owner, own in caps.items()} == {
        "team": {(1, 2), (7, 5), (0, 9)},
        "c": set(),
    }
    assert {cap.counter for cap in caps["team"]} == {"@team"}


@pytest.mark.parametrize("spend", ["{daily_usd = -1}", "{hourly_usd = 1}", "{daily_usd = inf}", "5"])
def test_a_wrong_cap_is_refused_with_its_line(spend: str) -> None:
    with pytest.raises(Misconfigured, match="line 5: spend"):
        parse_tokens(entry("ann", "submit", more=f"spend = {spend}\n").encode(), Path("tokens.toml"))


async def test_a_report_has_the_use_of_each_cap_and_a_forecast_of_what_runs(redis_url: str, tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens.toml", entry("ann", "read", more=CAPPED), entry("bob", "read"))
    per_label: Any = {"team": 3, "kind:x": {"weekly_usd": 2}, "unseen": 1}
    spending = SpendSettings(daily_usd=20, per_label=per_label)
    settings = Settings(redis_url=redis_url, home=tmp_path, tokens_file=tokens, spend=spending)
    async with open_service(settings, redis_url) as service:
        redis, ann = service.store.redis, service.of("ann", is_confined=True)
        for counter in ("*", "@ann", "team:docs"):
            await spend(redis, counter, 2, days_ago=1)
            await spend(redis, counter, 1)
        await redis.hset(RESERVED_MONEY, "@ann", 10**9 // 2)
        root = await running(ann, 0.5, turn=2, limits=Limits(max_turns=10))
        below = await running(ann, 0.1, turn=1, limits=Limits(max_turns=10, max_cost_usd=0.3))
        await running(service, 0.2, turn=2, limits=Limits(max_turns=4, max_cost_usd=0.25))
        await running(service, None, turn=2)
        await redis.hset(record_key(below), "path", root)
        report = await service.cost()
        assert {(cap.name, cap.days, cap.spent_usd, cap.reserved_usd, cap.left_usd) for cap in report.caps} == {
            ("spend.daily_usd", 1, 1, 0, 19),
            ("spend.per_label team daily_usd", 1, 1, 0, 2),
            ("spend.per_label kind:x weekly_usd", 7, 0, 0, 2),
            ("weekly_usd of the owner ann", 7, 3, 0.5, 1.5),
            ("total_usd of the owner ann", None, 0, 0.5, 49.5),
        }
        # Half of 0.6 a turn, and eight turns are left; the other one is bounded by its limit.
        assert [(each.spent_usd, each.forecast_usd) for each in report.forecasts] == [(0.6, 3.0), (0.2, 0.25)]
        own = await ann.cost()
        assert {cap.name.partition(" ")[2] for cap in own.caps} == {"of the owner ann"}
        assert [each.delegation_id for each in own.forecasts] == [root]
        assert (await service.of("bob", is_confined=True).cost()).caps == []
        await redis.delete(RESERVED_MONEY)


async def running(service: Delegations, usd: float | None, turn: int, limits: Limits | None = None) -> str:
    """A delegation that has come so far, by its record."""
    id = (await service.create(DelegationRequest(task="t", limits=limits or Limits()))).delegation.id
    await service.store.redis.hset(record_key(id), "progress", Progress(turn=turn, cost_usd=usd).to_json())
    return id
