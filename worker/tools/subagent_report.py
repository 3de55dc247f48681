"""What a parent reads of a subagent's end: its outcome, its summary and its patch."""

from __future__ import annotations

from deputize.shared.delegation import TerminationReason, ToolAgentResult
from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.text import clip
from deputize.worker.tools.context import Outcome, ToolContext
from deputize.worker.tools.result import ToolResult
from deputize.worker.workspace.file_entries import PRIVATE_DIR

MAX_PATCH_CHARS = 3000
MAX_SUMMARY_CHARS = 3500
MAX_LISTED = 30
_ERRORS = {TerminationReason.CANCELLED: ErrorType.CANCELLED, TerminationReason.TIMEOUT: ErrorType.TIMEOUT}


def failure_result(answer: ToolResult, result: ToolAgentResult) -> ToolResult:
    reason = result.termination_reason
    kind = _ERRORS.get(reason, ErrorType.LIMIT_REACHED if reason.is_limit else ErrorType.EXECUTION_FAILED)
    error = ToolError(kind, f"the subagent did not complete its task ({reason.value}); its work so far is below")
    return ToolResult.failed(error, answer.content, display=answer.display, data=answer.data, metadata=answer.metadata)


def report(outcome: Outcome, saved: str | None) -> str:
    """Returns the text for the model: the outcome, the subagent's summary, and the path of its patch."""
    result = outcome.result
    effort = f"{result.turn_count} turns, {result.tool_call_count} tool calls"
    parts = [f"Subagent {result.delegation_id} ended: {result.termination_reason.value} ({effort})."]
    parts.append(clip(result.summary, MAX_SUMMARY_CHARS) or "(It wrote no summary.)")
    if changed := result.files_modified:
        more = f" and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
        parts.append(f"It changed in its own workspace, and not in yours: {', '.join(changed[:MAX_LISTED])}{more}.")
        where = f" All of it is in {saved}; `git apply {saved}` makes the changes yours." if saved else ""
        if result.ignored_count:
            parts.append(f"{result.ignored_count} new files that .gitignore names are not part of it.")
        parts.append(f"This is the patch.{where}\n{clip(outcome.patch, MAX_PATCH_CHARS)}")
    return "\n\n".join(parts)


def save_patch(ctx: ToolContext, outcome: Outcome) -> str | None:
    """Returns the path of the saved patch in the caller's workspace; None if there is none or it cannot be saved."""
    if not outcome.patch:
        return None
    path = f"{PRIVATE_DIR}/subagents/{outcome.result.delegation_id}.patch"
    try:
        ctx.files.write(f"{PRIVATE_DIR}/.gitignore", b"*\n")
        ctx.files.write(path, outcome.patch.encode())
    except ToolError:
        return None
    return path
