"""One atomic write of a run: additions to its events, history, ledger, fields and artifacts, for ``record.lua``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from .keys import EVENTS, LEASES, PENDING, keys_of


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
    """Fields of the hash of artifacts (``shared/runs/artifacts.py``)."""
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
