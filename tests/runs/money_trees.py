"""Random trees of delegations that spend money, with the scripts of a real Redis and the parts of a run that call them.

A model's endpoint bills each call that was sent, whatever became of its worker. What it has billed is the truth that
every limit and cap is compared with.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from deputize.orchestrator.owner_caps import publish
from deputize.shared.connection import Pipe, ScriptCall, retried
from deputize.shared.delegation import Usage
from deputize.shared.errors import Fenced
from deputize.shared.ids import new_id
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.caps import caps_of, caps_of_owner
from deputize.shared.runs.keys import LEASES, RESERVED_MONEY, record_key
from deputize.shared.runs.record import Claim
from deputize.shared.runs.spend import SPEND
from deputize.shared.runs.store import RELEASE, RunStore
from deputize.shared.settings import SpendSettings, SpendWindows
from deputize.shared.wire import now
from deputize.worker.core.limits import LimitReached, Meter
from deputize.worker.core.outcome import RunOutcome, TerminationReason
from deputize.worker.models.base import Price
from deputize.worker.spending import ReservedMoney

PRICE = Price(input=2, output=10, cache_read=0.2, cache_write=2.5)
TREES = 8
"""Trees that share the caps of one world."""
ROUNDING = 2e-9
"""US dollars that one amount may differ by where it is rounded to billionths."""
RESTARTS = 0.02
"""How often Redis is killed at a step of a run."""
WORST = 0.3
"""How often an endpoint bills a call with the most that it may cost."""


class Killed(BaseException):
    """The worker's process is gone: it does nothing any more."""


class Failed(Exception):
    """The endpoint has failed for good."""


@dataclass
class World:
    """Trees that spend money at the same time, under the same caps."""

    store: RunStore
    pipe: Pipe
    random: Random
    spend: SpendSettings
    owners: Mapping[str, SpendWindows]
    restart: Callable[[], None] | None = None
    """Kills Redis and starts it again; None where it stays alive."""
    restarts: int = 0
    is_restarting: bool = False
    day: int = 0
    billed: list[tuple[int, Run, float]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    tree_costs: Counter[str] = field(default_factory=Counter)

    async def may_restart(self) -> None:
        """A moment at which Redis may be killed, whatever is on its way to it."""
        if self.restart and self.random.random() < RESTARTS and not self.is_restarting:
            self.restarts, self.is_restarting = self.restarts + 1, True
            await asyncio.to_thread(self.restart)
            self.is_restarting = False

    def bill(self, run: Run, usd: float) -> None:
        self.billed.append((self.day, run, usd))
        for id in run.path:
            self.tree_costs[id] += usd  # pyright: ignore[reportArgumentType]

    def overshoots(self) -> list[str]:
        """Every limit and cap that was exceeded by what the endpoint has billed."""
        found: list[str] = []
        for run in self.runs:
            most = run.limits.max_cost_usd
            if most is not None and self.tree_costs[run.id] > most + ROUNDING * len(self.billed):
                found.append(f"{run.id}: {self.tree_costs[run.id]} of {most}")
        for run in self.runs:
            owned = self.owners.get(run.owner)
            for cap in [*caps_of(self.spend, run.labels), *(caps_of_owner(owned, run.owner) if owned else ())]:
                for day in range(self.day + 1):
                    first = day - cap.days + 1 if cap.days else 0
                    billed = (usd for at, of, usd in self.billed if first <= at <= day and cap.counter in of.counters)
                    if (spent := sum(billed)) > cap.usd + ROUNDING * len(self.billed):
                        found.append(f"{cap.limit} on day {day}: {spent} of {cap.usd}")
        return [*dict.fromkeys(found)]

    async def leftovers(self) -> list[str]:
        """What is reserved after the end."""
        redis = self.store.redis
        kept = [f"{run.id}: {text}" for run in self.runs if (text := await redis.hget(record_key(run.id), "reserved"))]
        return [*kept, *(f"{name}: {usd}" for name, usd in (await redis.hgetall(RESERVED_MONEY)).items())]


@dataclass
class Run:
    """One delegation, with what its attempts have stored."""

    world: World
    id: str
    limits: Limits
    owner: str
    labels: Mapping[str, str]
    path: tuple[str, ...]
    checkpoint: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    """That of its result."""
    children: list[Run] = field(default_factory=list)

    @property
    def counters(self) -> set[str]:
        of_owner = {f"@{self.owner}"} if self.owner else set[str]()
        return {"*", *(f"{key}:{value}" for key, value in self.labels.items()), *of_owner}

    def store(self, meter: Meter) -> None:
        self.checkpoint = {**meter.checkpoint(), "booked": [*meter.booked]}

    async def carry_out(self) -> None:
        """Carries out attempts until one of them ends the run."""
        for number in range(100):
            attempt = Attempt(self, is_last=number > 4)
            await attempt.claim()
            try:
                await attempt.work()
                return
            except Killed:
                store = self.world.store
                await retried(partial(store.redis.zadd, LEASES, {self.id: 1}))
                await retried(partial(store.reap, 30))
            except asyncio.CancelledError:
                await attempt.hand_over()
        raise AssertionError(f"{self.id} does not end")


class Line:
    """A worker's pipe. Answers may be lost, so that a command is sent again; a dead worker's commands go nowhere."""

    def __init__(self, world: World) -> None:
        self.world, self.is_dead = world, False
        self.skew = world.random.choice((-1, 0, 0, 1))
        """Days by which this worker's clock is wrong."""

    def script(self, script: Any, keys: Sequence[str], arguments: dict[str, Any]) -> asyncio.Future[Any]:
        if self.is_dead:
            nothing: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            nothing.set_result(["fenced"])
            return nothing
        if script is SPEND:
            today = now() + timedelta(days=self.world.day + self.skew)
            arguments["days"] = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in range(-1, 29)]
            arguments["first_day"] += self.skew
        if self.world.random.random() < 0.1:
            self.world.pipe.script(script, keys, arguments)
        return self.world.pipe.script(script, keys, arguments)

    def deferred(self, script: Any, call: Callable[[], ScriptCall], *, lasts: Callable[[], bool]) -> Any:
        keys, arguments, _ = call()
        return self.script(script, keys, {**arguments})

    def flush(self) -> None:
        self.world.pipe.flush()


class Attempt:
    """One worker with one run. It may be killed between any two of its steps."""

    def __init__(self, run: Run, *, is_last: bool) -> None:
        self.run, self.world, self.random = run, run.world, run.world.random
        self.line = Line(run.world)
        self.risk = 0.0 if is_last else self.random.choice((0, 0.03, 0.1))

    async def claim(self) -> None:
        claim = await retried(partial(self.world.store.claim, self.run.id, new_id(), "worker", 10))
        assert claim is not None
        self.claimed: Claim = claim
        self.meter = Meter.restored(self.run.limits, self.run.checkpoint)
        self.meter.price = PRICE
        context: Any = SimpleNamespace(claim=claim, meter=self.meter, emit=SimpleNamespace(emit=lambda event: None))
        caps, line = caps_of(self.world.spend, self.run.labels), self.line
        self.money = ReservedMoney(context, line, caps, full_seconds=0.001)  # pyright: ignore[reportArgumentType]

    async def step(self) -> None:
        """A moment at which the worker may be killed, and midnight may pass."""
        await asyncio.sleep(0)
        await self.world.may_restart()
        if self.random.random() < 0.01:
            self.world.day += 1
        if self.random.random() < self.risk:
            self.line.is_dead = True
            raise Killed

    async def work(self) -> None:
        for child in self.run.children:
            if child.usage is None:
                self.meter.lent[child.id] = child.limits
            else:
                self.meter.book(child.id, child.usage)
        await asyncio.gather(*(self.await_child(child) for child in self.run.children if child.usage is None))
        try:
            for _ in range(self.random.randrange(1, 5)):
                await self.call()
                if len(self.run.path) < 3 and self.random.random() < 0.3:
                    await self.delegate()
        except LimitReached:
            pass
        except (Fenced, Failed):
            pass
        await self.step()
        await self.money.settle(RunOutcome(TerminationReason.COMPLETED))
        await self.step()
        self.run.usage = self.meter.usage
        fields = {"status": "succeeded", "fence": ""}
        redis = self.world.store.redis
        await retried(partial(redis.hset, record_key(self.run.id), mapping=fields))
        await retried(partial(redis.zrem, LEASES, self.run.id))

    async def hand_over(self) -> None:
        arguments = {"id": self.run.id, "fence": self.claimed.fence, "claim_ms": 0}
        await self.line.script(RELEASE, [record_key(self.run.id), LEASES], arguments)

    async def call(self) -> None:
        """Makes one model call, with its retries."""
        prompt, wanted = self.random.randrange(100, 3000), self.random.randrange(64, 2000)
        for _ in range(10):
            allowance = self.meter.output_allowance(prompt, wanted)
            async with self.money.reserved(prompt, allowance) as most:
                await self.step()
                self.money.under_way = True
                cost = self.usage_of(prompt, most)
                self.world.bill(self.run, PRICE.cost(cost))
                await self.step()
                if self.random.random() < 0.8:
                    self.meter.begin_reply(cost.model_copy(update={"output_tokens": 0}), counted=True)
                    self.run.store(self.meter)
                await self.step()
                chance = self.random.random()
                if chance < 0.05 and self.risk:
                    raise asyncio.CancelledError
                if chance < 0.08 and self.meter.begun_reply:
                    raise Failed
                self.meter.spend(cost, wasted=chance < 0.3)
                if chance >= 0.3:
                    break
        await self.step()
        self.run.store(self.meter)

    def usage_of(self, prompt: int, most: int) -> Usage:
        if self.random.random() < WORST:
            return Usage(cache_write_tokens=prompt, output_tokens=most)
        return Usage(input_tokens=self.random.randrange(1, prompt), output_tokens=self.random.randrange(most))

    async def delegate(self) -> None:
        """Has children made, as the calls of one turn do, and waits for them."""
        many = self.random.randrange(1, 4)
        made: list[Run] = []
        for sharers in range(many, 0, -1):
            id, asked = new_id(), Limits(max_cost_usd=self.random.choice((None, 0.02)))
            try:
                limits = self.meter.lend(id, asked, sharers)
            except LimitReached:
                break
            labels = {**self.run.labels, "kind": self.random.choice(("x", "y"))}
            child = Run(self.world, id, limits, self.run.owner, labels, (*self.run.path, id))
            await self.step()
            request = DelegationRequest(task="t", labels=labels, parent_id=self.run.id)
            await retried(partial(self.world.store.accept, [(id, request, limits)], 30, self.claimed.fence))
            self.run.children.append(child)
            self.world.runs.append(child)
            made.append(child)
        await self.step()
        await asyncio.gather(*map(self.await_child, made))

    async def await_child(self, child: Run) -> None:
        await child.carry_out()
        assert child.usage is not None
        self.meter.book(child.id, child.usage)


def _windows(random: Random) -> SpendWindows:
    def usd() -> float | None:
        return random.choice((None, None, random.uniform(0, 0.3), random.uniform(0, 2)))

    return SpendWindows(daily_usd=usd(), weekly_usd=usd(), four_weeks_usd=usd(), total_usd=usd())


async def live(store: RunStore, pipe: Pipe, seed: int, restart: Callable[[], None] | None = None) -> World:
    """Lets the trees of one world spend until all of them have ended. ``restart`` kills Redis and starts it again."""
    random = Random(seed)
    per_label: Any = {"team:docs": random.uniform(0, 0.1), "kind": _windows(random)}
    spend = SpendSettings(**dict(_windows(random)), per_label=per_label if random.random() < 0.7 else {})
    owners = {name: _windows(random) for name in ("ann", "bob")}
    world = World(store, pipe, random, spend, owners, restart)
    await publish(store.redis, {name: caps_of_owner(windows, name) for name, windows in owners.items()})
    roots: list[Run] = []
    for _ in range(TREES):
        limits = Limits(max_cost_usd=random.choice((None, random.uniform(0.001, 0.1))))
        owner, labels = random.choice(("", "ann", "bob")), {"team": random.choice(("docs", "shop"))}
        id = new_id()
        await store.accept([(id, DelegationRequest(task="t", labels=labels), limits)], 30, owner=owner)
        roots.append(Run(world, id, limits, owner, labels, (id,)))
    world.runs += roots
    await asyncio.gather(*(run.carry_out() for run in roots))
    return world


def described(world: World) -> str:
    return json.dumps({"spend": world.spend.model_dump(), "day": world.day, "runs": len(world.runs)})
