"""A record of one run in memory. ``tests/contracts/test_records.py`` holds it to what Redis does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from deputize.shared.request import DelegationRequest
from deputize.shared.runs.record import Claim
from deputize.worker.core.emit import RunUpdate


class MemoryRecord:
    """Keeps what a run writes, for an attempt that goes on with it."""

    def __init__(self) -> None:
        self.fence = self.finisher = ""
        self.attempt = self.seq = self.written = 0
        self.events: list[str] = []
        self.history: list[str] = []
        self.ledger: dict[str, str] = {}
        self.fields: dict[str, str] = {}
        self.frames: list[str] = []

    def claim(self, request: DelegationRequest) -> Claim:
        """Begins an attempt with what earlier ones have left: from now on, these write nothing."""
        self.attempt += 1
        self.fence, self.written = f"{self.attempt}:memory", 0
        history, checkpoint = (
            [entry.encode() for entry in self.history],
            json.loads(self.fields.get("checkpoint", "{}")),
        )
        run = ("run", self.fence, self.attempt, self.seq)
        return Claim(*run, request, request.limits, history, dict(self.ledger), checkpoint)

    def write(self, id: str, fence: str, update: Callable[[], RunUpdate]) -> asyncio.Future[str]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()
        loop.call_soon(lambda: done.set_result(self._apply(fence, update())))
        return done

    def publish(self, id: str, frame: str) -> None:
        self.frames.append(frame)

    def flush(self) -> None: ...

    def _apply(self, fence: str, update: RunUpdate) -> str:
        ends = update.retention > 0 or update.retry_ms is not None
        if fence != self.fence:
            return "written" if ends and fence == self.finisher else "fenced"
        if update.number <= self.written:
            return "written"
        if update.number > self.written + 1:
            return "fenced"
        self.written = update.number
        for self.seq, event in update.events:
            self.events.append(event)
        self.history += update.history
        for call, state in update.ledger.items():
            self.ledger = {**self.ledger, call: state} if call else {}
        self.fields |= update.fields
        if ends:
            self.fence, self.finisher = "", fence
        return "written"
