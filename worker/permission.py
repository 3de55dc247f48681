"""The permission of calls: judged by the policy, asked of a person, and executed or refused by the answer.

All requests of a turn are published at once, and each call waits when its turn comes. A request is kept in Redis with
its run, under an id that is the same in every attempt: an attempt that finds it there waits for the same answer until
the same time, and publishes nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from ..shared.bus import RECHECK_SECONDS, Bus
from ..shared.connection import retried
from ..shared.delegation import Step, StepStatus
from ..shared.errors import ErrorType, ToolError
from ..shared.events import PermissionAnswered, PermissionRequested
from ..shared.permission import (
    CommandDetails,
    EditDetails,
    ExecuteDetails,
    InfoDetails,
    McpDetails,
    PermissionAnswer,
    PermissionDetails,
    PermissionOutcome,
    PermissionQuestion,
    PermissionRequest,
    PermissionSubject,
    covered_by,
    remembered,
)
from ..shared.runs.keys import grants_key, permission_channel, permissions_key
from ..shared.runs.permission_fields import (
    KeptRequest,
    answer_field,
    kept_request,
    permission_id,
    reported_mark,
    subject_field,
)
from ..shared.runs.permissions import by_grant, write_answer
from ..shared.settings import Settings
from ..shared.text import clip, plain_number
from .core.limits import LimitReached
from .core.outcome import RunOutcome
from .core.part import Part
from .core.run_context import RunContext, StepLog
from .core.run_contracts import Accepted, Asked, Judged, Permitted
from .models.base import Call
from .policy import PolicyCall, PolicyContext, Verdict, denial, judge
from .policy.shell import CommandLine, Decision, SubCommand
from .policy.trust import ReadSources
from .tools.base import AnyTool, Kind, ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a call."""

    step: Step
    details: PermissionDetails
    subject: PermissionSubject
    verdict: Verdict


@dataclass(slots=True)
class PermissionRequests(Part):
    """The requests of one run."""

    must_settle = True  # requests would stay open that no call waits for
    run: RunContext
    redis: Any
    bus: Bus
    settings: Settings
    _open: dict[str, KeptRequest] = field(default_factory=dict[str, KeptRequest])
    """The requests whose answers were not published yet."""
    _earlier: dict[str, KeptRequest] | None = None
    """Those of earlier attempts of this try, by the id of their step; None until they were read."""

    @property
    def seconds(self) -> float:
        """How long a request waits for its answer; 0: a call that needs approval is denied at once."""
        return self.settings.permission_timeout_seconds

    async def earlier(self) -> Mapping[str, KeptRequest]:
        """Returns what earlier attempts have asked, by the id of the step: an answer may have come since.

        Their ids may be those of another version.
        """
        if self._earlier is None:
            key = permissions_key(self.run.claim.id)
            fields = await retried(partial(self.redis.hgetall, key)) if self.run.claim.attempt > 1 else {}
            self._earlier = {}  # only now: where Redis refuses to reply they are not known
            for id in [name for name in fields if ":" not in name]:
                kept = kept_request(fields[id], fields[subject_field(id)])
                self._earlier[kept.request.step.id] = kept
                if reported_mark(id) not in fields:
                    self._open[id] = kept
        return self._earlier

    async def ask(self, turn: int, questions: Sequence[Question]) -> list[KeptRequest]:
        """Publishes the requests of a turn, unless an earlier attempt did; returns them in this order."""
        claim, earlier, created = self.run.claim, await self.earlier(), await self._clock()
        found: list[KeptRequest] = []
        for question in questions:
            if kept := earlier.get(question.step.id):
                self.run.emit.ask_again(kept.id, kept.request.to_json())
                found.append(replace(kept, subject=question.subject))
                continue
            id = permission_id(claim.id, claim.past.retries, turn, question.step.id)
            found.append(KeptRequest(self._publish(id, question, created), question.subject))
            self._open[id] = found[-1]
        await self.run.emit.settled()
        return found

    async def close(self) -> None:
        """Accepts no more answers to what is still asked, and publishes those that were accepted before.

        For calls that do not wait any more: each answer is accepted and has an event, or it is refused.
        """
        await self.earlier()
        if self._open:
            self.run.emit.withdraw_permissions(self._open)
            await self.run.emit.settled()
            self._report(await self._answers({*self._open}))
            self._open.clear()

    async def before_turn(self, limit: LimitReached | None) -> None:
        if limit:
            await self.close()

    async def settle(self, outcome: RunOutcome) -> RunOutcome | None:
        await self.close()
        return outcome

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
        with self.run.waits.reported("permission", f"{kept.request.step.title} ({kept.id})"), waiting():
            return await self._wait(kept)

    async def _wait(self, kept: KeptRequest) -> PermissionAnswer:
        async with self.bus.listen(permission_channel(self.run.claim.id)) as listener:
            while (found := await self._look(kept)) is None:
                left = (kept.request.expires_at - await self._clock()).total_seconds()
                with suppress(TimeoutError):  # an answer may be announced meanwhile
                    async with asyncio.timeout(min(left, RECHECK_SECONDS)):
                        await listener.get()
        return found

    async def _look(self, kept: KeptRequest) -> PermissionAnswer | None:
        """Returns the answer, if there is one; publishes those of all requests that have come."""
        answers = await self._answers({kept.id, *self._open})
        if kept.id not in answers and (given := await self._given(kept)):
            await retried(partial(write_answer, self.redis, kept, given, ends=True))
            answers = await self._answers({kept.id, *self._open})
        self._report(answers)
        return answers.get(kept.id)

    def _report(self, answers: Mapping[str, PermissionAnswer]) -> None:
        for id in [id for id in self._open if id in answers]:
            asked = self._open.pop(id).request
            self.run.emit.emit_marked(report_of(asked, answers[id]), reported_mark(id))

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
        return PermissionAnswer(outcome=PermissionOutcome.CANCEL, reason=f"no one answered within {seconds} s", at=now)

    async def _clock(self) -> datetime:
        """Returns the time of Redis, which is the same for all workers."""
        seconds, micros = await retried(self.redis.time)
        return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)


def report_of(asked: PermissionQuestion, given: PermissionAnswer) -> PermissionAnswered:
    return PermissionAnswered(
        permission_id=asked.permission_id, path=asked.path, outcome=given.outcome, reason=given.reason, by=given.by
    )


MAX_SHOWN = 2000
"""Characters of changed arguments that the model is shown."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Judges the calls of one run, and asks about those that need a person's permission."""

    policy: PolicyContext
    requests: PermissionRequests
    steps: StepLog
    reading: ReadSources

    async def judge(self, calls: Sequence[Accepted], context: ToolContext) -> Mapping[str, Judged]:
        """Returns what becomes of each call of a turn, by its key. Publishes the turn's permission requests."""
        judged: dict[str, Judged] = {}
        asking: list[tuple[Call, PolicyCall, Verdict]] = []
        earlier = await self.requests.earlier()
        for each in calls:
            call, policy_call = each.call, PolicyCall.of(each.tool, each.params, each.call.arguments)
            verdict = await self.verdict(policy_call)
            # What was asked before stays asked, whatever this worker's rules allow: the answer may be a refusal.
            asked = verdict.decision is not Decision.DENY and call.key in earlier
            if asked or (verdict.decision is Decision.ASK and self.requests.seconds > 0):
                asking.append((call, policy_call, verdict))
            else:
                denied = denial(verdict)
                judged[call.key] = ToolResult.failed(denied) if denied else _permitted(policy_call)
        if asking:
            judged.update(await self._ask(asking, context))
        return judged

    async def close(self) -> None:
        """Accepts no more answers to what is still asked."""
        await self.requests.close()

    async def verdict(self, call: PolicyCall) -> Verdict:
        """Returns the policy's verdict, by what the conversation has read so far."""
        trust = self.reading.trust
        above = [replace(each, trust=trust) for each in self.policy.above]
        return await judge(call, replace(self.policy, trust=trust, above=above))

    async def _ask(
        self, asking: Sequence[tuple[Call, PolicyCall, Verdict]], context: ToolContext
    ) -> Mapping[str, Asked]:
        """Starts the steps of these calls and publishes their requests, all at once."""
        started = [
            (self.steps.start(call, each.tool, each.title, awaits=True), each, verdict)
            for call, each, verdict in asking
        ]
        questions = [await _question(*each, context) for each in started]
        kept = await self.requests.ask(self.steps.turn, questions)
        return {
            step.id: Asked(_permitted(call), step, request)
            for (step, call, _), request in zip(started, kept, strict=True)
        }

    async def answered(
        self, asked: Asked, context: ToolContext, waiting: Callable[[], AbstractContextManager[None]]
    ) -> Permitted | ToolResult:
        """Waits for the answer; returns the call as it may be executed, or the result of one that may not.

        ``waiting`` is entered while it waits.
        """
        answer = await self.requests.answer(asked.kept, waiting)
        if answer.outcome is PermissionOutcome.CANCEL:
            return ToolResult.failed(_refusal(answer))
        self.steps.update(asked.step, None, {"status": StepStatus.RUNNING.value})
        if answer.outcome is PermissionOutcome.MODIFY:
            return await self._modified(asked.permitted.tool, answer.arguments or {}, context)
        return asked.permitted

    async def _modified(
        self, tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> Permitted | ToolResult:
        try:
            params = tool.parse(arguments)
        except ToolError as error:
            detail = f"a person changed the arguments of this call, and they are wrong: {error.message}"
            return ToolResult.failed(ToolError(error.type, f"not executed: {detail}"))
        changed = PolicyCall.of(tool, params, arguments)
        verdict = await self.verdict(changed)
        if verdict.decision is Decision.DENY and (denied := denial(verdict)):
            return ToolResult.failed(denied)
        shown = clip(json.dumps(arguments, ensure_ascii=False), MAX_SHOWN)
        return _permitted(changed, f"A person changed the arguments of this call before it was executed: {shown}")


def _permitted(call: PolicyCall, note: str = "") -> Permitted:
    return Permitted(call.tool, call.params, call.reads, note)


async def _question(step: Step, call: PolicyCall, verdict: Verdict, context: ToolContext) -> Question:
    diff = ""
    with suppress(ToolError):  # an edit of a text that an earlier call of the turn will write
        diff = await call.tool.preview(context, call.params)
    details = details_of(call, step.arguments, diff)
    return Question(step, details, subject_of(call, verdict.lacking), verdict)


def _refusal(answer: PermissionAnswer) -> ToolError:
    text = (
        f"denied: {answer.reason or 'a person rejected this call'}. Nothing was executed. Do not try the same in "
        "another way. Go on without it and mention it in your answer, or end with what you would need."
    )
    return ToolError(ErrorType.PERMISSION_DENIED, text)


def details_of(call: PolicyCall, arguments: Mapping[str, Any], diff: str = "") -> PermissionDetails:
    """Returns the details of a call, by what it does. Its command line is classified already, by the rule that asks."""
    tool, touches = call.tool, call.touches
    if touches.command is not None:
        return _execute_details(touches.command, call.line)
    if tool.origin.server is not None:
        return McpDetails(server=tool.origin.server, tool=tool.origin.remote or tool.name, arguments=dict(arguments))
    if tool.kind in (Kind.EDIT, Kind.DELETE, Kind.MOVE):
        return EditDetails(paths=list(touches.paths), diff=diff)
    urls = [text for text in arguments.values() if isinstance(text, str) and text.startswith(("http://", "https://"))]
    return InfoDetails(urls=urls, arguments=dict(arguments))


def _execute_details(text: str, line: CommandLine | None) -> ExecuteDetails:
    if line is None:
        return ExecuteDetails(command=text)

    def position(command: CommandDetails) -> int:
        """Returns where the command begins in the line; one that is spelled otherwise there comes last."""
        found = text.find(command.command)
        return len(text) if found < 0 else found

    commands = [
        CommandDetails(command=" ".join(each.words), decision=each.decision.value, reason=each.reason)
        for each in line.commands
    ]
    return ExecuteDetails(command=text, commands=sorted(commands, key=position), effects=list(line.effects))


def subject_of(call: PolicyCall, lacking: tuple[SubCommand, ...]) -> PermissionSubject:
    """Returns the subject of a call; ``lacking`` are the commands of its line that no rule allows."""
    line = call.line
    return PermissionSubject(
        tool=call.tool.name,
        server=call.tool.origin.server,
        commands=command_patterns(replace(line, commands=lacking)) if line else [],
        is_command=line is not None,
        hosts=list(call.touches.hosts),
    )


def command_patterns(line: CommandLine) -> list[list[str]]:
    """Returns the patterns of the commands of a plain line that need permission.

    Empty where an answer about one of them is not remembered: it starts programs, forces, writes elsewhere or works on
    what another command prints; then only the line as it is can be permitted, once.
    """
    patterns = [command.pattern for command in line.asking]
    return [list(pattern) for pattern in dict.fromkeys(patterns)] if all(patterns) else []
