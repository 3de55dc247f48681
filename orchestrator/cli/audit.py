"""`deputize audit`: who changed something, and who was refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from . import formatting, output
from .connect import connect, load_settings
from .errors import Exit

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..audit_log import AuditEntry, AuditPage

SHOWN_IDS = 3


@click.command()
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, metavar="N", help="How many.")
@click.option("--cursor", metavar="ID", help="Only what precedes the entry of this id, as --json shows it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def audit(ctx: click.Context, limit: int, cursor: str | None, as_json: bool) -> Exit:
    """List the requests that changed something or were refused, newest first. It needs a token with the scope admin.

    It holds the name of the token, the address, the route, the delegations and the status; no token and no body.
    """
    page = asyncio.run(_audit(load_settings(ctx), limit, cursor))
    if as_json:
        for item in page.items:
            output.json_line(item.to_json())
    elif page.items:
        for row in formatting.columns([("at", "token", "client", "request", "status", "delegations"), *_rows(page)]):
            output.line(row.rstrip())
    else:
        output.line("no request has changed anything or was refused yet", err=True)
    if page.next_cursor:
        output.line(f"there are more: --cursor {page.next_cursor}", err=True)
    return Exit.SUCCEEDED


async def _audit(settings: Settings, limit: int, cursor: str | None) -> AuditPage:
    async with connect(settings) as service:
        return await service.client.audit(limit, cursor)


def _rows(page: AuditPage) -> list[tuple[str, ...]]:
    return [
        (
            f"{item.at:%Y-%m-%d %H:%M:%S}",
            item.token or "–",
            item.client or "–",
            f"{item.method} {item.route}" + (f" ({item.tool})" if item.tool else ""),
            str(item.status) + (f" ×{item.count}" if item.count > 1 else ""),
            _ids(item),
        )
        for item in page.items
    ]


def _ids(item: AuditEntry) -> str:
    ids = item.delegation_ids
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return " ".join(map(formatting.short_id, ids[:SHOWN_IDS])) + more
