"""Where delegations stand, from their events: the rows of the live table, and what a client that waits is shown."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..shared.wording import dollars, line_of, seconds, step_line, waits_for

if TYPE_CHECKING:
    from ..shared.delegation import Delegation
    from ..shared.events import AnyEvent, Envelope
    from ..shared.request import DelegationRequest

_STATUSES = {
    **dict.fromkeys(("run_started", "run_resumed", "turn_started", "step_started", "step_completed"), "running"),
    **dict.fromkeys(("permission_answered", "resumed_waiting"), "running"),
    **dict.fromkeys(("permission_requested", "waiting"), "waiting"),
    "run_retried": "queued",
}
"""By event, for those that change it."""
_NO_NEWS = {
    *("run_resumed", "turn_started", "replied", "message_received", "message_read", "run_finished"),
}
"""Events after which the delegation still does what it did."""
SHOWN = ("failed", "unproven", "cancelled", "running", "waiting", "queued")
"""The marks and statuses that the totals count."""


def state_of(envelope: Envelope) -> dict[str, str]:
    """Returns what an event changes: the ``status`` of its delegation, and what that does ``now``.

    ``now`` is the line of the event where nothing else stands here. A permission request of a child is an event of its
    parent, too, whose state it does not change.
    """
    event = envelope.event
    if (event.type == "permission_requested" or event.type == "permission_answered") and (
        event.path[-1:] not in ([], [envelope.delegation_id])
    ):
        return {}
    changed = {"status": _STATUSES.get(event.type), "now": _now(event)}
    return {name: value for name, value in changed.items() if value is not None}


def _now(event: AnyEvent) -> str | None:
    match event.type:
        case "run_queued":
            return waits_for([each.id for each in event.request.after])
        case "run_started" | "permission_answered" | "resumed_waiting":
            return ""
        case "step_started" | "step_completed":
            return step_line(event.step)
        case "permission_requested":
            return f"asks: {event.step.title}"
        case "waiting" if event.why == "permission":  # the request has the call
            return None
        case _:
            return None if event.type in _NO_NEWS else line_of(event)


@dataclass(slots=True)
class ChildState:
    """A delegation of a run's call, as the run's own events report it."""

    title: str
    id: str = ""
    step: str = ""


@dataclass(slots=True)
class RunState:
    """The state of one delegation."""

    id: str
    title: str
    request: DelegationRequest | None = None
    status: str = "queued"
    step: str = ""
    turn: int = 0
    cost: float | None = 0.0
    started: float | None = None
    """Start on the monotonic clock: the service's clock may differ from ours."""
    stopped: float | None = None
    """When the connection was lost, while it is."""
    children: dict[str, ChildState] = field(default_factory=dict[str, ChildState])
    """Those that are under way, by the step that waits for them."""

    @classmethod
    def of(cls, delegation: Delegation) -> RunState:
        """Builds the state from the record, for delegations that started before the first event."""
        from ..shared.wire import now

        progress = delegation.progress
        request = delegation.request
        state = cls(delegation.id, request.title, request, str(delegation.status))
        state.turn, state.step = progress.turn, progress.last_tool or waits_for(delegation.waits_for)
        if delegation.started_at is not None:
            state.cost = progress.cost_usd
            since = (now() - delegation.started_at).total_seconds()
            state.started = time.monotonic() - max(since, progress.elapsed_ms / 1000)
        return state

    def elapsed(self) -> float:
        return (self.stopped or time.monotonic()) - self.started if self.started is not None else 0.0

    def take(self, envelope: Envelope) -> None:
        event, changed = envelope.event, state_of(envelope)
        self.status, self.step = changed.get("status", self.status), changed.get("now", self.step)
        if self.started is None and self.status == "running":
            self.started = time.monotonic()
        match event.type:
            case "run_queued":
                self.title, self.cost = event.request.title, 0.0  # its whole history follows
            case "turn_started":
                self.turn = event.turn
            case "replied":
                known = self.cost is not None and event.usage.cost_usd is not None
                self.cost = (self.cost or 0) + (event.usage.cost_usd or 0) if known else None
            case "heartbeat":
                self.turn, self.cost = event.turn, event.cost_usd
                self.started = time.monotonic() - event.elapsed_ms / 1000
            case _:
                self._take_child(event)

    def _take_child(self, event: AnyEvent) -> None:
        match event.type:
            case "step_started" if event.step.type == "delegate":
                self.children[event.step.id] = ChildState(event.step.title)
            case "step_updated" if child := self.children.get(event.step_id):
                child.id = str(event.metadata.get("delegationId", child.id))
                child.step = str(event.metadata.get("step", child.step))
            case "step_completed":
                self.children.pop(event.step.id, None)
            case "run_started" | "run_resumed" | "run_retried":
                self.children.clear()  # an earlier attempt's calls have no end
            case _:
                pass

    def line(self) -> str:
        """`running: turn 3, ✓ read x.py, 41.0 s, $0.0031`."""
        facts = [f"turn {self.turn}"] if self.turn else []
        facts += [self.step] if self.step else []
        if self.started is not None:  # while it waits, its time is paused
            facts += [*([] if self.status == "waiting" else [seconds(self.elapsed())]), dollars(self.cost)]
        return ": ".join(part for part in (self.status, ", ".join(facts)) if part)


class RunStates:
    """The unfinished delegations that are followed, and the outcomes of the finished ones."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.stopped = False
        """Whether the connection is lost, so that nothing is known of what goes on."""
        self.open: dict[str, RunState] = {}
        self.ended: Counter[str] = Counter()
        self._cost = 0.0
        self._cost_known = True

    @property
    def several(self) -> bool:
        return len(self._seen) > 1

    @property
    def is_running(self) -> bool:
        return any(state.status == "running" for state in self.open.values())

    def children_of(self, state: RunState) -> list[ChildState]:
        """Returns its children that are under way and have no state of their own here."""
        return [child for child in state.children.values() if child.id not in self._seen]

    def add(self, delegation: Delegation) -> None:
        if delegation.id not in self._seen:
            self._seen.add(delegation.id)
            self.open[delegation.id] = RunState.of(delegation)

    def stop_clocks(self, *, stopped: bool) -> None:
        self.stopped = stopped
        for state in self.open.values():
            state.stopped = time.monotonic() if stopped else None

    def take(self, envelope: Envelope) -> RunState | None:
        """Returns the delegation's state after the event; None for an event after the last one."""
        id, event = envelope.delegation_id, envelope.event
        if id not in self._seen:
            self._seen.add(id)
            self.open[id] = RunState(id, id)
        state = self.open.get(id)
        if state is not None:
            state.take(envelope)
            if event.type == "run_finished":
                del self.open[id]
                cost = event.result.usage.cost_usd
                self.ended[event.result.mark] += 1
                self._cost += cost or 0
                self._cost_known = self._cost_known and cost is not None
        return state

    def line(self) -> str:
        """Returns the state of the only delegation, or the totals of several; "" where all are finished."""
        if not self.open:
            return ""
        return self.totals() if self.several else next(iter(self.open.values())).line()

    def totals(self, hidden: int = 0) -> str:
        """`37/60 finished, 2 failed, 1 unproven, 21 running, 2 queued, $0.1200`."""
        parts = [f"{self.ended.total()}/{len(self._seen)} finished"]
        counts = self.ended + Counter(state.status for state in self.open.values())
        parts += [f"{counts[name]} {name}" for name in SHOWN if counts[name]]
        parts.append(self._spent())
        if hidden:
            parts.append(f"{hidden} more not shown")
        return ", ".join(parts)

    def _spent(self) -> str:
        usd = self._cost + sum(state.cost or 0 for state in self.open.values())
        if self._cost_known and all(state.cost is not None for state in self.open.values()):
            return dollars(usd)
        return f"at least {dollars(usd)}" if usd else "cost unknown"
