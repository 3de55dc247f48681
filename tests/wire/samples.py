"""One value of everything that travels, with every field set, the same at every run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from deputize.shared.delegation import Delegation, Step, ToolAgentResult
from deputize.shared.events import Envelope
from deputize.shared.facts import MergeFacts
from deputize.shared.request import DelegationRequest

AT = datetime(2026, 11, 21, 9, 30, 15, 250_000, tzinfo=UTC)
ID = "dlg_01k9zxv3q8h4t7m2n5p6r8s9ta"

REQUEST = DelegationRequest.model_validate(
    {
        "task": "Find out why the discount is wrong, and mend it.\nZażółć gęślą jaźń 🙂",
        "context": "Orders of exactly 100 euros get none.",
        "expectedOutcome": "The tests pass.",
        "sessionId": "session-7",
        "messageId": "message-3",
        "limits": {
            "maxTurns": 12,
            "maxToolCalls": 20,
            "timeoutSeconds": 90.5,
            "maxTokens": 50000,
            "maxCostUsd": 0.25,
        },
        "tools": ["read_*", "edit_file", "bash"],
        "agent": "reviewer",
        "systemPrompt": "You review prices.",
        "approvalMode": "readOnly",
        "model": "claude-sonnet-5-5",
        "effort": "high",
        "economy": True,
        "deadline": "2026-12-01T06:00:00Z",
        "toolCallStyle": "xml",
        "workspace": {"kind": "directory", "path": "/srv/shop", "ignored": False},
        "outputSchema": {"type": "object", "properties": {"fixed": {"type": "boolean"}}},
        "verify": [
            {
                "kind": "command",
                "run": "python3 -m unittest -q",
                "files": {"test_more.py": "import pricing\n"},
                "hidden": False,
                "canary": "diff --git a/pricing.py b/pricing.py\n",
                "timeoutSeconds": 30,
            },
            {"kind": "file", "path": "pricing.py", "exists": True, "matches": ">=", "sha256": "0" * 64},
            {"kind": "unchanged", "paths": ["test_pricing.py"]},
            {"kind": "changed", "paths": ["pricing.py"]},
            {"kind": "review", "model": "claude-opus-5-5"},
            {"kind": "own", "name": "licence", "arguments": {"words": "Apache"}},
        ],
        "protect": ["test_*.py"],
        "require": "verified",
        "accept": ["skip"],
        "maxVerifyRounds": 1,
        "verifyTimeoutSeconds": 900,
        "verifyEarly": False,
        "onCap": "wait",
        "after": [{"id": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t3", "require": "verified"}],
        "labels": {"team": "shop"},
        "priority": 7,
        "webhook": {"url": "https://example.org/done", "events": ["delegation.finished"], "secretName": "ci"},
        "retry": {"attempts": 2, "on": ["timeout", "error"]},
        "environment": "shop",
        "parentId": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t0",
        "idempotencyKey": "order-17",
        "continues": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t1",
        "retryOf": "dlg_01k9zxv3q8h4t7m2n5p6r8s9t2",
        "fromTurn": 3,
    }
)

GIT = {
    "base": "a" * 40,
    "branch": "deputize/dlg_01",
    "commit": "b" * 40,
    "pullRequestUrl": "https://github.com/o/r/pull/7",
}
RESULT = ToolAgentResult.model_validate(
    {
        "delegationId": ID,
        "status": "failed",
        "terminationReason": "max_tool_calls",
        "summary": "The comparison leaves out the sum itself; I changed it.",
        "details": "1 ✓ read_file pricing.py\n2 ✓ edit_file pricing.py",
        "filesModified": ["pricing.py", "notes/new.md"],
        "fileChanges": [
            {
                "path": "pricing.py",
                "change": "modified",
                "baseHash": "a" * 64,
                "newHash": "b" * 64,
                "addedLines": 1,
                "removedLines": 1,
            },
            {"path": "notes/new.md", "change": "renamed", "from": "notes/old.md", "inPatch": False},
        ],
        "truncated": True,
        "leftOut": ["notes/new.md is not in the patch: too large (9437184 bytes)"],
        "ignoredFiles": ["__pycache__/pricing.cpython-312.pyc"],
        "ignoredCount": 1,
        "errors": ["bash: the command ended with exit code 1"],
        "toolCallCount": 20,
        "turnCount": 9,
        "executionTimeMs": 61234,
        "attempts": 2,
        "usage": {
            "inputTokens": 1200,
            "outputTokens": 340,
            "cacheReadTokens": 800,
            "cacheWriteTokens": 60,
            "cacheWrite1hTokens": 20,
            "costUsd": 0.0125,
            "cacheSavedUsd": 0.0014,
        },
        "output": {"fixed": True},
        "outputStatus": "valid",
        "verification": {
            "verdict": "verified",
            "require": "verified",
            "checks": [
                {
                    "item": {"kind": "command", "run": "python3 -m unittest -q", "timeoutSeconds": 30},
                    "outcome": "evidence",
                    "why": "1 test that failed before passes now",
                    "base": "red",
                    "candidate": "green",
                    "canary": "red",
                    "asLeft": "green",
                    "strength": "tests",
                    "ownTests": False,
                    "exitCode": 0,
                    "outputTail": "OK",
                    "durationMs": 1200,
                    "tests": {"fixed": ["test_pricing.Discount.test_at_100"]},
                }
            ],
            "restored": ["test_pricing.py"],
            "rounds": 1,
            "suspicions": [{"path": "pricing.py", "line": 3, "kind": "skip"}],
            "claims": [{"claim": "The tests pass", "evidence": "call_1", "verdict": "proved"}],
        },
        "trust": {"sources": ["parent", "workspace", "mcp:git", "web"], "taintedBy": ["web"], "neutralized": 2},
        "artifacts": [{"name": "report.md", "version": 2, "size": 512}],
        "reaped": ["sleep 1000"],
    }
)

MERGE = RESULT.model_copy(
    update={
        "merge": MergeFacts.model_validate(
            {
                "conflicts": [
                    {
                        "path": "pricing.py",
                        "sides": [
                            {"id": ID, "change": "modified", "text": "-a\n+b\n"},
                            {"id": "dlg_01jc0000000000000000000002", "change": "deleted"},
                        ],
                    }
                ],
                "incompatible": [{"ids": [ID, "dlg_01jc0000000000000000000002"], "checks": 2, "why": "1 test fails"}],
                "compatible": [ID],
            }
        )
    }
)

STEP = Step.model_validate(
    {
        "id": "call_1",
        "type": "edit",
        "title": "edit pricing.py",
        "description": "Changes one comparison",
        "status": "completed",
        "toolName": "edit_file",
        "arguments": {"path": "pricing.py", "old_string": ">", "new_string": ">="},
        "turnIndex": 3,
        "timestamp": AT,
        "thinking": "The sum itself is left out.",
        "result": "Changed 1 place.",
        "summary": "one comparison changed",
        "error": None,
        "toolAgentResult": {"success": True, "summary": "done", "toolCallCount": 1},
        "changes": [
            {"path": "pricing.py", "change": "modified", "added": 1, "removed": 1},
            {"path": "new.bin", "change": "renamed", "from": "old.bin"},
        ],
        "moreChanges": 2,
        "diff": "diff --git a/pricing.py b/pricing.py\n",
    }
)

_USAGE = RESULT.usage.to_dict()
_STEP = STEP.to_dict()
_EVENTS: list[dict[str, Any]] = [
    {"type": "run_queued", "request": REQUEST.to_dict()},
    {
        "type": "run_started",
        "worker": "worker-1@host",
        "model": "claude-sonnet-5-5",
        "tools": ["bash", "edit_file", "read_file"],
        "limits": REQUEST.limits.to_dict(),
        "furtherTools": [
            {
                "name": "mcp__git__log",
                "kind": "read",
                "effect": "pure",
                "source": "mcp",
                "server": "git",
                "remote": "log",
                "trusted": True,
                "needsApproval": False,
            }
        ],
    },
    {"type": "run_resumed", "worker": "worker-2@host", "fromTurn": 4, "reason": "the lease of worker-1 lapsed"},
    {"type": "run_finished", "result": RESULT.to_dict()},
    {"type": "turn_started", "turn": 3, "taintedBy": ["web"]},
    {"type": "text_delta", "turn": 3, "text": "I change "},
    {"type": "thinking_delta", "turn": 3, "text": "The sum "},
    {
        "type": "replied",
        "turn": 3,
        "text": "I change the comparison.",
        "thinking": "The sum itself is left out.",
        "stopReason": "tool_use",
        "usage": _USAGE,
        "toolCalls": [{"id": "call_1", "name": "edit_file", "arguments": {"path": "pricing.py"}}],
        "cacheMiss": "messages_changed",
    },
    {"type": "model_retried", "turn": 3, "error": "overloaded", "delaySeconds": 1.5},
    {"type": "step_started", "step": _STEP | {"status": "running", "result": None, "summary": None}},
    {"type": "step_updated", "stepId": "call_1", "title": "edit pricing.py", "metadata": {"lines": 1}},
    {
        "type": "permission_requested",
        "permissionId": "prm_1",
        "path": [ID],
        "step": _STEP | {"status": "awaiting-confirmation"},
        "details": {"type": "edit", "paths": ["pricing.py"], "diff": "-a\n+b"},
        "reason": "edit_file changes something (edit)",
        "rule": "ask_before_changes",
        "remembers": {"proceed_always": ["every call of edit_file"]},
        "createdAt": AT,
        "expiresAt": AT,
    },
    {
        "type": "permission_answered",
        "permissionId": "prm_1",
        "path": [ID],
        "outcome": "cancel",
        "reason": "no",
        "by": "ada",
    },
    {"type": "step_completed", "step": _STEP},
    {"type": "check_completed", "check": 0, "on": "base", "ok": False, "exitCode": 1, "outputTail": "FAILED"},
    {"type": "progress", "message": "compacting the conversation"},
    {"type": "delivered", "git": GIT},
    {"type": "error", "message": "the endpoint does not answer", "kind": "model_unavailable"},
    {"type": "heartbeat", "turn": 3, "toolCalls": 5, "lastTool": "edit_file", "elapsedMs": 20000, "costUsd": None},
    {"type": "waiting", "why": "rate", "detail": "HTTP 529 from https://api.example/v1/messages: overloaded."},
    {"type": "resumed_waiting", "seconds": 61.5},
    {
        "type": "run_retried",
        "reason": "model_unavailable",
        "error": "the endpoint does not answer",
        "retry": 1,
        "of": 2,
        "delaySeconds": 1.0,
    },
    {"type": "message_received", "messageId": "msg_1", "text": "Leave the tests as they are.", "by": "ada"},
    {"type": "message_read", "messageId": "msg_1", "turn": 4},
    {"type": "wrap_up_requested", "messageId": "msg_2", "by": None, "reason": "That is enough."},
]
TRANSIENT = {"text_delta", "thinking_delta", "step_updated", "heartbeat"}


def _envelope(number: int, event: Any) -> Envelope:
    seq = None if event["type"] in TRANSIENT else number
    return Envelope(delegation_id=ID, seq=seq, at=AT, attempt=1, event=event)


EVENTS = {event["type"]: _envelope(number, event) for number, event in enumerate(_EVENTS, 1)}

DELEGATION = Delegation.model_validate(
    {
        "id": ID,
        "status": "failed",
        "createdAt": AT,
        "startedAt": AT,
        "finishedAt": AT,
        "attempt": 2,
        "worker": "worker-1@host",
        "request": REQUEST,
        "effectiveLimits": REQUEST.limits,
        "progress": {"turn": 9, "toolCalls": 20, "lastTool": "bash", "elapsedMs": 61234, "costUsd": 0.0125},
        "pendingPermissions": ["prm_1"],
        "result": RESULT,
    }
)
