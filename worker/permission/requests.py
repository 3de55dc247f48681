"""The permission requests of one run, and those of its children in its stream.

All of a turn are published at once, and each call waits when its turn comes. A request is kept in Redis with its run,
under an id that is the same in every attempt: an attempt that finds it there waits for the same answer until the same
time, and publishes nothing twice. Who follows a run sees what any run below it asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from ...shared.bus import RECHECK_SECONDS, Bus, Inbox
from ...shared.connection import retried
from ...shared.delegation import Step
from ...shared.events import Envelope, PermissionAnswered, PermissionRequested, ResumedWaiting, Waiting
from ...shared.permission import (
    NOT_ANSWERED,
    PermissionAnswer,
    PermissionDetails,
    PermissionOutcome,
    PermissionQuestion,
    PermissionRequest,
    PermissionSubject,
    covered_by,
    remembered,
)
from ...shared.runs.keys import grants_key, permission_channel, permissions_key
from ...shared.runs.permissions import (
    KeptRequest,
    answer_field,
    by_grant,
    pending,
    permission_id,
    reported_mark,
    requested_mark,
    subject_field,
    write_answer,
)
from ...shared.text import plain_number
from ..policy import Verdict
from ..run_context import RunContext


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a call."""

    step: Step
    details: PermissionDetails
    subject: PermissionSubject
    verdict: Verdict


@dataclass(slots=True)
class PermissionRequests:
    """The requests of one run."""

    run: RunContext
    redis: Any
    bus: Bus
    seconds: float
    """How long a request waits for its answer; 0: a call that needs approval is denied at once."""
    _open: dict[str, KeptRequest] = field(default_factory=dict[str, KeptRequest])
    """The requests of the current turn whose answers were not published yet."""

    async def ask(self, turn: int, questions: Sequence[Question]) -> list[KeptRequest]:
        """Publishes the requests of a turn, unless an earlier attempt did; returns them in this order."""
        claim, kept = self.run.claim, dict[str, str]()
        ids = [permission_id(claim.id, claim.retries, turn, question.step.id) for question in questions]
        if claim.attempt > 1:
            kept = await self._fields([*ids, *map(reported_mark, ids)])
        created = await self._clock()
        found: list[KeptRequest] = []
        for id, question in zip(ids, questions, strict=True):
            if id in kept:
                request = PermissionRequest.model_validate_json(kept[id])
            else:
                request = self._publish(id, question, created)
            found.append(KeptRequest(request, question.subject))
        self._open = {each.id: each for each in found if reported_mark(each.id) not in kept}
        await self.run.emit.settled()
        return found

    def _publish(self, id: str, question: Question, created: datetime) -> PermissionRequest:
        verdict = question.verdict
        asked = PermissionQuestion(
            permission_id=id,
            path=list(self.run.claim.path),
            step=question.step,
            details=question.details,
            reason=verdict.reason,
            rule=f"{verdict.rule} ({verdict.place})" if verdict.place else verdict.rule,
            remembers=remembered(question.subject),
            created_at=created,
            expires_at=created + timedelta(seconds=self.seconds),
        )
        subject = {subject_field(id): question.subject.to_json()}
        self.run.emit.request_permission(PermissionRequested(**dict(asked)), subject)
        return PermissionRequest(**dict(asked), delegation_id=self.run.claim.id)

    async def answer(
        self, kept: KeptRequest, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> PermissionAnswer:
        """Waits for the answer; when the time is over, that is an answer, too. ``waiting`` is entered meanwhile."""
        if found := await self._look(kept):
            return found
        self.run.emit.emit(Waiting(why="permission", detail=f"{kept.request.step.title} ({kept.id})"))
        self.run.emit.set({"lost": "0"})  # to come as far as a question is progress: the calls before it are done
        begun = time.monotonic()
        with self.run.idle(), waiting():
            found = await self._wait(kept)
        self.run.emit.emit(ResumedWaiting(seconds=round(time.monotonic() - begun, 3)))
        return found

    async def _wait(self, kept: KeptRequest) -> PermissionAnswer:
        async with self.bus.listen(permission_channel(self.run.claim.id)) as inbox:
            while (found := await self._look(kept)) is None:
                left = (kept.request.expires_at - await self._clock()).total_seconds()
                await _news(inbox, min(left, RECHECK_SECONDS))
        return found

    async def _look(self, kept: KeptRequest) -> PermissionAnswer | None:
        """Returns the answer, if there is one; publishes those of all requests of the turn that have come."""
        answers = await self._answers({kept.id, *self._open})
        if kept.id not in answers and (given := await self._given(kept)):
            await retried(partial(write_answer, self.redis, kept, given, ends=True))
            answers = await self._answers({kept.id, *self._open})
        for id in [id for id in self._open if id in answers]:
            asked = self._open.pop(id).request
            self.run.emit.emit_marked(report_of(asked, answers[id]), reported_mark(id))
        return answers.get(kept.id)

    async def _answers(self, ids: Collection[str]) -> dict[str, PermissionAnswer]:
        found = await self._fields([*map(answer_field, ids)])
        parse = PermissionAnswer.model_validate_json
        return {id: parse(found[answer_field(id)]) for id in ids if answer_field(id) in found}

    async def _fields(self, names: Sequence[str]) -> dict[str, str]:
        """Returns those fields of the run's permissions that exist."""
        values = await retried(partial(self.redis.hmget, permissions_key(self.run.claim.id), names))
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    async def _given(self, kept: KeptRequest) -> PermissionAnswer | None:
        """Returns the answer that needs no person: an earlier one covers the call, or the time is over."""
        grants = await retried(partial(self.redis.hgetall, grants_key(self.run.claim.path[0])))
        if covering := covered_by(kept.subject, grants):
            return by_grant(PermissionAnswer.model_validate_json(grants[covering[0]]))
        now = await self._clock()
        if now < kept.request.expires_at:
            return None
        seconds = plain_number((kept.request.expires_at - kept.request.created_at).total_seconds())
        return PermissionAnswer(
            outcome=PermissionOutcome.CANCEL, reason=f"{NOT_ANSWERED}answered within {seconds} s", at=now
        )

    async def _clock(self) -> datetime:
        """Returns the time of Redis, which is the same for all workers."""
        seconds, micros = await retried(self.redis.time)
        return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)


def report_of(asked: PermissionQuestion, given: PermissionAnswer) -> PermissionAnswered:
    return PermissionAnswered(
        permission_id=asked.permission_id, path=asked.path, outcome=given.outcome, reason=given.reason, by=given.by
    )


async def _news(inbox: Inbox, seconds: float) -> None:
    """Returns when an answer was announced, when one may have been missed, or after so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await inbox.get()


class ChildPermissions:
    """The permission events of all children of one run, each published once in the run's own stream.

    While a child waits for a person, the run's time stands still, too: it waits for the child.
    """

    def __init__(self, run: RunContext, redis: Any) -> None:
        self._run = run
        self._redis = redis
        self._published: set[str] = set()
        """The marks of the events that this run has published."""
        self._recalled = False
        """Whether those of earlier attempts were read."""
        self._open: dict[str, PermissionRequested] = {}
        self._paused = ExitStack()

    def hear(self, message: str) -> None:
        """Takes a message of a child's channel."""
        if '"permission_' in message and self._recalled:
            event = Envelope.from_json(message).event
            if isinstance(event, PermissionRequested):
                self._request(event)
            elif isinstance(event, PermissionAnswered):
                self._report(event)

    async def catch_up(self, child: str) -> None:
        """Publishes what was not heard: messages may be lost, and this may be a later attempt."""
        if not self._recalled:
            self._published.update(await retried(partial(self._redis.hkeys, permissions_key(self._run.claim.id))))
            self._recalled = True
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
        if reported_mark(id) in self._published:
            return
        if requested_mark(id) not in self._published:
            self._publish(event, requested_mark(id))
        self._open[id] = event
        self._set_clock()

    def _report(self, event: PermissionAnswered) -> None:
        id = event.permission_id
        if requested_mark(id) in self._published and reported_mark(id) not in self._published:
            self._publish(event, reported_mark(id))
        self._open.pop(id, None)
        self._set_clock()

    def _publish(self, event: PermissionRequested | PermissionAnswered, mark: str) -> None:
        self._published.add(mark)
        self._run.emit.emit_marked(event, mark)

    def _set_clock(self) -> None:
        if self._open and self._run.meter.paused_at is None:
            self._paused.enter_context(self._run.meter.paused())
        elif not self._open:
            self._paused.close()
