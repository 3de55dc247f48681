"""What a run writes: its events, masked and numbered, live text in frames, and the other fields of its record.

Each write is atomic, and a worker that has lost its lease can make none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ...shared.delegation import Status
from ...shared.errors import Fenced
from ...shared.event_size import capped
from ...shared.events import Envelope, Event, PermissionAnswered, PermissionRequested, TextDelta, ThinkingDelta
from ...shared.masking import SecretMask
from ...shared.metrics import OTHER
from ...shared.runs.permission_fields import withdrawn_mark
from ...shared.runs.record import Claim, compressed, place_of, reference
from ...shared.wire import now


@dataclass(slots=True)
class RunUpdate:
    """One write, collected step by step. ``number`` counts those of an attempt.

    A run makes one for every write, and a factory such as ``dict[str, str]`` takes six times as long as ``dict``.
    """

    number: int = 1
    events: list[tuple[int, str]] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)  # how an event is stored, if not as it is
    history: list[str] = field(default_factory=list)
    ledger: dict[str, str] = field(default_factory=dict)
    """Ledger entries by call id, in order; the call id "" clears the ledger."""
    fields: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    """Fields of the hash of artifacts (``shared/runs/record.py``)."""
    permissions: dict[str, str] = field(default_factory=dict)
    """Fields of the hash of permissions (``shared/runs/permission_fields.py``); one that exists stays as it is."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the events add to the metrics (``shared/metrics.py``)."""
    model: str = OTHER
    """The label of the metrics of what the run has spent."""
    notifications: list[tuple[str, str]] = field(default_factory=list)
    """Of the run's webhook, for ``notify.lua``."""
    path: str = ""
    """The ids from the root of the run tree to this run, where permissions are requested."""
    begins: bool = False
    """Whether something follows that cannot be undone."""
    retry_ms: int | None = None
    """If set, the write drops history, ledger and kit, releases the fence and queues the run for that time later."""
    retention: int = 0
    """Seconds every key of the run is kept; above 0 the write ends the run and releases the fence."""


class Record(Protocol):
    """Where runs are kept: ``RedisRecord``, which all workers share."""

    def write(self, id: str, fence: str, update: Callable[[], RunUpdate]) -> asyncio.Future[Any]:
        """Queues an update of a run, which is applied as a whole; until it is sent, what ``update`` returns can grow.

        The future returns "written", or how many messages were sent to the run if there are any, or "fenced" where
        nothing was applied, because the run has another fence.
        """
        ...

    def publish(self, id: str, frame: str) -> None:
        """Sends live text to those who follow the run; it is not kept."""
        ...

    def flush(self) -> None:
        """Sends what is queued without waiting for more."""
        ...


Listener = Callable[[Event, int | None], None]
"""Called with each event that a run publishes, but for its live text, and with the number of a durable one."""
FRAME_SECONDS = 0.05
"""Seconds: text deltas are batched into at most one frame per interval."""


class Emitter:
    """The event writer of one run. ``on_fenced`` is called when another worker owns the run."""

    def __init__(self, record: Record, claim: Claim, secrets: Sequence[str], on_fenced: Callable[[], None]) -> None:
        self._record = record
        self._claim = claim
        self.mask = SecretMask(secrets)
        """Masks every known secret value in what leaves the run."""
        self._on_fenced = on_fenced
        self.on_messages: Callable[[int], None] = lambda stored: None
        """Called with the number of messages that were sent to the run, after each write, if there are any."""
        self.listeners: Sequence[Listener] = ()
        """What they store is in the same write as a durable event."""
        self.model = OTHER
        """The label of the run's model in the metrics."""
        self.room: Callable[[int], str] = lambda size: ""
        """Returns why the record's disk has no room for a record of so many bytes; "" where it has."""
        self.stored = sum(map(len, claim.history))  # bytes in the record's store, about
        self._counts = Counter[str]()
        self._seq = claim.seq
        self._update = RunUpdate(path=" ".join(claim.path))
        self._references: dict[str, str] = {}  # what stands for long texts of the turn's events
        self._queued = False
        self._last: asyncio.Future[Any] | None = None
        self._delta: tuple[type[TextDelta | ThinkingDelta], int, list[str]] | None = None
        self._frame: asyncio.TimerHandle | None = None
        self._fenced = False
        self._at_end: list[Event] = []
        self.handed_over = False
        """Whether the run was handed over: nothing more is written."""

    def emit(self, event: Event, text: str = "") -> None:
        """Publishes an event; a durable one is stored and numbered. What repeats ``text`` in its turn refers to it."""
        self._send_delta()
        if event.durable:
            self._seq += 1
            encoded = self._encode(event, self._seq)
            self._update.events.append((self._seq, encoded))
            self._update.stored[self._seq] = kept = compressed(encoded)
            self.stored += len(kept or encoded)
            self._references |= reference(self._seq, encoded, text)
            self._inform(event, self._seq)
            if self._counts:
                self._update.counts.update(self._counts)
                self._counts.clear()
            self._queue()
        else:
            self._publish(event)
            self._inform(event, None)

    def emit_at_end(self, event: Event) -> None:
        """Publishes an event in the last write, before the last one: once, whatever becomes of a worker."""
        self._at_end.append(event)

    def count(self, counts: Mapping[str, int]) -> None:
        """Adds to the metrics, in the write of the next durable event: only events are known to be stored once."""
        for name, amount in counts.items():
            self._counts[name] += amount

    def notify(self, notifications: Sequence[tuple[str, str]]) -> None:
        """Queues notifications of the run's webhook, in the same write as the event that is being published."""
        self._update.notifications += notifications

    def request_permission(self, event: PermissionRequested, fields: Mapping[str, str]) -> None:
        """Publishes a permission request of this run, and stores it with further ``fields`` in the same write."""
        self.emit(event)
        _, stored = self._update.events[-1]
        self._update.permissions |= {event.permission_id: stored} | {
            name: self.mask.json(value) for name, value in fields.items()
        }

    def ask_again(self, id: str, request: str) -> None:
        """Stores an earlier attempt's request again, so that it can be answered after it was withdrawn."""
        self._update.permissions[id] = request
        self._queue()

    def withdraw_permissions(self, ids: Iterable[str]) -> None:
        """Marks these requests as withdrawn, in the same write as the other changes: later answers are refused."""
        self._update.permissions |= {withdrawn_mark(id): "1" for id in ids}
        self._queue()

    def emit_marked(self, event: PermissionRequested | PermissionAnswered, mark: str) -> None:
        """Publishes an event of a permission; the mark, stored in the same write, shows later attempts that it is."""
        self.emit(event)
        self._update.permissions[mark] = "1"

    def delta(self, kind: type[TextDelta | ThinkingDelta], turn: int, text: str) -> None:
        """Appends to the live text, which is sent in frames instead of token by token."""
        if self._delta is not None and self._delta[0] is not kind:
            self._send_delta()
        if self._delta is None:
            self._delta = (kind, turn, [])
        self._delta[2].append(text)
        if self._frame is None:
            send = partial(self._send_delta, complete=False)
            self._frame = asyncio.get_running_loop().call_later(FRAME_SECONDS, send)

    def store_message(self, entry: bytes) -> None:
        """Appends a message to the stored history."""
        self._send_delta()  # it ends a write: the message is in one with the events and counts that follow it
        self._update.history.append(kept := self._referred(entry.decode()))
        self.stored += len(kept)
        self._queue()

    def set_call_state(self, call: str, state: str) -> None:
        """Writes the state of a call to the ledger; the call "" clears the ledger, with what it would only delete."""
        if not call:
            self._update.ledger.clear()
            self._references.clear()
        self._update.ledger[call] = kept = self._referred(state)
        self.stored += len(kept)
        self._queue()

    def set(self, fields: Mapping[str, str]) -> None:
        """Sets fields of the record, in the same write as the other changes that wait to be sent."""
        self._update.fields |= fields
        self._queue()

    def lacks_room(self, more: int = 0) -> str:
        """Returns why the record's disk has no room for so many bytes more of this run; "" where it has."""
        return self.room(self.stored + more)

    def flush(self) -> None:
        """Sends what is to be written without waiting for more, because its reader waits for it."""
        self._record.flush()

    async def settled(self) -> None:
        """Returns when all writes are stored. Raises ``Fenced`` where another worker owns the run."""
        self.flush()
        if self._last is not None:
            await asyncio.shield(self._last)
            await asyncio.sleep(0)  # where it was done before, the call of _written may still be to come
        if self._fenced:
            raise Fenced

    async def begins(self) -> None:
        """Waits until enough replicas have acknowledged all writes. Call it before an effect that cannot be undone.
        Raises ``Fenced``, and ``Unavailable`` where that takes too long."""
        self._queue()
        self._update.begins = True
        await self.settled()

    async def check_fence(self) -> None:
        """Stops the run and raises ``Fenced`` where another worker owns it."""
        self.set({"status": Status.RUNNING.value})
        await self.settled()

    async def end(
        self,
        event: Event,
        fields: Mapping[str, str],
        *,
        retention: int | None = None,
        artifacts: Mapping[str, str] = {},
        retry_ms: int | None = None,
    ) -> None:
        """Writes the last event of the run (``retention``) or of a try before another one (``retry_ms``), and releases
        the lease. Raises ValueError unless there is exactly one of the two."""
        if (retention is None) == (retry_ms is None):
            raise ValueError("give either retention or retry_ms")
        for each in (*self._at_end, event):
            self.emit(each)
        self._update.fields |= fields
        self._update.artifacts |= artifacts
        self._update.retention, self._update.retry_ms = retention or 0, retry_ms
        await self.settled()

    def hand_over(self) -> None:
        """Writes nothing more than what is queued: the run is handed over.

        Output of calls that are being stopped could be taken for their results. So the next attempt finds these calls
        as after a crash, and settles them.
        """
        self._seal()
        self.handed_over = True

    def close(self) -> None:
        if self._frame is not None:
            self._frame.cancel()
        self._delta = None

    def _inform(self, event: Event, number: int | None) -> None:
        for hears in self.listeners:
            hears(event, number)

    def _queue(self) -> None:
        """Queues the write of what changed; until it is sent, further changes join it."""
        if not (self._queued or self._fenced or self.handed_over):
            self._queued = True
            sealed = partial(self._sealed, self._update)
            self._last = self._record.write(self._claim.id, self._claim.fence, sealed)
            self._last.add_done_callback(self._written)

    def _sealed(self, update: RunUpdate) -> RunUpdate:
        self._seal()
        update.model = self.model
        return update

    def _seal(self) -> None:
        """Lets further changes be another write."""
        self._update = RunUpdate(self._update.number + self._queued, path=self._update.path)
        self._queued = False

    def _referred(self, entry: str) -> str:
        for text, stands_for_it in sorted(self._references.items(), reverse=True):  # one may begin with another
            while (begin := place_of(text, entry)) >= 0:
                entry = entry[:begin] + stands_for_it + entry[begin + len(text) :]
        return entry

    def _written(self, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None or self._fenced:
            return
        if (answer := done.result()) == "fenced":
            self._fenced = True
            self._on_fenced()
        elif answer != "written":
            self.on_messages(int(answer))

    def _send_delta(self, *, complete: bool = True) -> None:
        """Publishes pending live text: before another event all of it.

        Where more may follow (not ``complete``), a suffix that may be the beginning of a secret is held back.
        """
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if self._delta is None:
            return
        (kind, turn, texts), self._delta = self._delta, None
        text = "".join(texts)
        ready = text if complete else text[: len(text) - self.mask.open_end(text)]
        if len(ready) < len(text):
            self._delta = (kind, turn, [text[len(ready) :]])
        if ready:
            self._publish(kind(turn=turn, text=ready))

    def _publish(self, event: Event) -> None:
        """Publishes a transient frame, after all durable events emitted before it."""
        self._seal()
        if not (self._fenced or self.handed_over):
            self._record.publish(self._claim.id, self._encode(event, None))

    def _encode(self, event: Event, seq: int | None) -> str:
        envelope = Envelope.model_construct(
            delegation_id=self._claim.id, seq=seq, at=now(), attempt=self._claim.attempt, event=event
        )
        return capped(self.mask.json(envelope.to_json()))
