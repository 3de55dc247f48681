"""One atomic write of a run: additions to its events, history, ledger, fields and artifacts, for ``record.lua``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ..shared.connection import Pipe
from ..shared.errors import Fenced
from ..shared.events import Envelope, Event, PermissionAnswered, PermissionRequested, TextDelta, ThinkingDelta, capped
from ..shared.masking import SecretMask
from ..shared.runs.keys import EVENTS, LEASES, PENDING, channel, keys_of
from ..shared.runs.record import Claim
from ..shared.runs.store import RECORD
from ..shared.wire import now


@dataclass(frozen=True, slots=True)
class RunUpdate:
    """One write. ``before`` is the history's length before ``history`` is appended."""

    events: Sequence[tuple[int, str]] = ()
    before: int = 0
    history: Sequence[str] = ()
    ledger: Sequence[tuple[str, str]] = ()
    """Ledger entries by call id, in order; the call id "" clears the ledger."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    artifacts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields of the hash of artifacts (``shared/runs/record.py``)."""
    permissions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields of the hash of permissions (``shared/runs/permissions.py``); one that exists stays as it is."""
    path: str = ""
    """The ids from the root of the run tree to this run, where permissions are requested."""
    retry_ms: int | None = None
    """If set, the write drops history, ledger and kit, releases the fence and queues the run for that time later."""
    retention: int = 0
    """Seconds every key of the run is kept; above 0 the write ends the run and releases the fence."""

    def call(self, id: str, fence: str) -> tuple[list[str], dict[str, Any], list[Any]]:
        """Returns keys, named arguments and values for the record script."""
        arguments = {
            "id": id,
            "fence": fence,
            "channel": EVENTS,
            "retention_seconds": self.retention,
            "before": self.before,
            "events": len(self.events),
            "history": len(self.history),
            "ledger": len(self.ledger),
            "fields": len(self.fields),
            "artifacts": len(self.artifacts),
            "permissions": len(self.permissions),
            "path": self.path,
        }
        if self.retry_ms is not None:
            arguments["retry_ms"] = self.retry_ms
        pairs = chain(self.ledger, self.fields.items(), self.artifacts.items(), self.permissions.items())
        values = [*chain.from_iterable(self.events), *self.history, *chain.from_iterable(pairs)]
        return [LEASES, PENDING, *keys_of(id)], arguments, values


FRAME_SECONDS = 0.05
"""Seconds: text deltas are batched into at most one frame per interval."""


class Emitter:
    """The event writer of one run. ``on_fenced`` is called when another worker owns the run."""

    def __init__(self, pipe: Pipe, claim: Claim, secrets: Sequence[str], on_fenced: Callable[[], None]) -> None:
        self._pipe = pipe
        self._claim = claim
        self._mask = SecretMask(secrets)
        self._on_fenced = on_fenced
        self._seq = claim.seq
        self._length = len(claim.history)
        self._events: list[tuple[int, str]] = []
        self._entries: list[str] = []
        self._ledger: list[tuple[str, str]] = []
        self._fields: dict[str, str] = {}
        self._artifacts: dict[str, str] = {}
        self._permissions: dict[str, str] = {}
        self._flushing: asyncio.Handle | None = None
        self._last: asyncio.Future[Any] | None = None
        self._delta: tuple[type[TextDelta | ThinkingDelta], int, list[str]] | None = None
        self._frame: asyncio.TimerHandle | None = None
        self._fenced = False
        self.handed_over = False
        """Whether the run was handed over: nothing more is written."""
        self._retention = 0
        self._retry_ms: int | None = None

    def add_secrets(self, secrets: Sequence[str]) -> None:
        """Adds values to be masked from now on."""
        self._mask.add(secrets)

    def emit(self, event: Event) -> None:
        """Publishes an event; a durable one is stored and numbered."""
        self._send_delta()
        if event.durable:
            self._seq += 1
            self._events.append((self._seq, self._encode(event, self._seq)))
            self._schedule()
        else:
            self._publish(event)

    def request_permission(self, event: PermissionRequested, fields: Mapping[str, str]) -> None:
        """Publishes a permission request of this run, and stores it with further ``fields`` in the same write."""
        self.emit(event)
        _, stored = self._events[-1]
        self._permissions |= {event.permission_id: stored} | {
            name: self.masked_json(value) for name, value in fields.items()
        }

    def emit_marked(self, event: PermissionRequested | PermissionAnswered, mark: str) -> None:
        """Publishes an event of a permission; the mark, stored in the same write, shows later attempts that it is."""
        self.emit(event)
        self._permissions[mark] = "1"

    def delta(self, kind: type[TextDelta | ThinkingDelta], turn: int, text: str) -> None:
        """Appends to the live text, which is sent in frames instead of token by token."""
        if self._delta is not None and self._delta[0] is not kind:
            self._send_delta()
        if self._delta is None:
            self._delta = (kind, turn, [])
        self._delta[2].append(text)
        if self._frame is None:
            self._frame = asyncio.get_running_loop().call_later(FRAME_SECONDS, self._send_frame)

    def store_message(self, entry: bytes) -> None:
        """Appends a message to the stored history."""
        self._entries.append(entry.decode())
        self._schedule()

    def set_call_state(self, call: str, state: str) -> None:
        """Writes the state of a call to the ledger; the call "" clears the ledger."""
        self._ledger.append((call, state))
        self._schedule()

    def set(self, fields: Mapping[str, str]) -> None:
        """Sets fields of the record, in the same write as the other changes of this tick."""
        self._fields |= fields
        self._schedule()

    def flush(self) -> None:
        """Sends what is to be written without waiting for more, because somebody waits for it."""
        self._flush()
        self._pipe.flush()

    async def settled(self) -> None:
        """Returns when all writes are stored. Raises ``Fenced`` where another worker owns the run."""
        self.flush()
        if self._last is not None:
            await asyncio.shield(self._last)
        if self._fenced:
            raise Fenced

    async def finish(
        self, event: Event, fields: Mapping[str, str], retention: int, artifacts: Mapping[str, str] | None = None
    ) -> None:
        """Writes the result, ``run_finished`` and the artifacts and releases the lease, in one write."""
        self.emit(event)
        self._fields |= fields
        self._artifacts |= artifacts or {}
        self._retention = retention
        await self.settled()

    async def retry(self, event: Event, fields: Mapping[str, str], seconds: float) -> None:
        """Writes that the run is done again from the start, so many seconds from now, and releases the lease."""
        self.emit(event)
        self._fields |= fields
        self._retry_ms = round(seconds * 1000)
        await self.settled()

    def hand_over(self) -> None:
        """Flushes what is pending and writes nothing more: the run is handed over.

        Output of calls that are being stopped could be taken for their results. So the next attempt finds these calls
        as after a crash, and settles them.
        """
        self._flush()
        self.handed_over = True

    def close(self) -> None:
        for handle in (self._flushing, self._frame):
            if handle is not None:
                handle.cancel()
        self._delta = None

    def _schedule(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._fenced or self.handed_over:
            return
        if not (self._events or self._entries or self._ledger or self._fields or self._retention):
            return
        writing = RunUpdate(
            events=self._events,
            before=self._length,
            history=self._entries,
            ledger=self._ledger,
            fields=self._fields,
            artifacts=self._artifacts,
            permissions=self._permissions,
            path=" ".join(self._claim.path),
            retry_ms=self._retry_ms,
            retention=self._retention,
        )
        self._length += len(self._entries)
        self._events, self._entries, self._ledger, self._fields, self._artifacts = [], [], [], {}, {}
        self._permissions = {}
        self._last = self._pipe.script(RECORD, *writing.call(self._claim.id, self._claim.fence))
        self._last.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() == "fenced" and not self._fenced:
            self._fenced = True
            self._on_fenced()

    def _send_delta(self) -> None:
        """Publishes all pending live text, before another event."""
        if (delta := self._taken_delta()) is not None:
            kind, turn, text = delta
            self._publish(kind(turn=turn, text=text))

    def _send_frame(self) -> None:
        """Publishes live text; a suffix that may be the beginning of a secret is held back until more text follows."""
        if (delta := self._taken_delta()) is None:
            return
        kind, turn, text = delta
        if ready := text[: len(text) - self._mask.open_end(text)]:
            self._publish(kind(turn=turn, text=ready))
        if len(ready) < len(text):
            self._delta = (kind, turn, [text[len(ready) :]])

    def _taken_delta(self) -> tuple[type[TextDelta | ThinkingDelta], int, str] | None:
        if self._frame is not None:
            self._frame.cancel()
            self._frame = None
        if self._delta is None:
            return None
        (kind, turn, texts), self._delta = self._delta, None
        return kind, turn, "".join(texts)

    def _publish(self, event: Event) -> None:
        """Publishes a transient frame, after all durable events emitted before it."""
        self._flush()
        if not (self._fenced or self.handed_over):
            self._pipe.publish(channel(self._claim.id), self._encode(event, None))

    def _encode(self, event: Event, seq: int | None) -> str:
        envelope = Envelope.model_construct(
            delegation_id=self._claim.id, seq=seq, at=now(), attempt=self._claim.attempt, event=event
        )
        return capped(self._mask.json(envelope.to_json()))

    def masked(self, text: str) -> str:
        """Returns the text with every known secret value replaced."""
        return self._mask.text(text)

    def masked_json(self, text: str) -> str:
        """Returns JSON text with every known secret value in its strings replaced."""
        return self._mask.json(text)
