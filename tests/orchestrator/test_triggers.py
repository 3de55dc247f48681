"""Triggers: what a signed delivery begins, that it begins it once, and what begins nothing."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deputize.orchestrator.delegations import Delegations, open_service
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.serving import served, settings

SECRET = "0123456789-of-the-hook"
ISSUE = {
    "action": "labeled",
    "sender": {"login": "alice"},
    "issue": {"number": 7, "title": "It fails", "body": "With {/issue/title} and {{task}}"},
    "repository": {"full_name": "acme/site"},
}
FIX = {
    "scheme": "github",
    "owner": "ci",
    "author": "/sender/login",
    "allowed": ["alice"],
    "when": {"/action": ["labeled", "opened"]},
    "task": "Fix issue {/issue/number} of {/repository/full_name}",
    "context": "{/issue/title}\n\n{/issue/body}",
    "key": "{/repository/full_name}#{/issue/number}",
    "request": {"labels": {"team": "web"}, "limits": {"maxTurns": 5}},
}


@dataclass
class Receiver:
    """A service with triggers, without workers."""

    http: httpx2.AsyncClient
    service: Delegations

    async def send(self, trigger: str, body: bytes, headers: Mapping[str, str] | list[tuple[str, str]]) -> Any:
        return await self.http.post(f"/v1/triggers/{trigger}", content=body, headers=headers)

    async def github(self, body: Any, id: str = "d-1", trigger: str = "fix", secret: str = SECRET) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send(trigger, content, signed(content, id, secret))

    async def all(self) -> int:
        return (await self.service.counts()).queued


def signed(content: bytes, id: str = "d-1", secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), content, sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": id, "Content-Type": "application/json"}


def secret_file(folder: Path, *lines: str) -> Path:
    path = folder / f"secret-{len([*folder.iterdir()])}"
    path.write_text("\n".join(lines), "utf-8")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def receiving(redis_url: str, home: Path, **triggers: Mapping[str, Any]) -> AsyncIterator[Receiver]:
    using = settings(redis_url=redis_url, home=home, triggers=triggers)
    async with (
        open_service(using, redis_url) as service,
        served(service, using) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=10) as http,
    ):
        yield Receiver(http, service)


@pytest.fixture
async def receiver(redis_url: str, tmp_path: Path) -> AsyncIterator[Receiver]:
    fix = {**FIX, "secret_file": secret_file(tmp_path, "an older secret of it", SECRET)}
    other = {**FIX, "secret_file": secret_file(tmp_path, "the secret of another"), "owner": ""}
    nobody = {**fix, "allowed": []}
    async with receiving(redis_url, tmp_path / "home", fix=fix, other=other, nobody=nobody) as opened:
        yield opened


async def test_a_delivery_starts_a_delegation_once(receiver: Receiver) -> None:
    first = await receiver.github(ISSUE)
    again = await receiver.github(ISSUE)
    assert (first.status_code, again.status_code) == (202, 200), first.text
    id = first.json()["delegationId"]
    assert again.json() == {**first.json(), "replayed": True}
    assert first.json() == {"outcome": "started", "delegationId": id, "replayed": False, "reason": None}
    made = await receiver.service.get(id)
    assert (made.request.task, made.owner) == ("Fix issue 7 of acme/site", "ci")
    assert made.request.context == "It fails\n\nWith {/issue/title} and {{task}}"
    assert made.request.limits.max_turns == 5
    assert made.request.labels == {"team": "web", "trigger": "fix", "trigger.key": "acme/site#7"}
    entry = (await receiver.service.audit()).items[0]
    assert (entry.token, entry.route, entry.delegation_ids) == ("trigger:fix", "/v1/triggers/{name}", [id])
    assert await receiver.all() == 1
