"""The table of unfinished delegations, limited to the terminal's height."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...shared.lines import SHORT_ID, dollars, seconds, short_id
from ...shared.text import visible
from ..run_states import RunState, RunStates

STATUS_STYLES = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
}
NARROW = 100
"""Columns below which the table leaves some out."""
OTHER_LINES = 6
"""Lines for the header, the totals, the cursor, and some of the output above."""
ORDER = {"waiting": 0, "running": 1}


def table_lines(console: Console, states: RunStates, taken: int = 0) -> list[str]:
    """Returns the lines for the bottom of the terminal, of which so many lines are taken; one line for one row."""
    rows = [*states.open.values()]
    room = max(1, console.height - OTHER_LINES - taken)
    first = sorted(rows, key=lambda row: ORDER.get(row.status, len(ORDER)))[:room]
    with console.capture() as captured:
        if not states.several:
            for row in rows:
                line = Text(visible(row.line()), no_wrap=True, overflow="ellipsis")
                line.stylize(STATUS_STYLES.get(row.status, ""), 0, len(row.status))
                console.print(line)
        else:
            if first:
                console.print(_grid(first, console.width))
            footer = states.totals(len(rows) - len(first))
            console.print(Text(footer, "bold", no_wrap=True, overflow="ellipsis"))
    return captured.get().splitlines()


def _grid(rows: Sequence[RunState], width: int) -> Table:
    """A narrow terminal leaves out what matters least."""
    narrow = width < NARROW
    grid = Table(box=None, pad_edge=False, expand=True)
    cells: list[Callable[[RunState], Text | str]] = []

    def column(name: str, cell: Callable[[RunState], Text | str], **how: Any) -> None:
        grid.add_column(name, no_wrap=True, **how)
        cells.append(cell)

    column("TASK", lambda row: Text(visible(row.title)), ratio=4)
    column("ID", lambda row: Text(short_id(row.id), "dim"), width=SHORT_ID + 1)
    column("STATUS", lambda row: Text(row.status, STATUS_STYLES.get(row.status, "")), width=9)
    column("LAST STEP", lambda row: Text(visible(row.step), "dim"), ratio=3)
    if not narrow:
        column("TURN", lambda row: str(row.turn or ""), justify="right")
    column("TIME", lambda row: seconds(row.elapsed()), justify="right", min_width=8)
    column("COST", lambda row: dollars(row.cost), justify="right")
    for row in rows:
        grid.add_row(*(cell(row) for cell in cells))
    return grid
