"""From the version that landed last to this one, in both orders: no delegation is lost, and no effect is doubled."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.client import Client
from deputize.shared.checks import CommandCheck
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.events import PermissionAnswered, PermissionRequested
from deputize.shared.permission import PermissionOutcome
from deputize.shared.request import After, ApprovalMode, DelegationRequest
from deputize.shared.webhooks import Webhook
from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet, open_fleet
from tests.runs.receiving import SECRET, receiving
from tests.system.crashing import Counting, check, effects
from tests.system.older_version import Versions, both_versions, older_tree
from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SETTINGS = {"lease_seconds": 2, "shutdown_seconds": 1, "claim_seconds": 3, "permission_timeout_seconds": 100}
WRITE = call("write_file", path="a.txt", content="x\n")
TOKEN = "a-token-of-both-versions"
CHECK = CommandCheck(kind="command", run="grep x a.txt")
SLOW = 0.4
"""Seconds before each turn of what is under way while the fleet is upgraded."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return older_tree(tmp_path_factory.mktemp("older"))


@dataclass
class Upgrade:
    """What was submitted while a fleet was upgraded."""

    fleet: Fleet
    versions: Versions
    counting: Counting
    folder: Path
    url: str
    """Of the service that answers now."""
    ids: dict[str, str] = field(default_factory=dict[str, str])

    async def submit(self, name: str, **fields: Any) -> str:
        async with Client(self.url, TOKEN) as client:
            return (await client.create(DelegationRequest(task=name, **fields))).delegation.id

    async def begin(self, moment: str) -> None:
        """Submits what has effects, something with a check, one that waits for another, and one that asks a person."""
        name = f"effects-{moment}"
        self.ids[name] = await self.submit(name, model=effects(self.folder, self.counting, name, SLOW), tools=["*"])
        writes = script(self.folder, [WRITE], [say("done")])
        checked = await self.submit(f"checked-{moment}", model=writes, verify=[CHECK])
        self.ids[f"checked-{moment}"] = checked
        self.ids[f"then-{moment}"] = await self.submit(f"then-{moment}", model=writes, after=[After(id=checked)])
        asks = await self.submit(f"asks-{moment}", model=writes, approval_mode=ApprovalMode.ASK)
        self.ids[f"asks-{moment}"] = asks

    async def answer(self, moment: str) -> None:
        """Answers the question of the delegation of that moment, as soon as it is there."""
        id = self.ids[f"asks-{moment}"]
        await self.fleet.until_event(id, "waiting")
        async with Client(self.url, TOKEN) as client:
            (asked,) = await client.permissions(id)
            await client.answer_permission(asked.permission_id, PermissionOutcome.PROCEED_ONCE)

    async def use(self, service: str, instead_of: str) -> None:
        """Goes over to a service of this version."""
        self.url = await self.versions.service("newer", service)
        await self.versions.stop(instead_of)

    async def wrong(self) -> list[str]:
        """Waits for the end of all delegations; returns what is wrong with them."""
        found: list[str] = []
        for name, id in self.ids.items():
            result = await self.fleet.result(id)
            if name.startswith("effects"):
                wrong = await check(self.fleet, self.counting, result, name)
            else:
                wrong = [] if result.termination_reason == "completed" else [f"{result}"]
                wrong += await self._answers(name, result)
            found += [f"{name}: {each}" for each in wrong]
        return found

    async def _answers(self, name: str, result: ToolAgentResult) -> list[str]:
        events = [each.event for each in await self.fleet.service.events(result.delegation_id)]
        asked, answered = (
            [each.permission_id for each in events if isinstance(each, kind)]
            for kind in (PermissionRequested, PermissionAnswered)
        )
        expected = 1 if name.startswith("asks") else 0
        is_right = asked == answered and len(asked) == expected and result.files_modified == ["a.txt"]
        return [] if is_right else [f"asked {asked}, answered {answered}, changed {result.files_modified}"]


def variables(redis_url: str, folder: Path) -> dict[str, str]:
    """The settings of both versions."""
    return {
        "DEPUTIZE_CONFIG": "/dev/null",
        "DEPUTIZE_REDIS_URL": redis_url,
        "DEPUTIZE_TOKEN": TOKEN,
        "DEPUTIZE_HOME": str(folder / "home"),
        "DEPUTIZE_MODEL": "scripted",
        "DEPUTIZE_SCRIPTS": tempfile.gettempdir(),
        **{f"DEPUTIZE_{name.upper()}": str(value) for name, value in SETTINGS.items()},
    }


@asynccontextmanager
async def upgrade(redis_url: str, older: Path, folder: Path) -> AsyncGenerator[Upgrade]:
    """A service and a worker of the older version, with work under way."""
    async with open_fleet(redis_url, folder / "home", **SETTINGS) as fleet, Counting.open() as counting:
        with both_versions(older, variables(redis_url, folder), folder) as versions:
            service, worker = versions.service("older", "older-service"), versions.worker("older", "older-worker")
            url, _ = await asyncio.gather(service, worker)
            begun = Upgrade(fleet, versions, counting, folder, url)
            await begun.begin("before")
            await fleet.until_event(begun.ids["asks-before"], "waiting")
            await fleet.until_event(begun.ids["effects-before"], "step_completed")
            yield begun


@pytest.mark.costly
async def test_the_service_is_upgraded_first(redis_url: str, older: Path, tmp_path: Path) -> None:
    async with upgrade(redis_url, older, tmp_path) as upgrading:
        await upgrading.use("newer-service", instead_of="older-service")
        await upgrading.begin("beside-the-older")
        await upgrading.versions.stop("older-worker")
        await upgrading.answer("before")
        await upgrading.begin("without-a-worker")
        await upgrading.versions.worker("newer", "newer-worker")
        await upgrading.answer("beside-the-older")
        await upgrading.answer("without-a-worker")
        assert await upgrading.wrong() == []


@pytest.mark.costly
async def test_the_workers_are_upgraded_first(redis_url: str, older: Path, tmp_path: Path) -> None:
    async with upgrade(redis_url, older, tmp_path) as upgrading:
        await upgrading.versions.worker("newer", "newer-worker")
        await upgrading.begin("beside-both")
        await upgrading.versions.kill("older-worker")
        await upgrading.answer("before")
        await upgrading.begin("beside-the-newer")
        await upgrading.use("newer-service", instead_of="older-service")
        await upgrading.answer("beside-both")
        await upgrading.answer("beside-the-newer")
        assert await upgrading.wrong() == []


async def test_an_older_worker_leaves_a_notice_of_a_kind_that_it_does_not_know(
    redis_url: str, older: Path, tmp_path: Path
) -> None:
    async with receiving() as receiver, open_fleet(redis_url, tmp_path / "home", **receiver.settings) as fleet:
        own = {"DEPUTIZE_WEBHOOK_SECRETS": SECRET, "DEPUTIZE_WEBHOOK_HOSTS": receiver.host}
        with both_versions(older, {**variables(redis_url, tmp_path), **own}, tmp_path) as versions:
            await versions.worker("older", "older-worker")
            hook = Webhook(url=receiver.url)
            await fleet.service.notify(DelegationRequest(task="x", webhook=hook), "schedule.paused", "It is paused")
            await fleet.service.try_webhook(hook)
            await until(lambda: receiver.received or versions.running["older-worker"].poll())
            assert [each.content["type"] for each in receiver.received] == ["delegation.finished"]
            await versions.worker("newer", "newer-worker")
            await until(lambda: len(receiver.received) > 1)
            assert receiver.received[1].content["data"]["text"] == "It is paused"
            assert versions.running["older-worker"].poll() is None
