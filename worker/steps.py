"""Steps: the published state of each tool call, and the log that a result's details are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..shared.delegation import MAX_CALL_ERRORS, Step, StepStatus, ToolAgentResult
from ..shared.errors import ErrorType
from ..shared.events import AskedCall, Replied, StepCompleted, StepStarted, StepUpdated
from ..shared.lines import line_of
from ..shared.wire import now
from .emit import Emitter
from .models.base import Call, Reply
from .tools.base import AnyTool, ToolResult

DENIED = "deniedCallCount"


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
    announced: set[str] = field(default_factory=set[str])
    """The ids of all started steps, those of earlier attempts included: none is started twice."""

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
            }
        )
        self.ended.append(done)
        self.emit.emit(StepCompleted(step=done))

    def refuse(self, call: Call, result: ToolResult) -> None:
        """Records a step for a call that was not executed: started and ended at once, in one attempt only."""
        if not any(step.id == call.key for step in self.ended):
            self.end(self.start(call, None, call.name), result, executed=False)

    @property
    def last_tool(self) -> str | None:
        """The tool of the step that ended last, masked: a name invented by the model may hold a secret."""
        return self.emit.mask.text(self.ended[-1].tool_name or "") or None if self.ended else None

    def details(self) -> str:
        """Returns the execution log: one line per step."""
        return "\n".join(_line(number, step) for number, step in enumerate(self.ended, 1))

    def errors(self, at_most: int = MAX_CALL_ERRORS) -> list[str]:
        """Returns the failed steps' errors, first lines only."""
        failed = [f"{step.title}: {step.error.splitlines()[0]}" for step in self.ended if step.error]
        return failed if len(failed) <= at_most else [*failed[:at_most], f"… and {len(failed) - at_most} more"]

    @property
    def counts(self) -> dict[str, int]:
        """Returns the result's fields about failed and denied calls."""
        below = sum((step.tool_agent_result or {}).get(DENIED, 0) for step in self.ended)
        return {
            "failed_call_count": sum(bool(step.error) for step in self.ended),
            "denied_call_count": sum(step.denied for step in self.ended) + below,
        }


def in_short(result: ToolAgentResult) -> dict[str, Any]:
    """Returns the summary of a child delegation for its step; camelCase, as on the wire."""
    short: dict[str, Any] = {
        "success": result.success,
        "summary": result.summary,
        "toolCallCount": result.tool_call_count,
    }
    more = {"filesModified": result.files_modified, "errors": result.errors, DENIED: result.denied_call_count}
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
