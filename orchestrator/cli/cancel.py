"""`deputize cancel`: stop what is queued or running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from . import output
from .connect import connect, full_id, load_settings, unfinished
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.settings import Settings


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Everything that is not finished.")
@click.option("--json", "as_json", is_flag=True, help="Each delegation as one JSON object a line.")
@click.pass_context
def cancel(ctx: click.Context, ids: tuple[str, ...], every: bool, as_json: bool) -> Exit:
    """Stop delegations. What they did so far stays in their results; what is finished stays as it is.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    if bool(ids) == every:
        raise click.UsageError("give the ids of delegations, or --all")
    for delegation in asyncio.run(_cancel(load_settings(ctx), ids)):
        # A running one is only requested to stop; its worker reports the end.
        status = delegation.status if delegation.status.finished else "stopping"
        if as_json:
            output.json_line(delegation.to_json())
        else:
            output.line(f"{delegation.id}  {status}")
    return Exit.SUCCEEDED


async def _cancel(settings: Settings, given: tuple[str, ...]) -> list[Delegation]:
    async with connect(settings) as service:
        client = service.client
        if given:
            ids = [await full_id(client, id) for id in given]
        else:
            ids = [delegation.id async for delegation in unfinished(client)]
        return [await client.cancel(id) for id in ids]
