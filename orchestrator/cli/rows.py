"""The data of the live table: the state of each delegation, and totals."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import formatting
from .event_lines import event_line, step_line

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.events import AnyEvent
    from ...shared.request import DelegationRequest


@dataclass(slots=True)
class TableRow:
    """The state of one delegation, from its events."""

    id: str
    title: str
    request: DelegationRequest | None = None
    status: str = "queued"
    step: str = ""
    turn: int = 0
    cost: float | None = 0.0
    started: float | None = None
    """Start on the monotonic clock: the service's clock may differ from ours."""

    @classmethod
    def of(cls, delegation: Delegation) -> TableRow:
        """Builds a row from the record, for delegations that started before the command."""
        from ...shared.wire import now

        progress = delegation.progress
        request = delegation.request
        row = cls(delegation.id, request.title, request, str(delegation.status))
        row.turn, row.step = progress.turn, progress.last_tool or ""
        if delegation.started_at is not None:
            row.cost = progress.cost_usd
            since = (now() - delegation.started_at).total_seconds()
            row.started = time.monotonic() - max(since, progress.elapsed_ms / 1000)
        return row

    def elapsed(self) -> float:
        return time.monotonic() - self.started if self.started is not None else 0.0

    def take(self, event: AnyEvent) -> None:
        match event.type:
            case "run_queued":
                self.cost, self.step = 0.0, ""  # its whole history follows
            case "run_started" | "run_resumed":
                self._running()
            case "turn_started":
                self.turn = event.turn
                self._running()
            case "step_started" | "step_completed":
                self.step = step_line(event.step)
                self.status = "running"
            case "replied":
                known = self.cost is not None and event.usage.cost_usd is not None
                self.cost = (self.cost or 0) + (event.usage.cost_usd or 0) if known else None
            case "heartbeat":
                self.turn, self.cost = event.turn, event.cost_usd
                self.started = time.monotonic() - event.elapsed_ms / 1000
            case "permission_requested" | "waiting" | "run_retried":
                self.status = "queued" if event.type == "run_retried" else "waiting"
                self.step = _reason(event) or self.step
            case "permission_answered" | "resumed_waiting":
                self.status = "running"
            case "model_retried" | "progress" | "error":
                self.step = event_line(event) or self.step
            case _:
                pass

    def line(self) -> str:
        """`running: turn 3, ✓ read x.py, 41.0 s, $0.0031`."""
        facts = [f"turn {self.turn}"] if self.turn else []
        facts += [self.step] if self.step else []
        facts += [formatting.seconds(self.elapsed()), formatting.cost(self.cost)] if self.started is not None else []
        return ": ".join(part for part in (self.status, ", ".join(facts)) if part)

    def _running(self) -> None:
        self.status = "running"
        if self.started is None:
            self.started = time.monotonic()


def _reason(event: AnyEvent) -> str | None:
    """Returns why it does nothing now; of a permission request the call, for both of its events."""
    if event.type == "permission_requested":
        return f"asks: {event.step.title}"
    return None if event.type == "waiting" and event.why == "permission" else event_line(event)


class Totals:
    """The outcomes of all delegations that were shown."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.cost = 0.0
        self.cost_known = True

    @property
    def seen(self) -> int:
        return len(self._seen)

    def new(self, id: str) -> bool:
        """Counts a delegation. Returns whether it is new."""
        known = id in self._seen
        self._seen.add(id)
        return not known

    def finished(self, result: ToolAgentResult) -> None:
        self.ended[result.status] += 1
        self.cost += result.usage.cost_usd or 0
        self.cost_known = self.cost_known and result.usage.cost_usd is not None

    def line(self, rows: Sequence[TableRow], hidden: int = 0) -> str:
        """`37/60 finished, 2 failed, 21 running, 2 queued, $0.1200`."""
        parts = [f"{self.ended.total()}/{self.seen} finished"]
        statuses = self.ended + Counter(row.status for row in rows)
        shown = ("failed", "cancelled", "running", "waiting", "queued")
        parts += [f"{statuses[status]} {status}" for status in shown if statuses[status]]
        parts.append(self._spent(rows))
        if hidden:
            parts.append(f"{hidden} more not shown")
        return ", ".join(parts)

    def _spent(self, rows: Sequence[TableRow]) -> str:
        usd = self.cost + sum(row.cost or 0 for row in rows)
        if self.cost_known and all(row.cost is not None for row in rows):
            return formatting.cost(usd)
        return f"at least {formatting.cost(usd)}" if usd else "cost unknown"
