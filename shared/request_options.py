"""The option of each field of a request. Free of pydantic, whose import would double the time of a command's help.

The fields in ``request.py`` take their bounds and choices from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args


class ApprovalMode(StrEnum):
    ASK = "ask"
    SANDBOXED = "sandboxed"
    AUTO = "auto"
    READ_ONLY = "readOnly"


ToolCallStyle = Literal["native", "xml"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
OnCap = Literal["report", "wait"]
Require = Literal["passed", "verified", "improved"]
"""Which verdict makes a run with checks a success; ``SUFFICIENT`` in ``facts.py`` has those that each accepts."""
Kind = Literal["word", "text", "names", "labels", "checks", "globs", "after", "retry", "whole", "number", "json"]
"""How the value of an option is written; ``text`` may also be in a file, ``whole`` and ``number`` have bounds."""
TEXT = "TEXT|@FILE|-"
"""The placeholder of a text that may also be in a file or on standard input."""

REQUIRED = ("verified", "finished")
"""What has to be true of a result before another delegation starts."""


@dataclass(frozen=True, slots=True)
class Option:
    """What the command line shows of a field, the section of the help where it stands, and the field's bounds."""

    flag: str
    placeholder: str | None
    help: str
    section: str = "Rarely needed"
    kind: Kind = "word"
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    above: int | None = None

    @property
    def parameter(self) -> str:
        """The name of the command's parameter."""
        return self.flag.removeprefix("--").replace("-", "_")


OPTIONS = {
    "context": Option("--context", TEXT, "Background the worker needs.", "Task", "text"),
    "expectedOutcome": Option("--expect", TEXT, "What must be true at the end.", "Task", "text"),
    "outputSchema": Option(
        "--output-schema", "FILE|-", "The JSON Schema of the data that the result has as its output.", "Task", "json"
    ),
    "after": Option(
        "--after",
        "ID[:verified]",
        "Start when this one has succeeded, or was verified, and read its result; repeatable.",
        "Task",
        "after",
    ),
    "agent": Option("--agent", "NAME", "An agent of the settings; other options take precedence over it.", "Agent"),
    "systemPrompt": Option(
        "--system-prompt", TEXT, "Who the worker is and how it works, instead of ours.", "Agent", "text"
    ),
    "tools": Option(
        "--tools", "A,B", "Only these tools; names or patterns; * is all but call_subagent.", "Agent", "names"
    ),
    "approvalMode": Option(
        "--approval",
        None,
        "The way in which risky steps are decided.",
        "Agent",
        choices=tuple(mode.value for mode in ApprovalMode),
    ),
    "model": Option("--model", "M", "Another model than the configured one.", "Agent"),
    "effort": Option("--effort", None, "How much the model thinks and writes.", "Agent", choices=get_args(Effort)),
    "economy": Option("--economy", None, "Replies in batches, at half the price.", "Limits", choices=("yes", "no")),
    "deadline": Option("--deadline", "TIME", "When an economy run is to be done, and several attempts end.", "Limits"),
    "limits/maxTurns": Option("--max-turns", "N", "Replies of the model, at most.", "Limits", "whole", least=1),
    "limits/maxToolCalls": Option("--max-tool-calls", "N", "Tool calls, at most.", "Limits", "whole", least=0),
    "limits/timeoutSeconds": Option("--timeout", "S", "Seconds of work, at most.", "Limits", "number", above=0),
    "limits/maxTokens": Option("--max-tokens", "N", "Tokens of the model, at most.", "Limits", "whole", least=1),
    "limits/maxCostUsd": Option("--max-cost", "USD", "US dollars, at most.", "Limits", "number", above=0),
    "onCap": Option("--on-cap", None, "At a cap on money: report, or wait.", "Limits", choices=get_args(OnCap)),
    "retry": Option(
        "--retry", "N[:REASON,…]", "Do it again by itself where it fails, at most N times.", "Limits", "retry"
    ),
    "verify": Option("--verify", "CMD", "A command that must succeed afterwards; repeatable.", "Checks", "checks"),
    "protect": Option(
        "--protect",
        "GLOB",
        "Files that it sees as they were before; repeatable. Default: tests and their settings.",
        "Checks",
        "globs",
    ),
    "require": Option(
        "--require",
        None,
        "The verdict that makes it a success, and lets it be applied and delivered; default: passed.",
        "Checks",
        choices=get_args(Require),
    ),
    "accept": Option("--accept", "KIND,…", "Suspicions that do not count against it.", "Checks", "names"),
    "attempts/count": Option(
        "--attempts",
        "N",
        "Do the task up to N times, and take the best result by the verdict of its checks.",
        "Checks",
        "whole",
        least=1,
        most=100,
    ),
    "attempts/stop": Option(
        "--attempts-stop",
        None,
        "Whether the first verified attempt ends all others, or every one is made; default: verified.",
        "Checks",
        choices=("verified", "all"),
    ),
    "attempts/concurrency": Option(
        "--attempts-concurrency", "N", "Attempts at once; default: 1.", "Checks", "whole", least=1, most=100
    ),
    "attempts/models": Option("--attempts-models", "A,B", "Their models in turn.", "Checks", "names"),
    "attempts/efforts": Option("--attempts-efforts", "A,B", "Their efforts in turn.", "Checks", "names"),
    "maxVerifyRounds": Option(
        "--max-verify-rounds",
        "N",
        "How often a result that falls short goes back to the model; default: 2.",
        "Checks",
        "whole",
        least=0,
        most=10,
    ),
    "verifyTimeoutSeconds": Option(
        "--verify-timeout",
        "S",
        "Seconds for each execution of a check, beside those of the run; default: 300.",
        "Checks",
        "number",
        above=0,
    ),
    "verifyEarly": Option(
        "--verify-early",
        None,
        "Whether it ends before its first turn where a check cannot start; default: yes.",
        "Checks",
        choices=("yes", "no"),
    ),
    "projectInstructions": Option(
        "--project-instructions",
        None,
        "Whether it reads AGENTS.md of the files, else CLAUDE.md or GEMINI.md; default: yes.",
        "Agent",
        choices=("yes", "no"),
    ),
    "environment": Option(
        "--environment", "NAME", "A prepared environment of the settings; default: the one that fits.", "Agent"
    ),
    "deliver/branch": Option("--deliver", "BRANCH", "Push the changes of --git as this branch; {id} is filled in."),
    "deliver/message": Option("--deliver-message", TEXT, "The message of that commit.", kind="text"),
    "deliver/pullRequest/title": Option("--pull-request", "TITLE", "Open a pull request for it."),
    "deliver/pullRequest/body": Option("--pull-request-body", TEXT, "Its text.", kind="text"),
    "deliver/pullRequest/draft": Option(
        "--pull-request-draft", None, "Whether it is a draft; default: unless verified.", choices=("yes", "no")
    ),
    "deliver/withProtected": Option(
        "--deliver-with-protected",
        None,
        "Whether protected files are pushed, too, that checks put back; default: no.",
        choices=("yes", "no"),
    ),
    "deliver/workflows": Option(
        "--deliver-workflows",
        None,
        "Whether files are pushed, too, that a git host executes, such as workflows of CI; default: no.",
        choices=("yes", "no"),
    ),
    "deliver/attestation": Option(
        "--deliver-attestation", None, "Attach the proof of a verified result to its commit.", choices=("git-notes",)
    ),
    "webhook/url": Option("--webhook", "URL", "Notify this URL of its end and of its permission requests."),
    "webhook/events": Option("--webhook-events", "A,B", "Only of these: delegation.finished, …", kind="names"),
    "webhook/secretName": Option("--webhook-secret", "NAME", "The secret of the service's settings that signs."),
    "sharedContextLength": Option(
        "--shared-context-length",
        "CHARACTERS",
        "How many characters at the beginning of the context other delegations have, too; default: all of it.",
        kind="whole",
        least=0,
    ),
    "toolCallStyle": Option(
        "--tool-call-style", None, "How tool calls travel to the model.", choices=get_args(ToolCallStyle)
    ),
    "labels": Option("--label", "KEY:VALUE", "A label to find it by; repeatable.", kind="labels"),
    "priority": Option("--priority", "0-9", "Higher ones start first; default: 5.", kind="whole", least=0, most=9),
    "sessionId": Option("--session", "ID", "The parent's session; `list --session` finds it."),
    "messageId": Option("--message-id", "ID", "The parent's message."),
    "parentId": Option("--parent", "ID", "The delegation that this one belongs to."),
    "idempotencyKey": Option("--idempotency-key", "KEY", "Sent twice with the same key it is one delegation."),
    "continues": Option("--continues", "ID", "The finished delegation that it goes on with."),
    "retryOf": Option("--retry-of", "ID", "The finished delegation that it repeats."),
    "fromTurn": Option("--from-turn", "N", "The turn of --retry-of to begin with.", kind="whole", least=1),
    "merges": Option("--merges", "A,B", "Finished delegations to merge, without a model; see `merge`.", kind="names"),
    "mergeWithProtected": Option(
        "--merge-with-protected",
        None,
        "Whether protected files are merged, too, that checks put back; default: no.",
        choices=("yes", "no"),
    ),
}
"""Pointer into a request: the option that sets the value there. ``task`` and ``workspace`` have no entry: an argument
and several options set them (``orchestrator/cli/request_options.py``)."""
