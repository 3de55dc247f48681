"""What a person is asked about a call, and the effect of the answer: the call may be executed, or gets a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ...shared.delegation import Step, StepStatus
from ...shared.errors import ErrorType, ToolError
from ...shared.permission import (
    NOT_ANSWERED,
    CommandDetails,
    EditDetails,
    ExecuteDetails,
    InfoDetails,
    McpDetails,
    PermissionAnswer,
    PermissionDetails,
    PermissionOutcome,
    PermissionSubject,
)
from ...shared.runs.permissions import KeptRequest
from ...shared.text import clip
from ..models.base import Call
from ..policy import PolicyCall, PolicyContext, Verdict, denial, judge
from ..policy.shell.classify import CommandLine, Decision, SubCommand
from ..policy.trust import ReadSources
from ..steps import StepLog
from ..tools.base import AnyTool, Kind, ToolContext, ToolResult
from .requests import PermissionRequests, Question

MAX_SHOWN = 2000
"""Characters of changed arguments that the model is shown."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """A call that may be executed."""

    call: PolicyCall
    note: str = ""
    """What the model has to know about the call besides its result."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a person is asked about: its step has started, and its request is published."""

    call: PolicyCall
    step: Step
    kept: KeptRequest


Judged = Permitted | Asked | ToolResult
"""What becomes of a call: it may be executed, or a person is asked, or this is its result without being executed."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Judges the calls of one run, and asks about those that need a person's permission."""

    policy: PolicyContext
    requests: PermissionRequests
    steps: StepLog
    reading: ReadSources

    async def judge(self, calls: Sequence[tuple[Call, PolicyCall]], context: ToolContext) -> dict[str, Judged]:
        """Returns what becomes of each call of a turn, by its key. Publishes the turn's permission requests."""
        judged: dict[str, Judged] = {}
        asking: list[tuple[Call, PolicyCall, Verdict]] = []
        for call, policy_call in calls:
            verdict = await self.verdict(policy_call)
            if verdict.decision is Decision.ASK and self.requests.seconds > 0:
                asking.append((call, policy_call, verdict))
            else:
                denied = denial(verdict)
                judged[call.key] = ToolResult.failed(denied) if denied else Permitted(policy_call)
        if asking:
            judged.update(await self._ask(asking, context))
        return judged

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
        return {step.id: Asked(call, step, request) for (step, call, _), request in zip(started, kept, strict=True)}

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
            return await self._modified(asked.call.tool, answer.arguments or {}, context)
        return Permitted(asked.call)

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
        return Permitted(changed, f"A person changed the arguments of this call before it was executed: {shown}")


async def _question(step: Step, call: PolicyCall, verdict: Verdict, context: ToolContext) -> Question:
    diff = ""
    with suppress(ToolError):  # an edit of a text that an earlier call of the turn will write
        diff = await call.tool.preview(context, call.params)
    details = details_of(call, step.arguments, diff)
    return Question(step, details, subject_of(call, verdict.lacking), verdict)


def _refusal(answer: PermissionAnswer) -> ToolError:
    if answer.reason and answer.reason.startswith(NOT_ANSWERED):
        text = f"denied: {answer.reason}. Nothing was executed. Go on without it, and mention it in your answer."
    else:
        why = f": {answer.reason}" if answer.reason else ""
        text = (
            f"rejected by a person{why}. Nothing was executed. Do not try the same in another way; go on without it, "
            "or end with what you would need."
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
