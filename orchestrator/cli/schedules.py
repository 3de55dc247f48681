"""`deputize schedules`: what the service begins by itself, at which times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from . import output
from .connect import asynchronous, connect, load_settings
from .output import cut, short_id

if TYPE_CHECKING:
    from ...shared.schedule import Schedule


@click.group()
def schedules() -> None:
    """List the schedules of the settings, run one now, pause and resume them."""


@schedules.command("list")
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@asynchronous
async def list_(as_json: bool) -> None:
    """List the schedules with their next and last times."""
    async with connect(load_settings()) as service:
        found = await service.client.schedules()
    head = ("name", "cron", "zone", "next", "last", "delegation", "failures")
    output.table(found, head, _row, "the settings of the service have no tables [schedules.NAME]", as_json=as_json)


def _at(moment: datetime | None) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}" if moment else "–"


def _row(found: Schedule) -> tuple[str, ...]:
    next_one = f"paused: {cut(found.paused, 60)}" if found.paused else _at(found.next)
    last = f"not begun: {cut(found.error, 60)}" if found.error else _at(found.last)
    made = short_id(found.last_delegation_id) if found.last_delegation_id else "–"
    return (found.name, found.cron, found.zone, next_one, last, made, str(found.failures))


@schedules.command()
@click.argument("name")
@asynchronous
async def run(name: str) -> None:
    """Begin the task of a schedule now, also where it is paused. Its times stay as they are."""
    async with connect(load_settings()) as service:
        output.line((await service.client.run_schedule(name)).id)


@schedules.command()
@click.argument("name")
@asynchronous
async def pause(name: str) -> None:
    """Let a schedule begin nothing until it is resumed. What runs goes on."""
    async with connect(load_settings()) as service:
        await service.client.pause_schedule(name)
    output.line(f"{name}  is paused")


@schedules.command()
@click.argument("name")
@asynchronous
async def resume(name: str) -> None:
    """Let a paused schedule go on with its next time. Those that passed begin nothing."""
    async with connect(load_settings()) as service:
        found = await service.client.resume_schedule(name)
    output.line(f"{name}  goes on; next {_at(found.next)}")
