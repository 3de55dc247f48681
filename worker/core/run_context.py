"""What one run is and has done so far, in all its phases, whether or not its loop has begun, with its steps.

A step is the published state of a tool call; the log of the ended ones is what a result's details are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_core import from_json, to_json

from ...shared.delegation import MAX_CALL_ERRORS, Progress, Step, StepStatus, ToolAgentResult
from ...shared.errors import ErrorType
from ...shared.events import AskedCall, ErrorSeen, Replied, StepCompleted, StepStarted, StepUpdated
from ...shared.facts import Trust
from ...shared.runs.record import OUTPUT, SPENT, TRUST, Claim
from ...shared.text import clip, shortened
from ...shared.wire import now
from ...shared.wording import line_of
from ..models.base import Call, Reply
from ..tools.base import AnyTool, ToolResult
from ..tools.context import SUBMIT, Output
from .emit import Emitter
from .limits import LimitReached, Meter, TerminationReason
from .waits import Waits

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
    steps: StepLog
    waits: Waits
    trust: Trust = field(default_factory=Trust)
    """What its conversation has read."""
    errors: list[str] = field(default_factory=list[str])
    output: str | None = None
    """The valid output that was handed in, as JSON: the run ends with it."""
    kept: dict[str, Any] = field(default_factory=dict[str, Any])
    """What parts keep in the checkpoint, by its field."""

    @classmethod
    def of(
        cls,
        claim: Claim,
        emit: Emitter,
        *,
        report_step: Callable[[str], None] = lambda text: None,
        free_slot: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Self:
        """Returns the context with the state of earlier attempts. ``report_step`` gets one line for every step."""
        meter = Meter.restored(claim.limits, claim.checkpoint, claim.elapsed)
        return cls(
            claim=claim,
            emit=emit,
            meter=meter,
            steps=StepLog(emit, report_step),
            trust=claim.kept.get(TRUST, Trust()),
            waits=Waits(emit, meter, free_slot),
            output=claim.kept.get(OUTPUT),
        )

    def check_room(self, more: int) -> None:
        """Raises ``LimitReached`` where the record, with ``more`` bytes, takes too much of its disk."""
        if why := self.emit.lacks_room(more):
            self.report_error(why, "limit")
            raise LimitReached(TerminationReason.BUDGET, why, None)

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

    def checkpoint(self, conversation: Mapping[str, Any]) -> None:
        """Stores, for the next attempt and for clients that poll, what was used so far.

        Called when conversation and counts are consistent. ``conversation``: ``Conversation.checkpoint``.
        """
        state = {**self.meter.checkpoint(), **conversation, **self.kept}
        spent = {SPENT: own.to_json()} if (own := self.meter.unstored()) else {}
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
        return {"progress": self.progress.to_json()}

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
            "trust": self.trust,
            **self._of_output,
        }

    @property
    def _of_output(self) -> dict[str, Any]:
        if self.output is not None:
            return {"output": from_json(self.output), "output_status": "valid"}
        tried = any(step.tool_name == SUBMIT for step in self.steps.ended)
        return {"output_status": "invalid" if tried else "missing"} if self.lacks_output else {}
