"""Permission requests of children, in the stream of their parent: who follows a run sees what any run below it asks."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from ...shared.connection import retried
from ...shared.events import Envelope, PermissionAnswered, PermissionRequested
from ...shared.permission import PermissionAnswer
from ...shared.runs.keys import permissions_key
from ...shared.runs.permissions import answer_field, pending, reported_mark, requested_mark
from ...shared.runs.record import Claim
from ..emit import Emitter
from ..limits import Meter
from .requests import report_of


class ChildPermissions:
    """The permission events of all children of one run, each published once in the run's own stream.

    While a child waits for a person, the run's time stands still, too: it waits for the child.
    """

    def __init__(self, claim: Claim, redis: Any, emit: Emitter, meter: Meter) -> None:
        self._claim = claim
        self._redis = redis
        self._emit = emit
        self._meter = meter
        self._published: set[str] | None = None
        """The marks of the events that this run has published; None until those of earlier attempts were read."""
        self._open: dict[str, PermissionRequested] = {}
        self._paused = ExitStack()

    def hear(self, message: str) -> None:
        """Takes a message of a child's channel."""
        if '"permission_' in message and self._published is not None:
            event = Envelope.from_json(message).event
            if isinstance(event, PermissionRequested):
                self._request(event)
            elif isinstance(event, PermissionAnswered):
                self._report(event)

    async def catch_up(self, child: str) -> None:
        """Publishes what was not heard: messages may be lost, and this may be a later attempt."""
        if self._published is None:
            found = await retried(partial(self._redis.hkeys, permissions_key(self._claim.id)))
            self._published = self._published or set(found)
        for kept in await retried(partial(pending, self._redis, child)):
            fields = dict(kept.request)
            del fields["delegation_id"]
            self._request(PermissionRequested(**fields))
        for id, event in [*self._open.items()]:
            place = permissions_key(event.path[-1])
            if child in event.path and (text := await retried(partial(self._redis.hget, place, answer_field(id)))):
                self._report(report_of(event, PermissionAnswer.model_validate_json(text)))

    def close(self, child: str) -> None:
        """Forgets what a child that has ended was waiting for."""
        for id in [id for id, event in self._open.items() if child in event.path]:
            del self._open[id]
        self._set_clock()

    def _request(self, event: PermissionRequested) -> None:
        id = event.permission_id
        if self._is_published(reported_mark(id)):
            return
        if not self._is_published(requested_mark(id)):
            self._publish(event, requested_mark(id))
        self._open[id] = event
        self._set_clock()

    def _report(self, event: PermissionAnswered) -> None:
        id = event.permission_id
        if self._is_published(requested_mark(id)) and not self._is_published(reported_mark(id)):
            self._publish(event, reported_mark(id))
        self._open.pop(id, None)
        self._set_clock()

    def _is_published(self, mark: str) -> bool:
        return self._published is not None and mark in self._published

    def _publish(self, event: PermissionRequested | PermissionAnswered, mark: str) -> None:
        assert self._published is not None
        self._published.add(mark)
        self._emit.emit_marked(event, mark)

    def _set_clock(self) -> None:
        if self._open and self._meter.paused_at is None:
            self._paused.enter_context(self._meter.paused())
        elif not self._open:
            self._paused.close()
