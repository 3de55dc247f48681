"""What one run is and has done so far, in all its phases, whether or not its loop has begun, with its steps.

A step is the published state of a tool call; the log of the ended ones is what a result's details are made of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_core import from_json, to_json

from ...shared.delegation import MAX_CALL_ERRORS, Progress, Status, Step, StepStatus, ToolAgentResult, Usage
from ...shared.errors import ErrorType, ToolError
from ...shared.events import AskedCall, ErrorSeen, Replied, StepCompleted, StepStarted, StepUpdated
from ...shared.facts import Verification
from ...shared.log import bind
from ...shared.metrics import SANDBOX_FAILURES, TOOL
from ...shared.runs.cost import MODEL, SPENT
from ...shared.runs.record import FILE_TURNS, OUTPUT, TRACE, Claim, FileTurns
from ...shared.text import clip, shortened
from ...shared.traceparent import trace_id_of
from ...shared.wire import now
from ...shared.wording import line_of
from ..models.base import Call, Reply
from ..tools.base import AnyTool, ToolResult
from ..tools.context import SUBMIT, Output
from .emit import Emitter
from .limits import LimitReached, Meter, TerminationReason
from .run_contracts import Inbox, Reading, Trace

DENIED, ONLY_DENIED = "deniedCallCount", "onlyDenied"
LAST_STEP_CHARACTERS = 160


@dataclass(slots=True)
class StepLog:
    """Starts and ends steps, and keeps the ended ones in the order of their ends."""

    emit: Emitter
    report: Callable[[str], None] = lambda text: None
    """Called with one short line at the start of every step, for monitoring."""
    turn: int = 0
    thinking: str = ""
    """The model's thinking or text before the calls of this turn."""
    ended: list[Step] = field(default_factory=list[Step])
    changes: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The fields about what the steps that have not ended yet changed in the files."""
    announced: set[str] = field(default_factory=set[str])
    """The ids of all started steps, those of earlier attempts included: none is started twice."""
    _shown: tuple[Step, tuple[str | None, str | None]] | None = None

    def start(self, call: Call, tool: AnyTool | None, title: str, *, awaits: bool = False) -> Step:
        """Starts and returns a step; its id is the call's key. An earlier attempt may have announced it.

        ``awaits``: a person is asked before the call is executed.
        """
        type = tool.display.step_type if tool else "tool_call"
        step = Step(
            id=call.key,
            type="bash-confirm" if awaits and type == "bash" else type,
            title=title,
            status=StepStatus.AWAITING_CONFIRMATION if awaits else StepStatus.RUNNING,
            tool_name=tool.name if tool else call.name,
            arguments=call.arguments,
            turn_index=self.turn,
            timestamp=now(),
            thinking=self.thinking or None,
        )
        if step.id not in self.announced:
            self.announced.add(step.id)
            self.emit.emit(StepStarted(step=step))
        # Masked before it is cut: a part of a secret would not be recognized.
        shown = step.model_copy(update={"title": self.emit.mask.text(title)})
        self.report(line_of(StepStarted(step=shown)) or "")
        return step

    def update(self, step: Step, title: str | None, fields: Mapping[str, Any]) -> None:
        """Publishes a live update of this step; it is not stored."""
        self.emit.emit(StepUpdated(step_id=step.id, title=title, metadata=dict(fields)))

    def end(self, step: Step, result: ToolResult, *, executed: bool = True) -> None:
        done = step.model_copy(
            update={
                "status": StepStatus.COMPLETED if result.success else StepStatus.FAILED,
                "title": result.title or step.title,
                "result": str(result.display) or result.content or None,
                "error": result.error,
                "denied": not executed and result.error_type is ErrorType.PERMISSION_DENIED,
                "tool_agent_result": in_short(result.data) if isinstance(result.data, ToolAgentResult) else None,
                **self.changes.pop(step.id, {}),
            }
        )
        self.ended.append(done)
        self.emit.emit(StepCompleted(step=done), done.result or "")

    def refuse(self, call: Call, result: ToolResult) -> None:
        """Records a step for a call that was not executed: started and ended at once, in one attempt only."""
        if not any(step.id == call.key for step in self.ended):
            self.end(self.start(call, None, call.name), result, executed=False)

    @property
    def last(self) -> tuple[str | None, str | None]:
        """The tool and the title of the step that ended last, masked: a name invented by the model may hold a secret.

        Masked once for each step: every checkpoint needs them.
        """
        if self.ended and (self._shown is None or self._shown[0] is not self.ended[-1]):
            step, mask = self.ended[-1], self.emit.mask.text
            title = shortened(mask(step.title), LAST_STEP_CHARACTERS)
            self._shown = step, (mask(step.tool_name or "") or None, title or None)
        return self._shown[1] if self._shown else (None, None)

    def details(self) -> str:
        """Returns the execution log: one line per step."""
        return "\n".join(_line(number, step) for number, step in enumerate(self.ended, 1))

    def errors(self, at_most: int = MAX_CALL_ERRORS) -> list[str]:
        """Returns the failed steps' errors, first lines only."""
        failed = [f"{step.title}: {step.error.splitlines()[0]}" for step in self.ended if step.error]
        return failed if len(failed) <= at_most else [*failed[:at_most], f"… and {len(failed) - at_most} more"]

    @property
    def counts(self) -> dict[str, int | bool]:
        """Returns the result's fields about failed, recovered and denied calls."""
        below = sum((step.tool_agent_result or {}).get(DENIED, 0) for step in self.ended)
        return {
            "failed_call_count": sum(bool(step.error) for step in self.ended),
            "recovered_call_count": _recovered(self.ended),
            "denied_call_count": sum(step.denied for step in self.ended) + below,
            "only_denied": _only_denied(self.ended),
        }


def _only_denied(steps: Sequence[Step]) -> bool:
    """Returns whether calls were denied and no other one succeeded. A call that hands in the output does not count."""
    tried = [step for step in steps if step.tool_name != SUBMIT]
    denied = [step for step in tried if step.denied or (step.tool_agent_result or {}).get(ONLY_DENIED)]
    return bool(denied) and all(step.status is not StepStatus.COMPLETED or step in denied for step in tried)


def _recovered(steps: Sequence[Step]) -> int:
    """Returns how many failed calls were followed by a success of the same call, or of an edit of the same file."""
    succeeded: set[str] = set()
    recovered = 0
    for step in reversed(steps):
        path = step.arguments.get("path") if step.type in ("write", "edit") else None
        same = {f"path {path}"} if path else {f"{step.tool_name} {sorted(step.arguments.items(), key=str)}"}
        if step.status is StepStatus.COMPLETED:
            succeeded |= same
        elif step.error and not step.denied:
            recovered += not succeeded.isdisjoint(same)
    return recovered


def in_short(result: ToolAgentResult) -> dict[str, Any]:
    """Returns the summary of a child delegation for its step; camelCase, as on the wire."""
    short: dict[str, Any] = {
        "success": result.success,
        "summary": result.summary,
        "toolCallCount": result.tool_call_count,
    }
    denied = {DENIED: result.denied_call_count, ONLY_DENIED: result.only_denied}
    more = {"filesModified": result.files_modified, "errors": result.errors} | denied
    return short | {key: value for key, value in more.items() if value}


def replied(turn: int, reply: Reply) -> Replied:
    return Replied(
        turn=turn,
        text=reply.text,
        thinking=reply.thinking,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        tool_calls=[AskedCall(id=call.key, name=call.name, arguments=call.arguments) for call in reply.calls],
        cache_miss=reply.cache_miss,
    )


def not_executed(why: str) -> ToolResult:
    return ToolResult(error=f"not executed: {why}", error_type=ErrorType.LIMIT_REACHED)


def in_doubt(why: str) -> ToolResult:
    advice = "It may have happened, wholly or in part: look at the workspace before you repeat it"
    return ToolResult(error=f"outcome unknown: {why}. {advice}.", error_type=ErrorType.CANCELLED)


def _line(number: int, step: Step) -> str:
    mark = "✓" if step.status is StepStatus.COMPLETED else "✗"
    error = f" — {step.error.splitlines()[0]}" if step.error else ""
    return f"{number}. [turn {step.turn_index}] {mark} {step.title}{error}"


MAX_DETAILS_CHARS = 32_000


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One attempt at one delegation: its claim, and what it and the attempts before it have done."""

    claim: Claim
    emit: Emitter
    meter: Meter
    inbox: Inbox
    steps: StepLog
    reading: Reading
    file_turns: FileTurns
    free_slot: Callable[[], AbstractContextManager[None]] = nullcontext
    """Frees the run's slot for another run while its block runs."""
    room: Callable[[int], str] = lambda more: ""
    """Returns why the record's disk has no room for so many bytes more of this run; "" where it has."""
    errors: list[str] = field(default_factory=list[str])
    output: str | None = None
    """The valid output that was handed in, as JSON: the run ends with it."""
    verify_rounds: int = 0
    """How often its result went back to the model because a check refuted it."""
    verification: Verification | None = None
    """What its checks came to; None without checks, and where none of them was reached."""
    ended: bool = False
    """Whether the last reply ended the work."""
    trace: Trace | None = None
    """The spans of this attempt; None where no traces are sent."""
    _spent: Usage | None = None
    """What was stored last of what the run spent itself."""
    awaited: list[str] = field(default_factory=list[str])
    """What the run waits for, in words; what it was stopped in stays."""
    _waits: int = 0
    _freed: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(
        cls,
        claim: Claim,
        emit: Emitter,
        inbox: Inbox,
        reading: Reading,
        *,
        report_step: Callable[[str], None] = lambda text: None,
        free_slot: Callable[[], AbstractContextManager[None]] = nullcontext,
        room: Callable[[int], str] = lambda more: "",
    ) -> Self:
        """Returns the context with the state of earlier attempts. ``report_step`` gets one line for every step."""
        meter = Meter.restored(claim.limits, claim.checkpoint, claim.elapsed)
        return cls(
            claim=claim,
            emit=emit,
            meter=meter,
            inbox=inbox,
            steps=StepLog(emit, report_step),
            reading=reading,
            file_turns=claim.file_turns,
            free_slot=free_slot,
            room=room,
            output=claim.kept.get(OUTPUT),
            verify_rounds=claim.checkpoint.get("verifyRounds", 0),
            ended=claim.checkpoint.get("ended", False),
        )

    def check_room(self, more: int) -> None:
        """Raises ``LimitReached`` where the record, with ``more`` bytes, takes too much of its disk."""
        if why := self.room(more):
            self.report_error(why, "limit")
            raise LimitReached(TerminationReason.BUDGET, why, None)

    def join_trace(self, spans: Trace | None) -> None:
        """Lets what this attempt publishes become spans, and its log lines name their trace."""
        trace = self.claim.kept.get(TRACE, "")
        if spans:
            self.trace = self.emit.listener = spans
            self.emit.set(stored := spans.stored)
            trace = trace or stored[TRACE]
        bind(self.claim.id, attempt=self.claim.attempt, trace_id=trace_id_of(trace))

    def trace_of(self, step: str) -> str:
        """Returns the ``traceparent`` of what a step submits; "" where the run is part of no trace."""
        return self.trace.traceparent_of(step) if self.trace else self.claim.kept.get(TRACE, "")

    def note_model(self, name: str, platform: str) -> None:
        """Stores the model's name, for reports of cost, and names the spans of its calls by it and its platform."""
        self.emit.set({MODEL: name})
        if self.trace:
            self.trace.name_model(name, platform)

    @property
    def waits(self) -> bool:
        """Whether it waits for something outside."""
        return self._waits > 0

    @contextmanager
    def awaiting(self, what: str) -> Generator[None]:
        """Notes what the run waits for while the block runs; it stays noted if the run is stopped meanwhile."""
        self.awaited.append(what)
        stopped = False
        try:
            yield
        except asyncio.CancelledError:
            stopped = True
            raise
        finally:
            if not stopped:
                self.awaited.remove(what)

    @contextmanager
    def waiting(self, why: str) -> Generator[None]:
        """Frees the run's slot for another run while the block runs; the run keeps its coroutine.

        However many waits there are at once, the one slot is freed, and the record is marked as waiting, with the
        reason of the first one, as the event ``waiting`` has it.
        """
        self._waits += 1
        if self._waits == 1:
            self._freed.enter_context(self.free_slot())
            self.emit.set({"status": Status.WAITING.value, "why": why})
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._freed.close()
                self.emit.set({"status": Status.RUNNING.value})

    @contextmanager
    def idle(self, why: str) -> Generator[None]:
        """Frees the run's slot and stops its clock while the block runs."""
        with self.waiting(why), self.meter.paused():
            yield

    async def timed(self, tool: AnyTool, call: Awaitable[ToolResult]) -> ToolResult:
        """Awaits the execution of a call; its duration is counted with the end of its step."""
        begun, succeeded = time.monotonic(), False
        try:
            result = await call
            succeeded = result.success
            return result
        except ToolError as error:
            if error.type is ErrorType.SANDBOX_UNAVAILABLE:
                self.emit.count({SANDBOX_FAILURES.field(): 1})
            raise
        finally:
            # Names of tools that are not built in are the choice of a server or a command.
            name = tool.name if tool.origin.source == "builtin" else str(tool.origin)
            status = (StepStatus.COMPLETED if succeeded else StepStatus.FAILED).value
            self.emit.count(TOOL.observed(time.monotonic() - begun, name, status))

    @property
    def lacks_output(self) -> bool:
        """Whether a typed output was asked for that was not handed in yet."""
        return self.claim.request.output_schema is not None and self.output is None

    def note_output(self, result: ToolResult) -> None:
        """Stores the output that this call has handed in, in the same write as its step's end."""
        if isinstance(result.data, Output):
            self.output = to_json(result.data.value).decode()
            self.emit.set({OUTPUT: self.output})

    def take_back_output(self) -> None:
        """Lets the run go on after its output was handed in."""
        if self.output is not None:
            self.output = None
            self.emit.set({OUTPUT: ""})

    def report_error(self, message: str, kind: str) -> None:
        """Publishes an error that the result will list, once."""
        if message not in self.errors:
            self.errors.append(message)
            self.emit.emit(ErrorSeen(message=message, kind=kind))

    def note_files(self, step: str, changed: Mapping[str, Any], turns: FileTurns) -> None:
        """Takes what the step has changed in the files, for its end, and the snapshots that there are."""
        if changed:
            self.steps.changes[step] = changed
        if self.file_turns != turns:
            self.file_turns = turns
            self.emit.set(self._stored_turns)

    def checkpoint(self, billed: tuple[int, ...]) -> None:
        """Stores the use so far, once conversation and counts are consistent. ``billed``: ``Conversation.billed``."""
        state = self.meter.checkpoint() | {"window": billed}
        if self.claim.request.verify:
            state["verifyRounds"] = self.verify_rounds
        if self.ended:
            state["ended"] = True
        spent = {} if self._spent is self.meter.own else {SPENT: self.meter.own.to_json()}
        self._spent = self.meter.own
        self.emit.set({"checkpoint": to_json(state).decode(), **self.counts, **spent})

    @property
    def progress(self) -> Progress:
        last_tool, last_step = self.steps.last
        return Progress(
            turn=self.meter.turns,
            tool_calls=self.meter.tool_calls,
            last_tool=last_tool,
            last_step=last_step,
            elapsed_ms=round(self.meter.elapsed * 1000),
            cost_usd=self.meter.usage.cost_usd,
        )

    @property
    def counts(self) -> dict[str, str]:
        return {"progress": self.progress.to_json(), **self._stored_turns}

    @property
    def _stored_turns(self) -> dict[str, str]:
        return {FILE_TURNS: self.emit.mask.json(self.file_turns.to_json())}

    @property
    def all_errors(self) -> list[str]:
        return [*self.errors, *self.steps.errors()]

    @property
    def of_result(self) -> dict[str, Any]:
        """Returns the result's fields about what was done and read, and what it cost."""
        return {
            "details": clip(self.emit.mask.text(self.steps.details()), MAX_DETAILS_CHARS),
            "errors": self.all_errors,
            **self.steps.counts,
            "turn_count": self.meter.turns,
            "execution_time_ms": round(self.meter.elapsed * 1000),
            "usage": self.meter.usage,
            "trust": self.reading.trust,
            **self._of_output,
        }

    @property
    def _of_output(self) -> dict[str, Any]:
        if self.output is not None:
            return {"output": from_json(self.output), "output_status": "valid"}
        tried = any(step.tool_name == SUBMIT for step in self.steps.ended)
        return {"output_status": "invalid" if tried else "missing"} if self.lacks_output else {}
