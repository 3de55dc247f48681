"""`deputize resume`: go on with what an interrupted command left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from . import output
from .apply import take_over_or_hint
from .connect import connect, full_id, load_settings, unfinished
from .errors import Exit
from .live import display
from .values import Finite, denied_option
from .watcher import Watcher, print_result

if TYPE_CHECKING:
    from ...shared.settings import Settings


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Everything that is paused.")
@click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds; the work goes on.")
@denied_option
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line.")
@click.pass_context
def resume(ctx: click.Context, ids: tuple[str, ...], every: bool, wait: float | None, as_json: bool) -> Exit:
    """Go on with delegations that an interrupted command left, and wait for their results.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    if bool(ids) == every:
        raise click.UsageError("give the ids of delegations, or --all")
    return asyncio.run(_resume(load_settings(ctx), ids, wait, as_json))


async def _resume(settings: Settings, given: tuple[str, ...], wait: float | None, as_json: bool) -> Exit:
    needs_model = not settings.model.startswith("scripted")
    async with connect(settings, workers=1, needs_model=needs_model) as service:
        client = service.client
        if given:
            ids = [await full_id(client, id) for id in given]
        else:
            ids = [delegation.id async for delegation in unfinished(client) if delegation.paused]
        if not ids:
            output.line("nothing is paused", err=True)
            return Exit.SUCCEEDED
        delegations = [await client.resume(id) for id in ids]
        with display() as shown:
            watched = await Watcher(service, shown, wait, prints_results=not as_json).all(delegations)
        for delegation in delegations:
            if (result := watched.results.get(delegation.id)) is not None:
                print_result(delegation, result, json=as_json)
                await take_over_or_hint(settings, client, result)
    return watched.code
