"""`deputize doctor`: checks this machine and the service, with a remedy for each problem."""

from __future__ import annotations

import asyncio
import json

import click

from orchestrator.cli import output
from orchestrator.cli.checks import Row, checked
from orchestrator.cli.connect import load_settings
from orchestrator.cli.errors import Exit
from shared.errors import Misconfigured


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each row as one JSON object a line.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> Exit:
    """Check this machine and the service, with a remedy for each problem.

    A row is ✓ well, ! good enough for now, or ✗ broken; with a ✗ the exit code is 3.
    """
    return asyncio.run(_doctor(ctx, as_json))


async def _doctor(ctx: click.Context, as_json: bool) -> Exit:
    broken = False

    def say(row: Row) -> None:
        nonlocal broken
        broken = broken or row.state == "✗"
        if as_json:
            output.json_line(json.dumps(row.to_dict(), ensure_ascii=False))
            return
        output.line(f"{row.state} {row.name:9} {row.said}")
        if row.mend:
            output.line(f"{'':11} → {row.mend}")

    try:
        settings = load_settings(ctx)
    except Misconfigured as error:
        say(Row("✗", "settings", str(error), "correct what it names; nothing else can be checked before"))
    else:
        async for row in checked(settings):
            say(row)
    return Exit.UNREACHABLE if broken else Exit.SUCCEEDED
