"""The words for people: one line per event and per result, the lines of a question about permission, and amounts.

The command line, the MCP server, the web page and Flower show these words. They contain text of
models and commands, so each escapes what it prints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, assert_never

from .marks import MARKS
from .text import count, shortened

if TYPE_CHECKING:
    from .delegation import Step, ToolAgentResult, Usage
    from .events import (
        AnyEvent,
        Delivered,
        ErrorSeen,
        MessageRead,
        MessageReceived,
        ModelRetried,
        PermissionAnswered,
        PermissionRequested,
        ProgressMade,
        Replied,
        ResumedWaiting,
        RunFinished,
        RunQueued,
        RunResumed,
        RunRetried,
        RunStarted,
        TurnStarted,
        Waiting,
        WrapUpRequested,
    )
    from .facts import GitFacts
    from .permission import PermissionQuestion

SHORT_ID = 6
"""Characters of an id's end that are shown; commands accept them as the id."""
SHORT_PERMISSION_ID = 8
"""The end of a permission request's id, which belongs to the call."""
MAX_IDS = 3
"""Ids in a line."""
MAX_PATHS = 5
"""Paths in a line."""
MAX_TITLE = 100
MAX_TEXT = 160
"""Characters of a reply or an error in a line."""


def line_of(event: AnyEvent, at: datetime | None = None) -> str | None:
    """Returns the line of an event, or None for an event that only programs read.

    With ``at``, when it happened, the end of a step has its duration.
    """
    match event.type:
        case "run_queued" | "run_started" | "run_resumed" | "run_retried" | "delivered" | "run_finished":
            return _run(event)
        case "turn_started" | "replied" | "model_retried":
            return _turn(event)
        case "waiting" | "resumed_waiting":
            return _wait(event)
        case "step_started" | "step_completed":
            ended = at if event.type == "step_completed" else None
            return f"turn {event.step.turn_index}  {step_line(event.step, ended)}"
        case "permission_requested" | "permission_answered":
            return _permission(event)
        case "message_received" | "message_read" | "wrap_up_requested":
            return _message(event)
        case "check_completed":
            return f"check {event.check + 1} on the {event.on}: {'green' if event.ok else 'red'}"
        case "progress" | "error":
            return _report(event)
        case "text_delta" | "thinking_delta" | "step_updated" | "heartbeat":
            return None
    assert_never(event)


def _report(event: ProgressMade | ErrorSeen) -> str:
    if event.type == "progress":
        return event.message
    named = event.kind == "rate" or event.message.startswith(f"{event.kind}: ")
    return event.message if named else f"{event.kind}: {event.message}"


def _run(event: RunQueued | RunStarted | RunResumed | RunRetried | Delivered | RunFinished) -> str:
    match event.type:
        case "run_queued":
            waits = waits_for([each.id for each in event.request.after])
            return ", ".join(filter(None, (f"queued: {event.request.title}", waits)))
        case "run_started":
            return f"running on {event.worker} with {event.model}"
        case "run_resumed":
            return f"taken over by {event.worker} at turn {event.from_turn}: {event.reason}"
        case "run_retried":
            again = f"done again from the start in {seconds(event.delay_seconds)} (retry {event.retry} of {event.of})"
            return f"{again}, after {event.reason}: {event.error}"
        case "delivered":
            return f"delivered as {where(event.git)}"
        case "run_finished":
            return outcome(event.result)
    assert_never(event)


def where(git: GitFacts) -> str:
    """`deputize/dlg_01…, https://github.com/o/r/pull/1`: where a delivered run's changes are, and which are not."""
    without = f"without {put_back(git.left_out)}" if git.left_out else ""
    return ", ".join(filter(None, (git.branch, git.pull_request_url, without)))


def put_back(paths: Sequence[str]) -> str:
    """`tests/a.py, …, which the checks put back`: what is left out where a run's changes are taken over."""
    names = ", ".join(paths[:MAX_PATHS]) + (f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else "")
    return f"{names}, which the checks put back"


def _turn(event: TurnStarted | Replied | ModelRetried) -> str:
    match event.type:
        case "turn_started":
            return f"turn {event.turn}"
        case "replied":  # `I look at it first. → read_file, bash`
            calls = ", ".join(call.name for call in event.tool_calls)
            return " → ".join(part for part in (cut(event.text, MAX_TEXT), calls) if part)
        case "model_retried":
            return f"turn {event.turn}  the model is asked again in {seconds(event.delay_seconds)}: {event.error}"
    assert_never(event)


def _wait(event: Waiting | ResumedWaiting) -> str:
    if event.type == "resumed_waiting":
        return f"goes on after {seconds(event.seconds)}"
    things = {"rate": "the model's endpoint", "shared_prefix": "a cached prefix", "batch": "a message batch"}
    thing = things.get(event.why, event.why)
    return f"waits for {thing}{f': {event.detail}' if event.detail else ''}"


def _permission(event: PermissionRequested | PermissionAnswered) -> str:
    id = event.permission_id[-SHORT_PERMISSION_ID:]
    if event.type == "permission_requested":
        return f"asks for permission: {event.step.title} (`deputize approve {id}` or `deputize deny {id}`)"
    return f"permission {id}: {answer_words(event.outcome, event.by, event.reason)}"


def _message(event: MessageReceived | MessageRead | WrapUpRequested) -> str:
    id = short_id(event.message_id)
    if event.type == "message_read":
        return f"turn {event.turn}  message {id} read"
    line, text = ("message", event.text) if event.type == "message_received" else ("asked to wrap up", event.reason)
    line += f" {id}" + (f' from token "{event.by}"' if event.by else "")
    return f"{line}: {cut(text, MAX_TEXT)}" if text else line


def answer_words(outcome: str, by: str | None, reason: str | None) -> str:
    """Returns `denied by token "ci": do not push`; ``by`` is the name of a token."""
    words = "denied" if outcome == "cancel" else "approved"
    words += " always" if "always" in outcome else " with other arguments" if outcome == "modify" else ""
    words += f' by token "{by}"' if by else ""
    return f"{words}: {reason}" if reason else words


def step_line(step: Step, ended: datetime | None = None) -> str:
    """`✓ read pricing.py  0.1 s`; of a denied call only the wait for the answer took time, which is not shown."""
    sign = {"completed": "✓", "failed": "✗"}.get(step.status, "…")
    trouble = f": {cut(step.error, MAX_TEXT)}" if step.error else ""
    took = "" if ended is None or step.denied else f"  {seconds(max(0.0, (ended - step.timestamp).total_seconds()))}"
    return f"{sign} {cut(step.title or step.tool_name, MAX_TITLE)}{took}{trouble}"


def outcome(result: ToolAgentResult) -> str:
    """`✓ succeeded (completed, 1 call denied): 3 turns, 5 tool calls, 2.1 s, 1,204 tokens, $0.0031`."""
    facts = (
        count(result.turn_count, "turn"),
        count(result.tool_call_count, "tool call"),
        seconds(result.execution_time_ms / 1000),
        tokens(result.usage),
    )
    return f"{MARKS[result.mark]} {result.ending}: {', '.join(facts)}"


def question_of(asked: PermissionQuestion) -> list[str]:
    """Returns the lines about a call that waits for permission; each interface shows its title as the heading.

    The text of the call is last, and each line of it is marked, so that none of them passes for one of the others.
    """
    lines: list[str] = []
    if len(asked.path) > 1:
        lines.append(f"asked by {short_id(asked.path[-1])}, a child of {asked.path[-2]}")
    if asked.reason:
        lines.append(f"because {asked.reason}" + (f" (rule {asked.rule})" if asked.rule else ""))
    # Of answers that permit the same only the first one.
    lasting = {", ".join(grants): outcome for outcome, grants in reversed(asked.remembers.items())}
    for grants, outcome in reversed(lasting.items()):
        lines.append(f"{outcome.removeprefix('proceed_').replace('always_', 'always, this ')}: {grants}")
    return [f"  {line}" for line in lines] + [f"  | {line}" for line in _call(asked)]


def _call(asked: PermissionQuestion) -> Sequence[str]:
    details = asked.details
    match details.type:
        case "execute":
            asking = [each for each in details.commands if each.decision != "allow"]
            parts = [f"# {each.reason}" for each in asking] + [f"# it {effect}" for effect in details.effects]
            return [*details.command.splitlines(), *dict.fromkeys(parts)]
        case "edit":
            return details.diff.splitlines() or details.paths
        case "mcp":
            return [f"{details.server}: {details.tool}", *_arguments(details.arguments)]
        case _:
            more = {name: value for name, value in details.arguments.items() if value not in details.urls}
            return [*(url for url in details.urls if url not in asked.step.title), *_arguments(more)]


def _arguments(arguments: dict[str, object]) -> list[str]:
    return json.dumps(arguments, ensure_ascii=False, indent=1).splitlines() if arguments else []


def waits_for(ids: Sequence[str]) -> str:
    """Returns `waits for …9s8t7u, …2b3c4d`; "" for none."""
    more = ["…"] if len(ids) > MAX_IDS else []
    return f"waits for {', '.join([*map(short_id, ids[:MAX_IDS]), *more])}" if ids else ""


def short_id(id: str) -> str:
    return f"…{id[-SHORT_ID:]}"


def seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def dollars(usd: float | None) -> str:
    """Formats a cost; a dash if the price is not known, which is not the same as zero."""
    if usd is None:
        return "–"
    return f"{'-' if round(usd, 4) < 0 else ''}${abs(usd):.4f}"


def share(part: float | None) -> str:
    """`97.3%`; a dash if there is nothing to have a share of."""
    return "–" if part is None else f"{part:.1%}"


def tokens(usage: Usage) -> str:
    """`1,204 tokens (97.3% cached), $0.0031 ($0.0142 saved)`; what is in brackets only where the cache was read."""
    batched = f", {usage.batch_tokens:,} in batches" if usage.batch_tokens else ""
    if not usage.cache_read_tokens:
        return f"{usage.total:,} tokens{batched}, {dollars(usage.cost_usd)}"
    saved = "" if usage.cache_saved_usd is None else f" ({dollars(usage.cache_saved_usd)} saved)"
    return f"{usage.total:,} tokens ({share(usage.cached_share)} cached){batched}, {dollars(usage.cost_usd)}{saved}"


def cut(text: str, width: int) -> str:
    """Returns the text on one line of at most ``width`` characters."""
    return shortened(" ".join(text.split()), width)
