"""`deputize prune`: remove finished delegations."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from deputize.orchestrator.cli import output
from deputize.orchestrator.cli.connect import connect, load_settings
from deputize.orchestrator.cli.errors import Exit
from deputize.orchestrator.cli.formatting import count
from deputize.orchestrator.cli.values import Finite

if TYPE_CHECKING:
    from deputize.shared.settings import Settings


@click.command()
@click.option(
    "--older-than",
    type=Finite(min=0, max=1e9),
    metavar="SECONDS",
    help="What finished so long ago; without it WORKSPACE_RETENTION_SECONDS of the service's settings count.",
)
@click.option("--json", "as_json", is_flag=True, help="The number as JSON.")
@click.pass_context
def prune(ctx: click.Context, older_than: float | None, as_json: bool) -> Exit:
    """Remove finished delegations: their records now, their files as soon as the workers hear of it.

    What is not finished is never touched. `--older-than 0` removes all that is.
    """
    removed = asyncio.run(_prune(load_settings(ctx), older_than))
    output.line(json.dumps({"removed": removed}) if as_json else f"{count(removed, 'delegation')} removed")
    return Exit.SUCCEEDED


async def _prune(settings: Settings, older_than: float | None) -> int:
    async with connect(settings) as service:
        return await service.client.prune(older_than)
