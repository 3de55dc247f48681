"""`deputize prune`: remove finished delegations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ...shared.text import count
from . import output
from .connect import connect, load_settings
from .errors import Exit
from .formatting import size
from .values import Duration, Size

if TYPE_CHECKING:
    from ...shared.runs.disk import Pruned
    from ...shared.settings import Settings


@click.command()
@click.option(
    "--older-than",
    type=Duration(min=0, max=1e9),
    metavar="TIME",
    help="What finished so long ago: 90s, 15min, 24h, 7d; without it and --keep-bytes WORKSPACE_RETENTION_SECONDS of "
    "the service's settings count.",
)
@click.option(
    "--keep-bytes",
    type=Size(min=0, max=1e18),
    metavar="SIZE",
    help="What finished first, until the files of the others take no more: 500MB, 2GB.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="What was removed, as one JSON object.")
@click.pass_context
def prune(ctx: click.Context, older_than: float | None, keep_bytes: float | None, dry_run: bool, as_json: bool) -> Exit:
    """Remove finished delegations: their records now, their files as soon as the workers are notified.

    What is not finished is never touched, nor what an unfinished one continues. `--older-than 0` removes all the rest.
    """
    most = None if keep_bytes is None else int(keep_bytes)
    removed = asyncio.run(_prune(load_settings(ctx), older_than, most, dry_run))
    if as_json:
        output.json_line(removed.to_json())
        return Exit.SUCCEEDED
    freed = f", {size(removed.freed_bytes)} on disk" if removed.freed_bytes else ""
    output.line(f"{count(removed.removed, 'delegation')} {'would be ' if dry_run else ''}removed{freed}")
    for id in removed.ids if dry_run else ():
        output.line(f"  {id}")
    return Exit.SUCCEEDED


async def _prune(settings: Settings, older_than: float | None, keep_bytes: int | None, dry_run: bool) -> Pruned:
    async with connect(settings) as service:
        return await service.client.prune(older_than, keep_bytes, dry_run=dry_run)
