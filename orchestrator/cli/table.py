"""The table of unfinished delegations, limited to the terminal's height."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from deputize.orchestrator.cli import formatting
from deputize.orchestrator.cli.rows import TableRow, Totals
from deputize.shared.text import visible

STATUS_STYLES = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
}
OTHER_LINES = 6
"""Lines for the header, the totals, the cursor, and some of the output above."""
SHORT_ID = 6
"""Characters of an id's end that are shown; commands accept them as the id."""


def table_lines(console: Console, rows: Sequence[TableRow], totals: Totals) -> list[str]:
    """Returns the lines for the bottom of the terminal."""
    room = max(1, console.height - OTHER_LINES)
    # Running ones first, then waiting ones.
    first = sorted(rows, key=lambda row: row.status == "queued")[:room]
    with console.capture() as captured:
        if first:
            console.print(_grid(first))
        if totals.seen > 1:
            footer = _totals(rows, totals, len(rows) - len(first))
            console.print(Text(footer, "bold", no_wrap=True, overflow="ellipsis"))
    return captured.get().splitlines()


def _grid(rows: Sequence[TableRow]) -> Table:
    grid = Table(box=None, pad_edge=False, expand=True)
    grid.add_column("ID", width=SHORT_ID + 1, no_wrap=True)
    grid.add_column("TASK", ratio=3, no_wrap=True)
    grid.add_column("STATUS", width=9, no_wrap=True)
    grid.add_column("LAST STEP", ratio=4, no_wrap=True)
    grid.add_column("TURN", justify="right")
    grid.add_column("TIME", justify="right", min_width=8, no_wrap=True)
    grid.add_column("COST", justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(
            Text("…" + row.id[-SHORT_ID:], "dim"),
            Text(visible(row.title)),
            Text(row.status, STATUS_STYLES.get(row.status, "")),
            Text(visible(row.step), "dim"),
            str(row.turn or ""),
            formatting.seconds(row.elapsed()),
            formatting.cost(row.cost),
        )
    return grid


def _totals(rows: Sequence[TableRow], totals: Totals, hidden: int) -> str:
    """`37/60 finished, 2 not succeeded, 21 running, 2 queued, $0.1200`."""
    parts = [f"{totals.ended}/{totals.seen} finished"]
    if totals.failed:
        parts.append(f"{totals.failed} failed")
    statuses = Counter(row.status for row in rows)
    parts += [f"{statuses[status]} {status}" for status in ("running", "waiting", "queued") if statuses[status]]
    known = totals.cost_known and all(row.cost is not None for row in rows)
    spent = formatting.cost(totals.cost + sum(row.cost or 0 for row in rows))
    parts.append(spent if known else f"{spent} and what has no known price")
    if hidden:
        parts.append(f"{hidden} more not shown")
    return ", ".join(parts)
