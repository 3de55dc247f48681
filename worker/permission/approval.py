"""What a person is asked about a call, and the effect of the answer: the call may be executed, or gets a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ...shared.delegation import Step, StepStatus
from ...shared.errors import ErrorType, ToolError
from ...shared.grants import PermissionSubject
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
)
from ...shared.runs.permissions import KeptRequest
from ...shared.text import clip
from ..models.base import Call
from ..policy import PolicyCall, PolicyContext, Verdict, denial, judge
from ..policy.shell import Classified, Decision, SubCommand
from ..policy.trust import ReadSources
from ..steps import StepLog
from ..tools.base import AnyTool, Kind, ToolContext, ToolResult
from .requests import PermissionRequests, Question

MAX_SHOWN = 2000
"""Characters of changed arguments that the model is shown."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that may be executed."""

    tool: AnyTool
    params: Any
    step: Step | None = None
    """Its step, where a person was asked, so that it was started before."""
    note: str = ""
    """What the model has to know about the call besides its result."""
    reads: tuple[str, ...] = ()
    """The programs of a command line that only reads."""

    def noted(self, result: ToolResult) -> ToolResult:
        """Returns the result with the note."""
        if not self.note:
            return result
        return replace(result, content=f"{self.note}\n{result.content}".rstrip())


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that may be executed only if a person permits it."""

    call: Call
    tool: AnyTool
    params: Any
    policy_call: PolicyCall
    verdict: Verdict
    step: Step | None = None
    kept: KeptRequest | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """Judges the calls of one run, and asks about those that need a person's permission."""

    policy: PolicyContext
    requests: PermissionRequests
    steps: StepLog
    reading: ReadSources

    async def judge(self, call: Call, tool: AnyTool, params: Any) -> Prepared | Asked | ToolResult:
        """Returns the call with what may become of it."""
        policy_call = PolicyCall.of(tool, params, call.arguments)
        verdict = await self._judge(policy_call)
        if verdict.decision is Decision.ASK and self.requests.are_possible:
            return Asked(call, tool, params, policy_call, verdict)
        denied = denial(verdict)
        return ToolResult.failed(denied) if denied else Prepared(tool, params, reads=policy_call.reads)

    async def _judge(self, call: PolicyCall) -> Verdict:
        trust = self.reading.trust
        above = [replace(each, trust=trust) for each in self.policy.above]
        return await judge(call, replace(self.policy, trust=trust, above=above))

    async def ask(self, asked: list[Asked], context: ToolContext) -> list[Asked]:
        """Starts the steps of these calls of one turn and publishes the requests, all at once."""
        started = [
            replace(each, step=self.steps.start(each.call, each.tool, each.tool.title(each.params), awaits=True))
            for each in asked
        ]
        questions = [await self._question(each, context) for each in started]
        kept = await self.requests.ask(self.steps.turn, questions)
        return [replace(each, kept=request) for each, request in zip(started, kept, strict=True)]

    async def _question(self, asked: Asked, context: ToolContext) -> Question:
        assert asked.step is not None
        diff = ""
        with suppress(ToolError):  # an edit of a text that an earlier call of the turn will write
            diff = await asked.tool.preview(context, asked.params)
        details = details_of(asked.policy_call, asked.call.arguments, diff)
        return Question(asked.step, details, subject_of(asked.policy_call, asked.verdict.lacking), asked.verdict)

    async def settle(
        self, asked: Asked, context: ToolContext, waiting: Callable[[], AbstractContextManager[None]]
    ) -> Prepared | ToolResult:
        """Waits for the answer; returns the call as it may be executed, or the result of one that may not.

        ``waiting`` is entered while it waits.
        """
        assert asked.kept is not None
        answer = await self.requests.answer(asked.kept, waiting)
        if answer.outcome is PermissionOutcome.CANCEL:
            return ToolResult.failed(_refusal(answer))
        self.steps.updates(asked.kept.request.step)(None, {"status": StepStatus.RUNNING.value})
        if answer.outcome is PermissionOutcome.MODIFY:
            return await self._modified(asked, answer, context)
        return Prepared(asked.tool, asked.params, asked.step, reads=asked.policy_call.reads)

    async def _modified(self, asked: Asked, answer: PermissionAnswer, context: ToolContext) -> Prepared | ToolResult:
        arguments = answer.arguments or {}
        try:
            params = asked.tool.parse(arguments)
        except ToolError as error:
            detail = f"a person changed the arguments of this call, and they are wrong: {error.message}"
            return ToolResult.failed(ToolError(error.type, f"not executed: {detail}"))
        changed = PolicyCall.of(asked.tool, params, arguments)
        verdict = await self._judge(changed)
        if verdict.decision is Decision.DENY and (denied := denial(verdict)):
            return ToolResult.failed(denied)
        shown = clip(json.dumps(arguments, ensure_ascii=False), MAX_SHOWN)
        note = f"A person changed the arguments of this call before it was executed: {shown}"
        return Prepared(asked.tool, params, asked.step, note, changed.reads)


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
        return ExecuteDetails(command=touches.command, **_parts(touches.command, call.classified))
    if tool.origin.server is not None:
        return McpDetails(server=tool.origin.server, tool=tool.origin.remote or tool.name, arguments=dict(arguments))
    if tool.kind in (Kind.EDIT, Kind.DELETE, Kind.MOVE):
        return EditDetails(paths=list(touches.paths), diff=diff)
    urls = [text for text in arguments.values() if isinstance(text, str) and text.startswith(("http://", "https://"))]
    return InfoDetails(urls=urls, arguments=dict(arguments))


def _parts(text: str, line: Classified | None) -> dict[str, Any]:
    if line is None:
        return {}
    commands = [
        CommandDetails(command=" ".join(each.words), decision=each.decision.value, reason=each.reason)
        for each in sorted(line.commands, key=lambda each: _position(text, each))
    ]
    return {"commands": commands, "effects": list(line.effects)}


def _position(text: str, command: SubCommand) -> int:
    """Returns where the command begins in the line; one that is spelled otherwise there comes last."""
    found = text.find(" ".join(command.words))
    return len(text) if found < 0 else found


def subject_of(call: PolicyCall, lacking: tuple[SubCommand, ...]) -> PermissionSubject:
    """Returns the subject of a call; ``lacking`` are the commands of its line that no rule allows."""
    line = call.classified
    return PermissionSubject(
        tool=call.tool.name,
        server=call.tool.origin.server,
        commands=command_patterns(replace(line, commands=lacking)) if line else [],
        is_command=line is not None,
        hosts=list(call.touches.hosts),
    )


def command_patterns(line: Classified) -> list[list[str]]:
    """Returns the patterns of the commands of a plain line that need permission.

    Empty where an answer about one of them is not remembered: it starts programs, forces, writes elsewhere or works on
    what another command prints; then only the line as it is can be permitted, once.
    """
    patterns = [command.pattern for command in line.asking]
    return [list(pattern) for pattern in dict.fromkeys(patterns)] if all(patterns) else []
