"""The delegations of a storm, in waves: each must end well, with its effects once, and be its tenant's alone."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import redis

from deputize.orchestrator.client import Client
from deputize.shared.errors import NotFound, Unavailable
from deputize.shared.metrics import STORE_LOSSES
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import METRICS
from tests.processes.leaks import endless_keys, wrongly_waiting
from tests.runs.bench import call, say, script
from tests.runs.totals import check_totals
from tests.system.crashing import check, effects
from tests.system.storm.faults import Antagonist
from tests.system.storm.stage import TENANTS, Stage
from tests.waiting import until

HOSTILE = [[call("bash", command="head -c 2G /dev/zero > big; sleep 1")]] * 60
"""The turns of a delegation that fills its disk again and again. It is beside the others, and cancelled at the end."""
LONGEST_DELAY = 0.4
"""Seconds before each turn."""
END_SECONDS = 240
PRUNES, PRUNE_SECONDS = 4, 15


@dataclass
class Wave:
    """Delegations that are handed over within so many seconds."""

    stage: Stage
    name: str
    number: int
    seconds: float
    is_hostile: bool = True
    refused: int = 0
    wrong: list[str] = field(default_factory=list[str])
    attempts: list[int] = field(default_factory=list[int])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    tenants: dict[str, str] = field(default_factory=dict[str, str])

    async def pass_over(self, antagonists: list[Antagonist]) -> None:
        """Returns when all have ended, and the fleet is at rest."""
        calm = asyncio.Event()
        raging = [asyncio.create_task(each.rage(self.stage, calm)) for each in antagonists]
        try:
            beside = await self._hand_over_hostile() if self.is_hostile else None
            begun = time.monotonic()
            await self._hand_over()
            judging = asyncio.gather(*(self._judge(name) for name in self.ids))
            await asyncio.wait([judging], timeout=max(0, begun + self.seconds - time.monotonic()))
            calm.set()
            await asyncio.gather(*raging)
            await judging
            if beside:
                await until(partial(self._cancelled, beside))
        finally:
            calm.set()
            await asyncio.gather(*raging, return_exceptions=True)
        await self._rest()

    async def _hand_over_hostile(self) -> str:
        model = script(self.stage.folder, *HOSTILE, [say("done")])
        request = DelegationRequest(task="harm", model=model, tools=["bash"], idempotency_key=f"{self.name}-harm")
        return await until(partial(_accepted, self.stage.fleet.service.create, request))

    async def _hand_over(self) -> None:
        """Over two thirds of the time, so that whatever falls falls on work under way."""
        chance = random.Random(self.name)
        for number in range(self.number):
            name, tenant = f"{self.name}-{number}", chance.choice(TENANTS)
            model = effects(self.stage.folder, self.stage.counting, name, chance.uniform(0, LONGEST_DELAY))
            request = DelegationRequest(task=name, model=model, tools=["*"], idempotency_key=name)
            clients = self.stage.clients[tenant]
            self.ids[name] = await until(partial(self._asked, clients, request, chance))
            self.tenants[name] = tenant
            await asyncio.sleep(self.seconds * 2 / 3 / self.number)

    async def _asked(self, clients: list[Client], request: DelegationRequest, chance: random.Random) -> str | None:
        found = await _accepted(chance.choice(clients).create, request)
        self.refused += found is None
        return found

    async def _judge(self, name: str) -> None:
        """A failover may take back an end that no replica had, and the run ends once more: it is judged again then."""
        id, fleet, found = self.ids[name], self.stage.fleet, list[str]()
        result = again = None
        try:
            while again is None or again != result:
                await until(partial(self._has_ended, id), self.seconds + END_SECONDS)
                if result := (await _answered(fleet.service.get, id)).result:
                    found = await _answered(check, fleet, self.stage.counting, result, name)
                    again = (await _answered(fleet.service.get, id)).result
        except NotFound:
            self.wrong.append(f"{name}: {id} was accepted and is lost")
        except AssertionError:
            self.wrong.append(f"{name}: {id} does not end: {(await fleet.service.get(id)).status}")
        else:
            self.attempts.append(again.attempts)
            self.wrong += [f"{name}: {id}: {each}" for each in found]

    async def _has_ended(self, id: str) -> bool:
        try:
            return (await self.stage.fleet.service.get(id)).status.finished
        except Unavailable:
            return False

    async def _cancelled(self, id: str) -> bool:
        try:
            await self.stage.fleet.service.cancel(id)
        except Unavailable:
            return False
        return await self._has_ended(id)

    async def _rest(self) -> None:
        """Looks at what the wave leaves, then removes it."""
        stage, client = self.stage, self.stage.servers.primary.client
        stage.set_clock(0)
        await until(lambda: abs(client.time()[0] - time.time()) < 2)
        await stage.all_answer()
        await self._check_tenants()
        try:
            await check_totals(stage.fleet.service.store.redis)
        except AssertionError as error:
            self.wrong.append(f"the totals are others than those of the events: {error}")
        if lost := await stage.fleet.service.store.redis.hget(METRICS, STORE_LOSSES.field("acknowledgement")):
            self.wrong.append(f"{lost} losses of acknowledged writes, though the one replica took over")
        self.wrong, stage.wrong = self.wrong + stage.wrong, []
        self.wrong += [f"a key without an end: {key}" for key in endless_keys(client)]
        self.wrong += [f"in the queue, and not to be started: {id}" for id in wrongly_waiting(client)]
        await self._remove()
        for path in Path(stage.folder).glob("script-*.json"):
            path.unlink()
        client.bgrewriteaof()

    async def _remove(self) -> None:
        """Asks more than once: files that a fenced attempt still used are kept the first time.

        Those of a delegation that a failover took before it was accepted stay for an hour: its record may be elsewhere.
        """
        fleet = self.stage.fleet
        for _ in range(PRUNES):
            await fleet.service.prune(older_than=0)
            with suppress(AssertionError):
                await until(lambda: not self._folders(), PRUNE_SECONDS)
                break
        else:
            self.wrong.append(f"files are left: {self._folders()}")
        for folder in fleet.settings.workspaces.glob("dlg_*"):
            shutil.rmtree(folder, ignore_errors=True)
        await fleet.service.store.redis.delete(METRICS)

    def _folders(self) -> list[str]:
        """Those of delegations that were accepted."""
        there = {path.name for path in self.stage.fleet.settings.workspaces.glob("dlg_*")}
        return sorted(there & {*self.ids.values()})

    async def _check_tenants(self) -> None:
        """Each tenant has its own delegations, and those of the other one do not exist for it."""
        for tenant, (client, *_) in self.stage.clients.items():
            own = {id for name, id in self.ids.items() if self.tenants[name] == tenant}
            async with aclosing(_listed(client)) as listed:
                seen = {id async for id in listed}
            if seen != own:
                self.wrong.append(f"{tenant} has {len(own)} delegations and sees others: {seen ^ own}")
            for id in sorted({*self.ids.values()} - own)[:1]:
                try:
                    await client.get(id)
                except NotFound:
                    continue
                self.wrong.append(f"{tenant} can read {id}, which is another tenant's")


async def _listed(client: Client) -> AsyncGenerator[str]:
    cursor: str | None = None
    while True:
        page = await client.list(limit=50, cursor=cursor)
        for each in page.items:
            yield each.id
        if not (cursor := page.next_cursor):
            return


async def _accepted(create, request: DelegationRequest) -> str | None:
    """The delegation's id, or None while the service refuses because of Redis or itself."""
    try:
        return (await create(request)).delegation.id
    except Unavailable:
        return None


async def _answered(ask, *arguments):
    """What Redis replies, however long it is away."""

    async def asked():
        try:
            return [await ask(*arguments)]
        except (Unavailable, redis.RedisError):
            return None

    return (await until(asked))[0]
