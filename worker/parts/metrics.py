"""What the events of a run add to the metrics."""

from __future__ import annotations

from ...shared.events import Event
from ...shared.metrics import counted
from ..attempts import Attempt
from ..core.part import Part


class Metrics(Part):
    """Counts the durable events of one run."""

    def __init__(self, attempt: Attempt) -> None:
        self._count = attempt.context.emit.count

    def hears(self, event: Event, number: int | None) -> None:
        if number is not None:
            self._count(counted(event))
