"""Webhooks for callers: what a request is refused for, the one of the settings, the list, and sending again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.shared.errors import Conflict, Invalid, NotFound
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.notification import Notification
from deputize.shared.runs.webhook_queue import take
from deputize.shared.settings import Settings
from deputize.shared.webhooks import Webhook
from deputize.shared.wire import now
from tests.orchestrator.access_tokens import one_for_each_scope, secret_of
from tests.orchestrator.access_tokens import serving as serving_tokens
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.runs.receiving import SECRET, later
from tests.runs.tickets import queue_keys

URL = "https://example.org/done"
HOOK = {"url": URL}


@asynccontextmanager
async def serving(redis_url: str, home: Path, **webhook: Any) -> AsyncIterator[Delegations]:
    """A service without workers."""
    settings = Settings.load(environ={}, redis_url=redis_url, home=home, webhook=webhook)
    async with open_service(settings, redis_url) as opened:
        yield opened


def asking(**webhook: Any) -> DelegationRequest:
    return DelegationRequest.model_validate({"task": "t", "webhook": HOOK | webhook})


@pytest.mark.parametrize(
    ("settings", "webhook", "why"),
    [
        ({}, {}, "no default secret is set: set DEPUTIZE_WEBHOOK_SECRETS"),
        ({"secrets": [f"ci={SECRET}"]}, {}, "set DEPUTIZE_WEBHOOK_SECRETS"),
        ({"secrets": [SECRET]}, {"secretName": "ci"}, "no secret is named 'ci': set DEPUTIZE_WEBHOOK_SECRETS"),
        ({"secrets": [SECRET]}, {"url": "http://example.org/"}, "DEPUTIZE_WEBHOOK_HOSTS has to name example.org:80$"),
    ],
)
async def test_what_cannot_be_sent_is_refused_with_what_to_set(
    settings: dict[str, Any], webhook: dict[str, Any], why: str, redis_url: str, tmp_path: Path
) -> None:
    async with serving(redis_url, tmp_path, **settings) as opened:
        with pytest.raises(Invalid, match=why) as refusal:
            await opened.create(asking(**webhook))
        assert [each["pointer"] for each in refusal.value.errors] == ["/webhook"]
        with pytest.raises(Invalid, match="/requests/1/webhook"):
            await opened.create_many([DelegationRequest(task="t"), asking(**webhook)])
        assert (await opened.list()).items == []


async def test_the_webhook_of_the_settings_changes_no_request_and_no_key(redis_url: str, tmp_path: Path) -> None:
    keyed = DelegationRequest(task="t", idempotency_key="k")
    async with serving(redis_url, tmp_path, secrets=[SECRET]) as before:
        first = await before.create(keyed)
    async with serving(redis_url, tmp_path, secrets=[SECRET], url="https://example.org/all") as opened:
        assert (await opened.create(keyed)).replayed
        others = [await opened.create(DelegationRequest(task="t")), await opened.create(asking())]
        for each in (first, *others):
            await opened.cancel(each.delegation.id)
        assert {each.url for each in await opened.webhooks()} == {"https://example.org/all", URL}
        assert (await opened.get(others[0].delegation.id)).request.webhook is None


async def test_a_repeated_task_notifies_the_same_webhook(redis_url: str, tmp_path: Path) -> None:
    async with serving(redis_url, tmp_path, secrets=[SECRET]) as opened:
        first = (await opened.create(asking())).delegation
        await opened.cancel(first.id)
        assert (await opened.retry(first.id)).delegation.request.webhook == first.request.webhook


async def test_notifications_are_listed_and_sent_again(redis_url: str, tmp_path: Path) -> None:
    async with serving(redis_url, tmp_path, secrets=[SECRET]) as opened:
        id = (await opened.create(asking())).delegation.id
        with pytest.raises(Conflict, match="no notifications"):
            await opened.redeliver(id)
        assert await opened.webhooks(id) == []
        await opened.cancel(id)
        (waiting,) = await opened.webhooks()
        assert await opened.webhooks(id) == [waiting]
        assert (waiting.type, waiting.url, waiting.state, waiting.tries) == ("delegation.finished", URL, "pending", 0)
        assert len(await take(opened.store.redis, 1, 1, 1)) == 1
        await later(opened.store)
        await opened.redeliver(id)
        with pytest.raises(NotFound):
            await opened.webhooks("dlg_" + 26 * "0")


@pytest.fixture
async def id(service: FakeService) -> str:
    """A delegation whose receiver was down once."""
    id = (await service.create(asking())).delegation.id
    service.notified[id] = [
        Notification(
            id=f"{id}-2",
            delegation_id=id,
            type="delegation.finished",
            url=URL,
            tries=1,
            error="ConnectError: refused",
            last_try_at=now(),
            next_try_at=now(),
        )
    ]
    return id


async def test_the_command_lists_what_has_not_arrived_and_sends_it_again(
    url: str, service: FakeService, id: str
) -> None:
    listed = await deputize("webhooks", DEPUTIZE_URL=url)
    head, row = listed.out.splitlines()
    assert head.split() == ["delegation", "notification", "state", "tries", "next", "last", "url"]
    for part in (id[-6:], "delegation.finished", "pending", "1", "0.0 s", "ConnectError: refused", URL):
        assert part in row
    again = await deputize("webhooks", "redeliver", id, DEPUTIZE_URL=url)
    assert (again.code, again.out) == (0, f"{id}  will be sent again\n")
    assert service.notified[id][0].tries == 0
    service.notified[id] = [service.notified[id][0].model_copy(update={"state": "delivered"})]
    nothing = await deputize("webhooks", DEPUTIZE_URL=url)
    assert (nothing.code, nothing.out, "all notifications have arrived" in nothing.err) == (0, "", True)
    of_one = await deputize("webhooks", "--delegation", id, "--json", DEPUTIZE_URL=url)
    assert json.loads(of_one.out)["state"] == "delivered"


async def test_a_webhook_is_notified_of_a_delegation_that_never_begins(redis_url: str, tmp_path: Path) -> None:
    async with serving(redis_url, tmp_path, secrets=[SECRET]) as opened:
        made = await opened.try_webhook(Webhook(url=URL, events=["permission.requested"]))
        assert (made.status, made.attempt, made.request.labels) == ("cancelled", 0, {"webhook": "test"})
        assert made.request.model == "scripted"  # a worker that starts it nevertheless spends nothing
        (waiting,) = await opened.webhooks(made.id)
        assert (waiting.type, waiting.url, waiting.state) == ("delegation.finished", URL, "pending")
        assert [await opened.store.redis.llen(key) for key in queue_keys()] == [0] * 10
        with pytest.raises(Invalid, match="TLS"):
            await opened.try_webhook(Webhook(url="http://example.org/"))


@pytest.mark.parametrize(
    ("answer", "code", "out"),
    [
        ({"status": 204, "state": "delivered"}, 0, "✓ delivered: HTTP 204\n"),
        ({"status": 500, "error": "HTTP 500"}, 1, "✗ not delivered: HTTP 500\n"),
        ({"error": "ConnectError: refused"}, 1, "✗ not delivered: ConnectError: refused\n"),
    ],
)
async def test_the_command_prints_what_came_of_a_test(
    url: str, service: FakeService, answer: dict[str, Any], code: int, out: str
) -> None:
    service.first_try = answer
    done = await deputize("webhooks", "test", URL, "--secret-name", "ops", DEPUTIZE_URL=url)
    assert (done.code, done.out) == (code, out)
    (made,) = service.runs.values()
    assert made.request.webhook == Webhook(url=URL, secret_name="ops", events=["delegation.finished"])


async def test_with_a_token_that_may_only_submit_the_id_of_a_test_is_printed(
    service: FakeService, tmp_path: Path
) -> None:
    service.first_try = {"status": 204, "state": "delivered"}
    async with serving_tokens(service, one_for_each_scope(tmp_path)) as http:
        here: dict[str, Any] = {"DEPUTIZE_URL": str(http.base_url), "DEPUTIZE_TOKEN": secret_of("submit")}
        done = await deputize("webhooks", "test", URL, **here)
    (id,) = service.runs
    assert (done.code, done.out) == (0, f"{id}  is notified; a token with the scope read shows its outcome\n")


async def test_a_delegation_without_a_webhook_has_nothing_to_send_again(url: str, service: FakeService) -> None:
    id = (await service.create(DelegationRequest(task="t"))).delegation.id
    refused = await deputize("webhooks", "redeliver", id, DEPUTIZE_URL=url)
    assert (refused.code, "has no webhook" in refused.err) == (2, True)
