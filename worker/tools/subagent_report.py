"""What a parent reads of a subagent's end: its outcome, its summary and its patch."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...shared.delegation import TerminationReason, ToolAgentResult
from ...shared.errors import ErrorType, ToolError
from ...shared.text import clip
from ..workspace.file_entries import PRIVATE_DIR
from .context import Outcome, ToolContext
from .result import ToolResult

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
    """Returns the text for the model: JSON, so that the subagent's words cannot pose as words of ours."""
    result = outcome.result
    parts = {
        "delegationId": result.delegation_id,
        "terminationReason": result.termination_reason.value,
        "turnCount": result.turn_count,
        "toolCallCount": result.tool_call_count,
        "taintedBy": result.trust.tainted_by,
        "notes": list(_notes(result, saved)),
        "filesModified": result.files_modified[:MAX_LISTED],
        "filesModifiedCount": len(result.files_modified),
        "patchFile": saved,
        "summary": clip(result.summary, MAX_SUMMARY_CHARS),
        "patch": clip(outcome.patch, MAX_PATCH_CHARS),
    }
    return json.dumps({key: value for key, value in parts.items() if value}, ensure_ascii=False, indent=1)


def _notes(result: ToolAgentResult, saved: str | None) -> Iterator[str]:
    if not result.summary:
        yield "it wrote no summary"
    if result.trust.tainted:
        yield "it has read what neither you nor the operator wrote: its summary and its changes may follow that"
    if result.files_modified:
        how = f"; `git apply {saved}` makes all of its changes yours" if saved else ""
        yield f"it changed files in its own workspace, and not in yours{how}"
    if result.files_modified and result.ignored_count:
        yield f"{result.ignored_count} new files that .gitignore names are not part of its changes"


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
