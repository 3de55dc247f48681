"""The notifications of a run's webhook: queued in the write of the event that each is about."""

from __future__ import annotations

from ...shared.events import Event
from ...shared.runs.notification import queued
from ...shared.runs.record import WEBHOOK
from ..attempts import Attempt
from ..core.part import Part


class Notifications(Part):
    """Notifies the webhook of one run."""

    def __init__(self, attempt: Attempt) -> None:
        self._run = attempt.context

    def hears(self, event: Event, number: int | None) -> None:
        if number is not None:
            claim = self._run.claim
            self._run.emit.notify(queued(claim.id, claim.kept[WEBHOOK], number, event))
