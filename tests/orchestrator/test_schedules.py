"""Schedules: each time begins one delegation, over any number of services, through kills and steps of the clock."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from deputize.orchestrator.delegations import Delegations, open_service
from deputize.orchestrator.schedule_operations import request_of
from deputize.orchestrator.scheduler import LATE_SECONDS, Step, scheduling
from deputize.shared.delegation import Delegation, FinalStatus, Status, TerminationReason, ToolAgentResult
from deputize.shared.errors import NotFound
from deputize.shared.metrics import SCHEDULES_PAUSED
from deputize.shared.runs.keys import LEASES, METRICS, record_key
from deputize.shared.runs.schedule_state import ScheduleState, change, states_of
from deputize.shared.runs.store import RunStore
from deputize.shared.runs.webhook_queue import take
from deputize.shared.settings.schedules import ScheduleSettings
from deputize.worker.fleet.webhook_sender import body_of
from tests.orchestrator.serving import settings
from tests.waiting import until

NOON = 1_800_014_400
"""A full hour, in UTC."""
HOURLY: dict[str, Any] = {"cron": "0 * * * *", "task": "Look", "owner": "ci"}


@dataclass
class Clock:
    """A schedule, at times that the test chooses."""

    service: Delegations
    table: ScheduleSettings
    name: str = "look"

    async def state(self) -> ScheduleState:
        return (await states_of(self.service.store.redis, [self.name]))[1][self.name]

    async def at(self, now: int, times: int = 4) -> ScheduleState:
        """What the schedule is after so many looks at that time."""
        for _ in range(times):
            await self.take(now, await self.state())
        return await self.state()

    async def take(self, now: int, seen: ScheduleState) -> None:
        await Step(self.service.of(self.table.owner, is_confined=True), self.name, seen, now).take(self.table)

    async def begun(self) -> list[Delegation]:
        """All delegations, the oldest first."""
        return (await self.service.list(limit=500, labels={"schedule": self.name})).items[::-1]

    async def end(self, id: str, status: FinalStatus, reason: TerminationReason = TerminationReason.COMPLETED) -> None:
        await self.service.store.cancel(id)  # which lets its keys end
        result = ToolAgentResult(delegation_id=id, status=status, termination_reason=reason)
        ended = {"status": status.value, "result": result.to_json()}
        await self.service.store.redis.hset(record_key(id), mapping=ended)


@pytest.fixture
async def services(redis_url: str, tmp_path: Path) -> AsyncIterator[list[Delegations]]:
    using = settings(redis_url=redis_url, home=tmp_path)
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(open_service(using, redis_url)) for _ in range(3)]


@pytest.fixture
def clock(services: list[Delegations]) -> Clock:
    return Clock(services[0], ScheduleSettings(**HOURLY))


async def test_each_time_begins_one_delegation_over_three_services(services: list[Delegations]) -> None:
    every = ScheduleSettings(cron="* * * * * *", task="Tick", overlap="queue", pause_after=0)
    clocks = [Clock(each, every) for each in services]
    await clocks[0].at(NOON)
    for now in range(NOON, NOON + 12):
        for _ in range(4):
            seen = await clocks[0].state()
            await asyncio.gather(*(each.take(now, seen) for each in clocks * 2))
            if last := (await clocks[0].state()).last:
                await clocks[0].end(last, Status.SUCCEEDED)
    keys = [each.request.idempotency_key for each in await clocks[0].begun()]
    assert keys == [f"schedule:look@2027-01-15T12:00:{second:02}Z" for second in range(1, 12)]


async def test_a_delegation_is_the_owners_with_the_schedules_name(clock: Clock) -> None:
    await clock.at(NOON - 1)
    state = await clock.at(NOON)
    (made,) = await clock.begun()
    assert (made.owner, made.request.task, made.request.labels) == ("ci", "Look", {"schedule": "look"})
    assert (state.last, state.last_due, state.due, state.pending) == (made.id, str(NOON), str(NOON + 3600), "")


async def test_what_a_killed_service_left_is_done_once_by_another(clock: Clock) -> None:
    redis = clock.service.store.redis
    await clock.at(NOON - 1)
    # Killed after it was decided that the time begins something.
    assert await change(redis, "look", {"due": str(NOON)}, due=str(NOON + 3600), pending=str(NOON))
    await clock.at(NOON + 5)
    # Killed after the acceptance, before that was noted.
    due = NOON + 3600
    await clock.end((await clock.state()).last, Status.SUCCEEDED)
    assert await change(redis, "look", {"due": str(due)}, due=str(due + 3600), pending=str(due))
    request = request_of("look", clock.table, "schedule:look@2027-01-15T13:00:00Z")
    accepted = (await clock.service.of("ci").create(request)).delegation.id
    state = await clock.at(due + 5)
    assert [each.id for each in await clock.begun()][1:] == [accepted] == [state.last]
    assert (state.pending, state.last_due) == ("", str(due))


@pytest.mark.parametrize(("late", "number"), [(LATE_SECONDS, 1), (LATE_SECONDS + 1, 1), (5 * 3600, 1)])
async def test_times_that_passed_while_no_service_was_there_begin_one(clock: Clock, late: int, number: int) -> None:
    await clock.at(NOON - 1)
    state = await clock.at(NOON + late)
    assert len(await clock.begun()) == number
    assert int(state.due) == NOON + (late // 3600 + 1) * 3600


async def test_times_that_are_a_little_late_begin_each_its_own(clock: Clock) -> None:
    clock.table = ScheduleSettings(cron="*/2 * * * * *", task="Look", pause_after=0)
    await clock.at(NOON)
    for _ in range(6):
        state = await clock.at(NOON + 10, 1)
        await clock.end(state.last, Status.SUCCEEDED)
    assert len(await clock.begun()) == 5


async def test_a_clock_that_is_put_back_or_forward_repeats_nothing(clock: Clock) -> None:
    await clock.at(NOON - 1)
    for now in (NOON, NOON - 7200, NOON - 3600, NOON - 1, NOON, NOON + 1):
        await clock.at(now)
    assert len(await clock.begun()) == 1
    await clock.end((await clock.state()).last, Status.SUCCEEDED)
    for now in (NOON + 9000, NOON, NOON + 9000):
        state = await clock.at(now)
    assert len(await clock.begun()) == 2
    assert int(state.due) == NOON + 3 * 3600


async def test_another_expression_counts_from_now_on(clock: Clock) -> None:
    await clock.at(NOON - 1)
    clock.table = ScheduleSettings(**{**HOURLY, "cron": "30 * * * *", "zone": "Asia/Kolkata"})
    assert (await clock.at(NOON - 1)).due == str(NOON + 3600 - 3600)
    clock.table = ScheduleSettings(**{**HOURLY, "cron": "15 * * * *"})
    assert (await clock.at(NOON - 1)).due == str(NOON + 900)
    # What is due already is not lost by a change.
    clock.table = ScheduleSettings(**{**HOURLY, "cron": "45 * * * *"})
    state = await clock.at(NOON + 901)
    assert (state.last_due, state.due) == (str(NOON + 900), str(NOON + 2700))


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
async def test_what_happens_while_the_last_delegation_is_not_finished(clock: Clock, overlap: str) -> None:
    clock.table = ScheduleSettings(**{**HOURLY, "overlap": overlap})
    await clock.at(NOON - 1)
    first = (await clock.at(NOON)).last
    state = await clock.at(NOON + 3600)
    await clock.at(NOON + 2 * 3600)
    found = [each.status for each in await clock.begun()]
    match overlap:
        case "skip":
            assert (found, state.skipped) == ([Status.QUEUED], str(NOON + 3600))
        case "queue":
            assert (found, state.pending) == ([Status.QUEUED], str(NOON + 3600))
            await clock.end(first, Status.SUCCEEDED)
            assert (await clock.at(NOON + 2 * 3600 + 60)).last_due == str(NOON + 3600)
        case _:
            assert found == [Status.CANCELLED, Status.CANCELLED, Status.QUEUED]


async def test_failures_in_a_row_pause_it_until_it_is_resumed(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    failed: tuple[FinalStatus, TerminationReason] = (Status.FAILED, TerminationReason.ERROR)
    cancelled: tuple[FinalStatus, TerminationReason] = (Status.CANCELLED, TerminationReason.CANCELLED)
    succeeded: tuple[FinalStatus, TerminationReason] = (Status.SUCCEEDED, TerminationReason.COMPLETED)
    ends = [failed, failed, succeeded, failed, cancelled, failed, failed]
    await clock.at(NOON - 1)
    counted = list[str]()
    for number, end in enumerate(ends):
        state = await clock.at(NOON + number * 3600)
        await clock.end(state.last, *end)
        counted.append((await clock.at(NOON + number * 3600 + 60)).failures)
    assert counted == ["1", "2", "", "1", "1", "2", "3"]
    assert (await clock.state()).paused.startswith("3 failures in a row, the last: dlg_")
    assert "the schedule look is paused" in caplog.text
    await clock.at(NOON + 9 * 3600)
    assert len(await clock.begun()) == len(ends)


async def test_a_request_that_is_refused_counts_as_a_failure(clock: Clock) -> None:
    clock.table = ScheduleSettings(**HOURLY, request={"model": "scripted:/no/such/file"}, pause_after=2)
    await clock.at(NOON - 1)
    await clock.at(NOON)
    state = await clock.at(NOON + 3600)
    assert (state.failures, state.pending) == ("2", "")
    assert "a request may not name a script" in state.error
    assert state.paused.startswith("2 failures in a row")
    assert await clock.begun() == []


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused requests", "failed delegations"])
async def test_a_pause_notifies_the_webhook_once_over_all_services(
    is_refused: bool, redis_url: str, tmp_path: Path
) -> None:
    webhook = {"secrets": [f"whsec_{b64encode(bytes(32)).decode()}"], "url": "https://example.org/all"}
    using = settings(redis_url=redis_url, home=tmp_path, webhook=webhook)
    own: dict[str, Any] = {"webhook": {"url": "https://example.org/paused", "events": ["permission.requested"]}}
    own |= {"model": "scripted:/no/such/file"} if is_refused else {}
    async with open_service(using, redis_url) as service, open_service(using, redis_url) as other:
        table = ScheduleSettings(**HOURLY, request=own, pause_after=1)
        clocks = [Clock(each, table) for each in (service, other)]
        await clocks[0].at(NOON - 1)
        if not is_refused:
            await clocks[0].end((await clocks[0].at(NOON)).last, Status.FAILED, TerminationReason.ERROR)
        seen = await clocks[0].state()
        await asyncio.gather(*(each.take(NOON + 1, seen) for each in clocks * 2))
        assert (await clocks[0].at(NOON + 9 * 3600)).paused
        assert await service.store.redis.hget(METRICS, SCHEDULES_PAUSED.field()) == "1"
        (due,) = await take(service.store.redis, 9, 9, 9)
        assert (due.notification.type, due.notification.url) == ("schedule.paused", "https://example.org/paused")
        body = json.loads(body_of(due))
        assert (body["type"], body["data"]["links"]["schedules"]) == ("schedule.paused", "/v1/schedules")
        assert body["data"]["text"].startswith("The schedule look is paused: 1 failure in a row, the last: ")
        notice = await service.get(body["data"]["id"])
        assert (notice.owner, notice.status, notice.request.labels) == (
            "ci",
            Status.CANCELLED,
            {"schedule.paused": "look"},
        )


class DyingRedis(Redis):
    """The connection of a service that is killed before its next command, after so many."""

    left = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise asyncio.CancelledError
        return await super().execute_command(*args, **options)


async def test_the_notice_of_a_pause_survives_a_kill_after_each_command(redis_url: str, tmp_path: Path) -> None:
    webhook = {"secrets": [f"whsec_{b64encode(bytes(32)).decode()}"], "url": "https://example.org/all"}
    using = settings(redis_url=redis_url, home=tmp_path, webhook=webhook)
    table = ScheduleSettings(**HOURLY, request={"model": "scripted:/no/such/file"}, pause_after=1)
    async with (
        open_service(using, redis_url) as service,
        DyingRedis.from_url(redis_url, decode_responses=True) as dying,
    ):
        assert isinstance(dying, DyingRedis)
        commands, dying.left = -1, -1
        while dying.left < 0:  # else it came to the end
            commands += 1
            clock, killed = Clock(service, table, f"look-{commands}"), copy(service)
            killed.store, dying.left = RunStore(dying, using.retention_seconds), commands
            await clock.at(NOON - 1)
            await change(service.store.redis, clock.name, {}, due=str(NOON + 3600), pending=str(NOON))
            with suppress(asyncio.CancelledError):
                await Clock(killed, table, clock.name).take(NOON + 1, await clock.state())
            for id in await service.store.redis.zrange(LEASES, 0, -1):  # until another service begins, time passes
                await service.store.redis.zadd(LEASES, {id: 1})
            assert await service.store.reap(30) == [], commands  # nothing of it is for a worker
            assert (await clock.at(NOON + 2)).paused
            sent = await take(service.store.redis, 9, 9, 9)
            assert [each.notification.type for each in sent] == ["schedule.paused"], commands
    assert commands >= 2


async def test_a_pause_without_a_secret_for_its_webhook_pauses_all_the_same(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.table = ScheduleSettings(**HOURLY, request={"webhook": {"url": "https://example.org"}}, pause_after=1)
    await clock.at(NOON - 1)
    assert (await clock.at(NOON)).paused
    assert "nothing is notified of the pause of the schedule look: " in caplog.text


async def test_services_that_run_carry_it_out(services: list[Delegations], redis_url: str, tmp_path: Path) -> None:
    tables = {"tick": {"cron": "* * * * * *", "task": "Tick", "overlap": "cancel"}, "never": HOURLY}
    using = settings(redis_url=redis_url, home=tmp_path, schedules=tables)
    clock = Clock(services[0], using.schedules["tick"], "tick")

    async def two() -> bool:
        return len(await clock.begun()) >= 2

    async with AsyncExitStack() as running:
        for each in services:
            await running.enter_async_context(scheduling(each, using))
        await until(two)
    dues = [each.request.idempotency_key for each in await clock.begun()]
    assert len(dues) == len({*dues})


async def test_a_stack_of_one_command_has_no_schedules(services: list[Delegations]) -> None:
    before = asyncio.all_tasks()
    async with scheduling(services[0], settings(schedules={"look": HOURLY}, temporary=True)):
        assert asyncio.all_tasks() == before


async def test_a_person_pauses_resumes_and_runs_those_of_their_owner(redis_url: str, tmp_path: Path) -> None:
    tables = {"look": {**HOURLY, "task": "Look", "zone": "Europe/Berlin"}, "other": {**HOURLY, "owner": "it"}}
    using = settings(redis_url=redis_url, home=tmp_path, schedules=tables)
    async with open_service(using, redis_url) as service:
        clock = Clock(service, using.schedules["look"])
        ours, theirs = service.of("ci", is_confined=True), service.of("it", is_confined=True)
        assert [each.name for each in await service.schedules()] == ["look", "other"]
        assert [each.name for each in await ours.schedules()] == ["look"]
        for operation in (theirs.run_schedule, theirs.pause_schedule, theirs.resume_schedule):
            with pytest.raises(NotFound, match="there is no schedule 'look'"):
                await operation("look")
        await clock.at(NOON - 1)
        paused = await ours.pause_schedule("look")
        assert (paused.paused, paused.next, paused.zone) == ("by hand", None, "Europe/Berlin")
        await clock.at(NOON + 60)
        assert await clock.begun() == []
        made = await ours.run_schedule("look")
        assert (made.owner, made.request.labels, made.request.idempotency_key) == ("ci", {"schedule": "look"}, None)
        await change(service.store.redis, "look", {}, failures="2")
        resumed = await ours.resume_schedule("look")
        assert (resumed.paused, resumed.failures, resumed.last) == (None, 0, None)
        assert resumed.next is not None
        assert datetime.now(UTC) < resumed.next < datetime.now(UTC) + timedelta(hours=1, seconds=1)
        # Of what is not paused the next time stays.
        assert await ours.resume_schedule("look") == resumed
        state = await clock.at(int(resumed.next.timestamp()))
        (shown,) = await ours.schedules()
        assert (shown.last, shown.last_delegation_id) == (resumed.next, state.last)
        assert [each.id for each in await clock.begun()] == [made.id, state.last]


async def test_a_service_that_has_seen_an_older_state_changes_nothing(clock: Clock) -> None:
    await clock.at(NOON - 1)
    older = await clock.state()
    await clock.end((await clock.at(NOON)).last, Status.SUCCEEDED)
    state = await clock.at(NOON + 3600)
    await clock.take(NOON + 3600, older)
    assert await clock.state() == state
    assert len(await clock.begun()) == 2
    assert not await change(clock.service.store.redis, "look", {"due": older.due}, due="1")
    assert await clock.state() == state


async def test_a_time_that_was_accepted_with_other_settings_is_not_begun_again(clock: Clock) -> None:
    await clock.at(NOON - 1)
    before = clock.table.model_copy(update={"task": "Look elsewhere"})
    request = request_of("look", before, "schedule:look@2027-01-15T12:00:00Z")
    accepted = (await clock.service.of("ci").create(request)).delegation.id
    state = await clock.at(NOON)
    assert (state.last, state.pending, state.failures) == (accepted, "", "")
    assert len(await clock.begun()) == 1


async def test_a_reached_cap_is_no_failure_of_the_schedule(redis_url: str, tmp_path: Path) -> None:
    using = settings(redis_url=redis_url, home=tmp_path, spend={"daily_usd": 0})
    async with open_service(using, redis_url) as service:
        clock = Clock(service, ScheduleSettings(**HOURLY, pause_after=1))
        await clock.at(NOON - 1)
        state = await clock.at(NOON)
        assert (state.failures, state.paused, state.pending, state.due) == ("", "", "", str(NOON + 3600))
        assert "spend.daily_usd" in state.error
