"""`deputize cost`: what delegations cost."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from ...shared.text import count
from . import formatting, output
from .connect import connect, load_settings
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.runs.cost import Cost, CostReport
    from ...shared.settings import Settings

AGO = re.compile(r"(\d{1,5})([dh])")
NO_KEY = "(none)"


class Since(click.ParamType[datetime]):
    """``7d`` or ``24h`` ago, a date, or a date and time; UTC where no offset is given."""

    name = "since"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if found := AGO.fullmatch(value):
            unit = {"d": timedelta(days=1), "h": timedelta(hours=1)}[found[2]]
            return datetime.now(UTC) - int(found[1]) * unit
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither like 7d or 24h nor a date like 2026-11-01", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Group(click.ParamType[str]):
    name = "group"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ...shared.runs.cost import check_group

        try:
            return check_group(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.option(
    "--by",
    type=Group(),
    default="day",
    show_default=True,
    metavar="GROUP",
    help="day, model, session, label, or label:KEY for one label's values.",
)
@click.option("--since", type=Since(), metavar="WHEN", help="What was accepted since: 7d, 24h, or a date (UTC).")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@click.pass_context
def cost(ctx: click.Context, by: str, since: datetime | None, as_json: bool) -> Exit:
    """Show what delegations cost, finished and running ones, by the day (UTC) on which they were accepted.

    A delegation counts what it spent itself; what its subagents spent counts as theirs. Removed ones do not count.
    Cached is the part of the prompts that was read from the cache, saved how much more they would have cost.
    """
    report = asyncio.run(_cost(load_settings(ctx), by, since))
    if as_json:
        output.json_line(report.to_json())
        return Exit.SUCCEEDED
    for row in _table(report):
        output.line(row)
    output.line("what subagents spent counts as theirs here; the result of their parent has it, too", err=True)
    if unpriced := report.total.unpriced:
        many = count(unpriced, "delegation")
        output.line(f"the cost of {many} is not known: the price of the model is not", err=True)
    return Exit.SUCCEEDED


async def _cost(settings: Settings, by: str, since: datetime | None) -> CostReport:
    async with connect(settings) as service:
        return await service.client.cost(by, since)


def _table(report: CostReport) -> list[str]:
    rows = [
        (report.by, "delegations", "tokens", "cached", "cost", "saved"),
        *(_cells(item.key or NO_KEY, item) for item in report.items),
        _cells("total", report.total),
    ]
    return formatting.columns(rows)


def _cells(name: str, row: Cost) -> tuple[str, ...]:
    usage = row.usage
    return (
        formatting.cut(name, 60),
        str(row.delegations),
        f"{usage.total:,}",
        formatting.share(usage.cached_share),
        formatting.cost(usage.cost_usd),
        formatting.cost(usage.cache_saved_usd),
    )
