"""What may not start any more, because the day's cap on spending is reached."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.orchestrator.cli.errors import Exit, exit_code_of_error
from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.problems import response_to
from deputize.shared.errors import SpendCapReached
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import spend_key
from deputize.shared.settings import Settings, SpendSettings
from deputize.shared.settings.fields import WebhookSettings
from deputize.shared.webhooks import Webhook
from deputize.shared.wire import now
from tests.runs.receiving import SECRET


@pytest.fixture
async def service(redis_url: str, tmp_path: Path) -> AsyncIterator[Delegations]:
    spend = SpendSettings.model_validate({"daily_usd": 20, "per_label": {"team:docs": 5}})
    webhook = WebhookSettings.model_validate({"secrets": [SECRET]})
    settings = Settings(redis_url=redis_url, home=tmp_path, spend=spend, webhook=webhook)
    async with open_service(settings, redis_url) as service:
        yield service


async def spent(service: Delegations, counter: str, usd: float) -> None:
    day = spend_key(f"{now():%Y-%m-%d}")
    await service.store.redis.hset(day, counter, round(usd * 1e9))
    await service.store.redis.expire(day, 60)


async def test_over_the_days_cap_nothing_is_accepted(service: Delegations) -> None:
    before = await service.create(DelegationRequest(task="do it", idempotency_key="k"))
    await spent(service, "*", 19.99)
    await service.create(DelegationRequest(task="do it"))
    await spent(service, "*", 20)
    for verb in (service.create(DelegationRequest(task="do it")), service.create_many([DelegationRequest(task="x")])):
        with pytest.raises(SpendCapReached, match=r"spend.daily_usd: \$20.0000 of \$20 a day is spent"):
            await verb
    again = await service.create(DelegationRequest(task="do it", idempotency_key="k"))
    assert (again.replayed, again.delegation.id) == (True, before.delegation.id)
    assert len((await service.list()).items) == 2
    assert (await service.try_webhook(Webhook(url="https://example.org/"))).status == "cancelled"  # it spends nothing


async def test_over_a_labels_cap_that_label_is_refused_and_others_are_not(service: Delegations) -> None:
    await spent(service, "team:docs", 5.5)
    with pytest.raises(SpendCapReached, match=r"spend.per_label team:docs daily_usd: \$5.5000 of \$5 a day"):
        await service.create(DelegationRequest(task="do it", labels={"team": "docs"}))
    await service.create(DelegationRequest(task="do it", labels={"team": "shop"}))


def test_a_reached_cap_is_a_429_with_retry_after_and_exit_code_5() -> None:
    error = SpendCapReached("spend.daily_usd: …")
    answer = response_to(error)
    assert (answer.status_code, json.loads(bytes(answer.body))["type"]) == (429, "urn:deputize:spend-cap-reached")
    assert 0 < int(answer.headers["retry-after"]) <= 24 * 3600
    assert exit_code_of_error(error) is Exit.LIMIT
