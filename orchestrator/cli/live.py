"""Watching delegations on stderr: a table that moves where there is a terminal, else a line for every change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from orchestrator.cli import output, words
from shared.visible import visible

if TYPE_CHECKING:
    from shared.delegation import Delegation
    from shared.events import AnyEvent, Envelope

STATUS_STYLES = {
    "queued": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
}


@dataclass(slots=True)
class Row:
    """Where one delegation stands, as its events told."""

    id: str
    title: str
    status: str = "queued"
    step: str = ""
    turn: int = 0
    cost: float | None = 0.0
    started: float | None = None
    """Of the monotonic clock: the service's clock may differ from ours."""
    took: float | None = None

    def elapsed(self) -> float:
        if self.took is not None:
            return self.took
        return time.monotonic() - self.started if self.started is not None else 0.0

    def take(self, event: AnyEvent) -> None:
        match event.type:
            case "run_started" | "run_resumed":
                self._running()
            case "turn_started":
                self.turn = event.turn
                self._running()
            case "step_started" | "step_completed":
                self.step = words.step_line(event.step)
                self.status = "running"
            case "replied":
                known = self.cost is not None and event.usage.cost_usd is not None
                self.cost = (self.cost or 0) + (event.usage.cost_usd or 0) if known else None
            case "heartbeat":
                self.turn, self.cost = event.turn, event.cost_usd
                self.started = time.monotonic() - event.elapsed_ms / 1000
            case "permission_requested":
                self.status, self.step = "waiting", f"permission {event.permission_id}: {event.step.title}"
            case "permission_answered":
                self.status = "running"
            case "run_finished":
                result = event.result
                self.status, self.turn, self.cost = str(result.status), result.turn_count, result.usage.cost_usd
                self.took = result.execution_time_ms / 1000
                self.step = str(result.termination_reason)
            case "model_retried" | "progress" | "error":
                self.step = words.event_line(event) or self.step
            case _:
                pass

    def _running(self) -> None:
        self.status = "running"
        if self.started is None:
            self.started = time.monotonic()


class Display(Protocol):
    """Shows events while its block lasts. ``tells_ends``: whether how a delegation ended is said in full."""

    tells_ends: bool

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def add(self, delegation: Delegation) -> None:
        """Makes a delegation known; its events come later."""
        ...

    def event(self, envelope: Envelope) -> None: ...
    def note(self, text: str) -> None:
        """Says something that is no event, without tearing a table."""
        ...


class Lines:
    """For files, pipes and plain terminals."""

    tells_ends = True

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add(self, delegation: Delegation) -> None:
        self._titles[delegation.id] = words.cut(delegation.request.title, 32)

    def event(self, envelope: Envelope) -> None:
        if (line := words.event_line(envelope.event)) is not None:
            many = len(self._titles) > 1
            self.note(f"[{self._titles.get(envelope.delegation_id, envelope.delegation_id)}] {line}" if many else line)

    def note(self, text: str) -> None:
        output.line(text, err=True)


class Table:
    """For people at a terminal: one row a delegation, in the order in which they were added."""

    tells_ends = False

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._rows: dict[str, Row] = {}
        self._console = Console(stderr=True)
        self._live = Live(
            console=self._console,
            get_renderable=self._drawn,
            refresh_per_second=4,
            # What a command prints goes to stdout; only our own notes may move the table.
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, delegation: Delegation) -> None:
        self._rows.setdefault(delegation.id, Row(delegation.id, delegation.request.title, str(delegation.status)))

    def event(self, envelope: Envelope) -> None:
        row = self._rows.setdefault(envelope.delegation_id, Row(envelope.delegation_id, envelope.delegation_id))
        row.take(envelope.event)

    def note(self, text: str) -> None:
        self._console.print(visible(text), markup=False, highlight=False)

    def _drawn(self) -> Any:
        return drawn(self._rows.values())


def drawn(rows: Iterable[Row]) -> Any:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, expand=True)
    grid.add_column("TASK", ratio=3, no_wrap=True)
    grid.add_column("STATUS", width=9, no_wrap=True)
    grid.add_column("LAST STEP", ratio=4, no_wrap=True)
    grid.add_column("TURN", justify="right")
    grid.add_column("TIME", justify="right", min_width=8, no_wrap=True)
    grid.add_column("COST", justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(
            Text(visible(row.title)),
            Text(row.status, STATUS_STYLES.get(row.status, "")),
            Text(visible(row.step), "dim"),
            str(row.turn or ""),
            words.seconds(row.elapsed()),
            words.cost(row.cost),
        )
    return grid


def display() -> Display:
    """The table where stderr is a terminal that can move its cursor, else lines."""
    if not sys.stderr.isatty():
        return Lines()
    from rich.console import Console

    return Lines() if Console(stderr=True).is_dumb_terminal else Table()
