"""The operations on schedules: what their next and last times are, and what a person does with them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..shared.errors import NotFound
from ..shared.request import DelegationRequest
from ..shared.runs.schedule_state import ScheduleState, change, states_of
from ..shared.schedule import Schedule
from ..shared.settings.schedules import ScheduleSettings
from ..shared.text import did_you_mean

BY_HAND = "by hand"
SCHEDULE = "schedule"
"""The label of what a schedule begins: its name."""
Tables = Mapping[str, ScheduleSettings]


def request_of(name: str, table: ScheduleSettings, key: str | None = None) -> DelegationRequest:
    """Returns the request of a schedule."""
    given = {**table.request, "task": table.task, "context": table.context, "idempotencyKey": key}
    request = DelegationRequest.model_validate(given)
    return request.model_copy(update={"labels": {**request.labels, SCHEDULE: name}})


def own_tables(tables: Tables, owner: str | None) -> Tables:
    """Returns the schedules of an owner, or all for None."""
    return {name: table for name, table in tables.items() if owner in (None, table.owner)}


async def list_schedules(redis: Any, tables: Tables) -> list[Schedule]:
    """Returns the schedules in the order of the settings."""
    _, states = await states_of(redis, [*tables])
    return [_shown(name, tables[name], state) for name, state in states.items()]


def check_known(tables: Tables, name: str) -> ScheduleSettings:
    """Returns the table of a schedule. Raises NotFound."""
    if name in tables:
        return tables[name]
    hint = did_you_mean(name[:100], tables, 1) or "`deputize schedules list` lists them"
    raise NotFound(f"there is no schedule {name[:100]!r}; {hint}")


async def pause(redis: Any, tables: Tables, name: str) -> Schedule:
    """Lets it begin nothing until it is resumed. Raises NotFound."""
    check_known(tables, name)
    await change(redis, name, {}, paused=BY_HAND)
    return (await list_schedules(redis, {name: tables[name]}))[0]


async def resume(redis: Any, tables: Tables, name: str) -> Schedule:
    """Lets it go on with its next time from now; those that passed begin nothing. Raises NotFound."""
    table = check_known(tables, name)
    now, states = await states_of(redis, [name])
    if states[name].paused:
        due = str(table.next_after(now) or "")
        fresh = {"paused": "", "failures": "", "error": "", "judged": states[name].last}
        await change(redis, name, {"paused": states[name].paused}, due=due, times=table.times, **fresh)
    return (await list_schedules(redis, {name: table}))[0]


def _shown(name: str, table: ScheduleSettings, state: ScheduleState) -> Schedule:
    def at(seconds: str) -> datetime | None:
        return datetime.fromtimestamp(int(seconds), UTC) if seconds else None

    return Schedule(
        name=name,
        cron=table.cron,
        zone=table.zone,
        next=None if state.paused else at(state.due),
        last=at(state.last_due),
        last_delegation_id=state.last or None,
        failures=int(state.failures or 0),
        paused=state.paused or None,
        error=state.error or None,
    )
