"""`audit`, `cost`, `tools` and `workers`: tables about the whole fleet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

import click

from ...shared.errors import ScopeMissing, Unavailable
from ...shared.text import count
from ...shared.wording import cut, dollars, seconds, share, short_id, tokens
from . import completion, output
from .connect import ask, asynchronous, connect, full_id, load_settings
from .errors import Exit
from .values import Parsed

if TYPE_CHECKING:
    from ...shared.fleet import ToolCard, WorkerCard
    from ...shared.runs.cost import Cost, CostReport, Forecast
    from ...shared.runs.notification import Notification
    from ..audit_log import AuditEntry
    from ..client import Client


SHOWN_IDS = 3
FIRST_TRY_SECONDS = 40.0
"""A try of a notification has 20 seconds."""
LOOK_SECONDS = 0.2


@click.command()
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, metavar="N", help="How many.")
@click.option("--cursor", metavar="ID", help="Only entries before the one with this id, as --json shows it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def audit(limit: int, cursor: str | None, as_json: bool) -> None:
    """List the requests that changed something or were refused, newest first. It needs a token with the scope admin.

    It holds the name of the token, the address, the route, the delegations and the status; no token and no body.
    """
    page = ask(lambda client: client.audit(limit, cursor))
    head = ("at", "token", "client", "request", "status", "delegations")
    # An entry that counts several requests is written after them. As JSON they are in the order of their cursors.
    items = page.items if as_json else sorted(page.items, key=lambda item: item.at, reverse=True)
    output.table(items, head, _row, "no request has changed anything or was refused yet", as_json=as_json)
    if page.next_cursor:
        output.note(f"there are more: --cursor {page.next_cursor}")


def _row(item: AuditEntry) -> tuple[str, ...]:
    more = len(item.delegation_ids) - SHOWN_IDS
    return (
        f"{item.at:%Y-%m-%d %H:%M:%S}",
        item.token or "–",
        item.client or "–",
        f"{item.method} {item.route}" + (f" ({item.tool})" if item.tool else ""),
        str(item.status) + (f" ×{item.count}" if item.count > 1 else ""),
        " ".join(map(short_id, item.delegation_ids[:SHOWN_IDS])) + (f" and {more} more" if more > 0 else "")
        or cut(item.reason or "", 80),
    )


AGO = re.compile(r"(\d{1,5})([dh])")
NO_KEY = "(none)"


def _since(value: str) -> datetime:
    """Reads ``7d`` or ``24h`` ago, a date, or a date and time; UTC where no offset is given."""
    if found := AGO.fullmatch(value):
        unit = {"d": timedelta(days=1), "h": timedelta(hours=1)}[found[2]]
        return datetime.now(UTC) - int(found[1]) * unit
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither like 7d or 24h nor a date like 2026-11-01") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


SINCE = Parsed("since", _since)


def _group(value: str) -> str:
    from ...shared.runs.cost import check_group

    return check_group(value)


@click.command()
@click.option(
    "--by",
    type=Parsed("group", _group),
    default="day",
    show_default=True,
    metavar="GROUP",
    help="day, model, session, label, label:KEY for one label's values, or delegation for the ten most expensive.",
)
@click.option("--since", type=SINCE, metavar="WHEN", help="Delegations accepted since: 7d, 24h, or a date (UTC).")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def cost(by: str, since: datetime | None, as_json: bool) -> None:
    """Show what delegations cost, finished and running ones, by the day (UTC) on which they were accepted.

    A delegation counts what it spent itself; what its subagents spent counts as theirs. Removed ones do not count.
    The caps on money that hold, and forecasts of what runs, follow.
    Cached is the part of the prompts that was read from the cache, saved how much more they would have cost.
    """
    from ...shared.runs.cost import MOST_GROUPS

    report = ask(lambda client: client.cost(by, since))
    if as_json:
        output.json_line(report.to_json())
        return
    head = (report.by, "delegations", "tokens", "cached", "cost", "saved")
    rows = (_cells(item.key or NO_KEY, item) for item in report.items)
    output.lines(output.columns([head, *rows, _cells("total", report.total)]))
    _show_money(report)
    output.note("the cost of subagents counts as theirs here; the result of their parent has it, too")
    if by not in ("day", "delegation") and len(report.items) == MOST_GROUPS:
        output.note(f"at most the {MOST_GROUPS:,} most expensive are shown; the total has all")
    if unpriced := report.total.unpriced:
        many = count(unpriced, "delegation")
        output.note(f"the cost of {many} is not known: the price of the model is not")


def _show_money(report: CostReport) -> None:
    """Prints the caps on money with their use, and the forecasts."""
    if report.caps:
        head = ("cap", "US dollars", "spent", "reserved", "left")
        rows = [
            (cut(cap.name, 60), *map(dollars, (cap.usd, cap.spent_usd, cap.reserved_usd, cap.left_usd)))
            for cap in report.caps
        ]
        output.lines(["", *output.columns([head, *rows])])
    if report.forecasts:
        head = ("running", "turn", "spent", "forecast", "limit")
        rows = [
            (each.delegation_id, f"{each.turn} of {each.max_turns}", *map(dollars, _amounts(each)))
            for each in report.forecasts
        ]
        output.lines(["", *output.columns([head, *rows])])
        output.note("a forecast is what a delegation costs if it uses all of its turns")


def _amounts(forecast: Forecast) -> tuple[float | None, ...]:
    return forecast.spent_usd, forecast.forecast_usd, forecast.max_cost_usd


def _cells(name: str, row: Cost) -> tuple[str, ...]:
    usage = row.usage
    return (
        cut(name, 60),
        str(row.delegations),
        f"{usage.total:,}",
        share(usage.cached_share),
        dollars(usage.cost_usd),
        dollars(usage.cache_saved_usd),
    )


@click.group(invoke_without_command=True)
@click.option("--delegation", metavar="ID", help="All of this delegation, those that arrived, too.")
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@asynchronous
async def webhooks(delegation: str | None, as_json: bool) -> None:
    """List the notifications of webhooks that have not arrived, with the outcome of their last try."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    async with connect(load_settings()) as service:
        found = await service.client.webhooks(await full_id(service.client, delegation) if delegation else None)
    nothing = "it has no notifications" if delegation else "all notifications have arrived"
    head = ("delegation", "notification", "state", "tries", "next", "last", "url")
    output.table(found, head, _notification, nothing, as_json=as_json)


def _notification(item: Notification) -> tuple[str, ...]:
    left = (item.next_try_at - datetime.now(UTC)).total_seconds() if item.next_try_at else None
    next_try = "–" if left is None else seconds(max(0.0, left))
    last = cut(item.error, 60) if item.error else f"HTTP {item.status}" if item.status else "–"
    return (short_id(item.delegation_id), item.type, item.state, str(item.tries), next_try, last, cut(item.url, 80))


@webhooks.command()
@click.argument("id", shell_complete=completion.delegations)
@asynchronous
async def redeliver(id: str) -> None:
    """Send all notifications of a delegation again, under the same ids, by which receivers recognize them.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    async with connect(load_settings()) as service:
        full = await full_id(service.client, id)
        await service.client.redeliver(full)
    output.line(f"{full}  will be sent again")


@webhooks.command()
@click.argument("url")
@click.option("--secret-name", metavar="NAME", help="The secret of the service's settings that signs.")
@asynchronous
async def test(url: str, secret_name: str | None) -> Exit:
    """Send a notification to URL now, and print the outcome of its first try.

    It is about a delegation that is cancelled before it begins. Where the try fails, it is repeated as any other one.
    """
    from ...shared.webhooks import Webhook

    async with connect(load_settings(), workers=1) as service:
        made = await service.client.try_webhook(Webhook(url=url, secret_name=secret_name))
        try:
            tried = await _first_try(service.client, made.id)
        except ScopeMissing:
            output.line(f"{made.id}  is notified; a token with the scope read shows its outcome")
            return Exit.SUCCEEDED
    came = tried.error or f"HTTP {tried.status}"
    is_delivered = tried.state == "delivered"
    output.line(f"{'✓' if is_delivered else '✗ not'} delivered: {came}")
    return Exit.SUCCEEDED if is_delivered else Exit.FAILED


async def _first_try(client: Client, id: str) -> Notification:
    until = monotonic() + FIRST_TRY_SECONDS
    while not (tried := [each for each in await client.webhooks(id) if each.last_try_at]):
        if monotonic() > until:
            raise Unavailable(f"no worker has sent it in {FIRST_TRY_SECONDS:.0f} s; `deputize status` shows them")
        await asyncio.sleep(LOOK_SECONDS)
    return tried[0]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
def tools(as_json: bool) -> None:
    """List the tools that workers have announced."""
    found = ask(lambda client: client.tools())
    first_lines = [tool.description.strip().partition("\n")[0] for tool in found]
    rest = [f"{tool.kind:8}  {cut(first, 90)}" for tool, first in zip(found, first_lines, strict=True)]
    none = "no worker has announced its tools yet; start one with `deputize up`"
    _print_cards(found, rest, none, as_json=as_json)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
def workers(as_json: bool) -> None:
    """List the workers that are alive."""
    found = ask(lambda client: client.workers())
    none = "no worker is alive; start one with `deputize worker`, or all with `deputize up`"
    _print_cards(found, [_state_of(worker) for worker in found], none, as_json=as_json)


def _state_of(worker: WorkerCard) -> str:
    sandbox = "sandbox works" if worker.sandbox is None else f"no sandbox: {worker.sandbox}"
    state = "draining" if worker.draining else "running"
    load = f"{worker.running}/{worker.concurrency} {state}  {worker.model}  {tokens(worker.usage)}"
    return f"{load}  {sandbox}  {worker.version}".rstrip()


def _print_cards(cards: Sequence[ToolCard | WorkerCard], rest: Sequence[str], none: str, *, as_json: bool) -> None:
    """Prints a line for each card, its name and the ``rest``; ``none`` on stderr where there are no cards."""
    width = max((len(card.name) for card in cards), default=0)
    for card, words in zip(cards, rest, strict=True):
        if as_json:
            output.json_line(card.to_json())
        else:
            output.line(f"{card.name:{width}}  {words}")
    if not cards:
        output.note(none)
