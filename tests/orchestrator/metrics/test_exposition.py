"""What /metrics reports: totals, the state of the fleet, and both in a form that Prometheus reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from fakeredis import FakeAsyncRedis
from prometheus_client.parser import text_string_to_metric_families

from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.metrics import exposition as module
from deputize.orchestrator.metrics.exposition import SURVEYED, exposition
from deputize.shared.connection import connect
from deputize.shared.errors import Unavailable
from deputize.shared.fleet import Fleet
from deputize.shared.ids import new_id
from deputize.shared.metrics import FIRST_TOKEN, TOKENS, TOOL, Metric
from deputize.shared.request import DelegationRequest, RetryReason
from deputize.shared.runs.keys import LEASES, METRICS, PENDING, WEBHOOKS, record_key
from deputize.shared.runs.store import RunStore
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.access_tokens import MAIN, bearer, one_for_each_scope
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.serving import served, settings
from tests.runs.totals import Reported, parsed, reported


@pytest.fixture
async def redis() -> AsyncIterator[FakeAsyncRedis]:
    async with FakeAsyncRedis(decode_responses=True) as redis:
        yield redis


async def add(redis: Any, counts: Mapping[str, int]) -> None:
    for field, amount in counts.items():
        await redis.hincrby(METRICS, field, amount)


def named(found: Reported, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for (each, *labels), value in found.items() if each == name for labels in [tuple(labels)]}


async def test_before_anything_has_happened_the_totals_are_0_and_no_value_is_missing(redis: FakeAsyncRedis) -> None:
    text = await exposition(redis, Fleet(redis))
    found = parsed(text)
    families = [family.name for family in text_string_to_metric_families(text)]
    metrics = [each for each in vars(module).values() if isinstance(each, Metric)]
    assert len({*families}) == len(families) > len(metrics) > 10
    assert {*found.values()} == {0}
    for name in ("delegations_accepted_total", "leases_lost_total", "turns_total", "queue_depth", "workers"):
        assert (f"deputize_{name}",) in found
    assert ("deputize_delegations_finished_total", "worker_lost", "failed") in found
    assert ("deputize_delegations_waiting", "permission") in found
    assert {("deputize_run_retries_total", reason) for reason in get_args(RetryReason)} <= {*found}


async def test_amounts_have_the_units_of_their_names(redis: FakeAsyncRedis) -> None:
    await add(redis, {'["deputize_cost_usd_total","claude"]': 1_234_500, TOKENS.field("claude", "input"): 10**13})
    await add(redis, FIRST_TOKEN.observed(0.3, "claude"))
    found = await reported(redis)
    assert found["deputize_cost_usd_total", "claude"] == 1.2345
    assert found["deputize_tokens_total", "input", "claude"] == 1e13
    assert found["deputize_first_token_seconds_sum", "claude"] == 0.3


async def test_a_bucket_counts_what_smaller_ones_do(redis: FakeAsyncRedis) -> None:
    for seconds in (0.001, 0.01, 0.0101, 5, 5, 1000):
        await add(redis, TOOL.observed(seconds, "bash", "completed"))
    await add(redis, TOOL.observed(0.5, "glob", "failed"))
    found = await reported(redis)
    buckets = {labels[0]: value for labels, value in named(found, f"{TOOL.name}_bucket").items() if "bash" in labels}
    assert buckets == {"0.01": 2, "0.1": 3, "1": 3, "10": 5, "60": 5, "600": 5, "+Inf": 6}
    assert named(found, f"{TOOL.name}_count") == {("completed", "bash"): 6, ("failed", "glob"): 1}
    assert found[f"{TOOL.name}_sum", "completed", "bash"] == 1010.021


async def test_a_label_may_have_any_characters(redis: FakeAsyncRedis) -> None:
    odd = 'mcp:a "b"\\n\n{c="d",} ü'
    await add(redis, TOOL.observed(1, odd, "completed"))
    assert (await reported(redis))[f"{TOOL.name}_count", "completed", odd] == 1


async def test_totals_of_another_version_are_left_out(redis: FakeAsyncRedis) -> None:
    await add(redis, {'["deputize_later_total"]': 3, '["deputize_turns_total"]': 2})
    found = await reported(redis)
    assert found["deputize_turns_total",] == 2
    assert ("deputize_later_total",) not in found


async def test_the_state_is_that_of_all_unfinished_delegations(redis: FakeAsyncRedis) -> None:
    store = RunStore(redis, 60)
    fields: list[dict[Any, Any]] = [
        *({"status": "running"},) * 3,
        *({"status": "waiting", "why": why} for why in ("permission", "permission", "rate", "later")),
        {"status": "queued", "after": "dlg_x", "queued_at": "1"},
        {"status": "queued", "paused": "1", "queued_at": "1"},
        {"status": "succeeded"},
        {"status": "queued"},
    ]
    request = DelegationRequest(task="do it")
    accepted = await store.accept([(new_id(), request, request.limits) for _ in fields], 30)
    for each, changed in zip(accepted, fields, strict=True):
        await redis.hset(record_key(each.id), mapping=changed)
    await redis.zadd(LEASES, {"dlg_gone": 1})
    await redis.hset(PENDING, "prm_1", "dlg_1")
    await redis.zadd(WEBHOOKS, {"dlg_1-2": 1, "dlg_1-3": 1})
    found = await reported(redis)
    assert 0 <= found.pop(("deputize_queue_oldest_seconds",)) < 30
    assert {key: value for key, value in found.items() if value and not key[0].endswith("_total")} == {
        ("deputize_delegations_running",): 3,
        ("deputize_delegations_waiting", "permission"): 2,
        ("deputize_delegations_waiting", "rate"): 1,
        ("deputize_delegations_waiting", "later"): 1,
        ("deputize_delegations_held", "after"): 1,
        ("deputize_delegations_held", "paused"): 1,
        ("deputize_queue_depth",): 1,
        ("deputize_permissions_pending",): 1,
        ("deputize_webhooks_undelivered",): 2,
    }
    await redis.hincrby(record_key(accepted[-1].id), "queued_at", -90_000)
    assert 90 <= (await reported(redis))["deputize_queue_oldest_seconds",] < 120


async def test_it_counts_all_of_many(redis_url: str) -> None:
    request = DelegationRequest(task="do it")
    async with connect(redis_url) as redis:
        await RunStore(redis, 60).accept([(new_id(), request, request.limits) for _ in range(SURVEYED + 1)], 30)
        assert (await reported(redis))["deputize_queue_depth",] == SURVEYED + 1


async def test_each_worker_announces_its_load_and_its_lag(redis: FakeAsyncRedis) -> None:
    fleet = Fleet(redis)
    await fleet.announce(worker_card(name="a@h", running=2, concurrency=8, loop_lag_seconds=0.25, sandbox=None), [])
    await fleet.announce(worker_card(name="b@h", running=0, concurrency=8, sandbox="no user namespaces"), [])
    found = await reported(redis)
    assert found["deputize_workers",] == 2
    assert named(found, "deputize_worker_running") == {("a@h",): 2, ("b@h",): 0}
    assert named(found, "deputize_worker_slots") == {("a@h",): 8, ("b@h",): 8}
    assert named(found, "deputize_worker_sandbox") == {("a@h",): 1, ("b@h",): 0}
    assert named(found, "deputize_worker_loop_lag_seconds") == {("a@h",): 0.25, ("b@h",): 0}


async def test_every_process_of_the_service_answers_the_same_with_a_token_for_it(
    redis_url: str, tmp_path: Path
) -> None:
    using = settings(redis_url=redis_url, token=MAIN, no_token=False, tokens_file=one_for_each_scope(tmp_path))
    async with (
        served(lambda: open_service(using, redis_url), using) as first,
        served(lambda: open_service(using, redis_url), using) as second,
        httpx2.AsyncClient(verify=PLAIN_HTTP, timeout=10) as http,
    ):
        sent = await http.post(f"{first}/v1/delegations", json={"task": "do it"}, headers=bearer("submit"))
        assert sent.status_code == 202
        answers = [await http.get(f"{url}/metrics", headers=bearer("metrics")) for url in (first, second)]
        refused = await http.get(f"{first}/metrics", headers=bearer("read"))
        nothing_else = await http.get(f"{first}/v1/delegations", headers=bearer("metrics"))
    assert (refused.status_code, nothing_else.status_code) == (403, 403)
    assert {answer.headers["content-type"] for answer in answers} == {"text/plain; version=0.0.4; charset=utf-8"}
    ones, others = (parsed(answer.text) for answer in answers)
    assert ones.pop(("deputize_queue_oldest_seconds",)) <= others.pop(("deputize_queue_oldest_seconds",))
    assert ones == others
    assert (ones["deputize_delegations_accepted_total",], ones["deputize_queue_depth",]) == (1, 1)


async def test_while_redis_is_away_the_scrape_fails(http: httpx2.AsyncClient, service: FakeService) -> None:
    service.away = Unavailable("Redis does not answer")
    assert (await http.get("/metrics")).status_code == 503
