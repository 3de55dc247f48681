"""`show` and `list`: the record of a delegation, its events as a conversation, the usage of its calls, and tables."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import NotFound
from ...shared.text import count
from ...shared.wording import (
    MARKS,
    cut,
    dollars,
    line_of,
    outcome,
    seconds,
    short_id,
    step_line,
    waits_for,
    where,
)
from . import completion, output
from .connect import LARGEST_PAGE, NEWEST, asynchronous, connect, full_id, listed, load_settings
from .selection import by_label_and_session, filters
from .usage import HEAD, usage_rows

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, Step, ToolAgentResult
    from ...shared.events import Envelope
    from ...shared.request import DelegationRequest
    from ..client import Client


MIN_TITLE = 20
"""Characters of a title that a list shows at least."""
RESULT_LINES = 20
"""Lines of a call's result that are shown."""
LEFT_OUT = {"step_started", "permission_answered"}


def transcript(envelopes: Iterable[Envelope], upstreams: Sequence[Delegation] = ()) -> Iterator[str]:
    """Yields lines. Text of others is indented, so that it cannot pass for a line of ours.

    ``upstreams`` are those whose results it has read.
    """
    last = ""
    for envelope in envelopes:
        event = envelope.event
        match event.type:
            case "run_queued":
                yield from _task(event.request)
                for each in upstreams:
                    yield from _result_of(each)
            case "turn_started":
                yield from ("", f"━━ turn {event.turn}  {envelope.at:%H:%M:%S}")
            case "replied":
                last = event.text.strip()
                yield from _indented(last)
            case "step_completed":
                yield from _call(event.step, envelope.at)
            case "run_finished":
                yield from ("", f"━━ {outcome(event.result)}")
                if event.result.summary.strip() != last:
                    yield from _indented(event.result.summary.strip())
            case _ if event.type not in LEFT_OUT and (line := line_of(event)) is not None:
                yield f"· {line}"
            case _:
                pass


def _task(request: DelegationRequest) -> Iterator[str]:
    yield f"━━ task, with effort {request.effort}" if request.effort else "━━ task"
    yield from _indented(request.task.strip())
    for name, text in (("context", request.context), ("expected outcome", request.expected_outcome)):
        if text.strip():
            yield from ("", f"━━ {name}")
            yield from _indented(text.strip())


def _result_of(upstream: Delegation) -> Iterator[str]:
    if result := upstream.result:
        yield from ("", f"━━ result of {upstream.id}: {upstream.request.title}")
        yield from _indented(result.summary.strip())
        if result.output_status == "valid":
            yield from _indented(json.dumps(result.output, ensure_ascii=False, indent=2))


def _call(step: Step, ended: datetime) -> Iterator[str]:
    yield step_line(step, ended)
    result = (step.result or "").rstrip()
    yield from _beginning(result)
    if step.diff and not _diff_counts(result):
        yield from _beginning(step.diff.rstrip())


def _beginning(text: str) -> Iterator[str]:
    lines = text.split("\n") if text else []
    mark = "  | " if _diff_counts(text) else "    "
    yield from (f"{mark}{line}".rstrip() for line in lines[:RESULT_LINES])
    if (more := len(lines) - RESULT_LINES) > 0:
        yield f"… {count(more, 'more line')}"


def _indented(text: str) -> Iterator[str]:
    yield from (f"  {line}".rstrip() for line in text.split("\n") if text)


STATUSES = ("queued", "running", "waiting", "succeeded", "failed", "cancelled")


@click.command()
@click.argument("id", default=NEWEST, shell_complete=completion.delegations)
@click.option("--transcript", is_flag=True, help="The whole conversation: replies, calls and their results.")
@click.option("--events", is_flag=True, help="Every event that was kept.")
@click.option("--steps", is_flag=True, help="The tool calls and their results.")
@click.option("--usage", is_flag=True, help="Tokens and cost of each model call, and the savings of the prompt cache.")
@click.option("--patch", is_flag=True, help="The changes in the workspace, as a diff.")
@click.option("--proof", is_flag=True, help="The signed statement of a verified result, for `deputize prove`.")
@click.option("--artifact", metavar="NAME", help="The artifact of this name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@asynchronous
async def show(id: str, artifact: str | None, as_json: bool, **parts: bool) -> None:
    """Show one delegation: by default where it stands and its result.

    ID may be shortened to its beginning or its end; without one it is @last, the newest without a parent.
    """
    asked = [name for name, wanted in (parts | {"artifact": artifact is not None}).items() if wanted]
    if len(asked) > 1:
        raise click.UsageError(f"give one of {' and '.join(f'--{name}' for name in asked)}")
    part = asked[0] if asked else ""
    if as_json and part == "transcript":
        raise click.UsageError("--json has no meaning with --transcript; --events --json has all of it")
    is_text = part in ("patch", "proof", "artifact")
    if as_json and is_text:
        raise click.UsageError(f"--json has no meaning with --{part}, which is printed as it is")
    async with connect(load_settings()) as service:
        client = service.client
        id = await full_id(client, id)
        match part:
            case _ if is_text:
                await _show_text(client, id, part, artifact or "")
            case "transcript":
                events = await client.events(id)
                output.lines(transcript(events, await _read_by(client, id, events)))
            case "events":
                await _show_events(client, id, as_json)
            case "steps":
                await _show_steps(client, id, as_json)
            case "usage":
                await _show_usage(client, id, as_json)
            case _:
                await _show_result(client, id, as_json)


async def _show_text(client: Client, id: str, part: str, artifact: str) -> None:
    match part:
        case "patch":
            output.patch(await client.patch(id))
        case "proof":
            output.json_line((await client.proof(id)).to_json())
        case _:
            output.content(await client.artifact(id, artifact))


async def _read_by(client: Client, id: str, events: Sequence[Envelope]) -> list[Delegation]:
    """Returns the delegations whose results a run has read before its task, as far as their records exist."""
    found: list[Delegation] = []
    if any(envelope.event.type == "run_started" for envelope in events):
        for each in (await client.get(id)).request.after:
            with suppress(NotFound):
                found.append(await client.get(each.id))
    return found


async def _show_events(client: Client, id: str, as_json: bool) -> None:
    for envelope in await client.events(id):
        if as_json:
            output.json_line(envelope.to_json())
        else:
            text = line_of(envelope.event, envelope.at) or ""
            output.line(f"{envelope.seq:>4}  {envelope.at:%H:%M:%S}  {envelope.event.type:20}  {text}".rstrip())


async def _show_steps(client: Client, id: str, as_json: bool) -> None:
    for number, step in enumerate(await client.steps(id), 1):
        if as_json:
            output.json_line(step.to_json())
            continue
        arguments = ", ".join(f"{name}={cut(str(value), 60)}" for name, value in step.arguments.items())
        output.line(f"{number:>3}  {'✓' if step.status == 'success' else '✗'} {step.tool_name}({arguments})")
        outcome = step.error or step.summary or step.result or ""
        counts = _diff_counts(outcome)
        if outcome and not (counts and step.changes):
            output.line(f"       {counts or cut(outcome, 160)}")
        for line in output.step_changes(step):
            output.line(f"       {line}")


def _diff_counts(text: str) -> str:
    """Returns `+3 -1` for a diff, which would not be readable on one line; "" for other texts."""
    lines = text.splitlines() if text.startswith("--- ") and "\n@@ " in text else []
    added, removed = (sum(line[0:1] == sign != line[1:2] for line in lines) for sign in "+-")
    return f"+{added} -{removed}" if lines else ""


async def _show_usage(client: Client, id: str, as_json: bool) -> None:
    delegation = await client.get(id)
    rows = usage_rows(delegation, await client.events(id), await _children(client, delegation))
    if as_json:
        for row in rows:
            output.json_line(row.to_json())
    else:
        output.lines(output.columns([HEAD, *(row.cells for row in rows)], left={0, len(HEAD) - 1}))


async def _children(client: Client, parent: Delegation) -> list[Delegation]:
    """Returns the delegations that were submitted as the parent's children, oldest first."""
    return [delegation async for delegation in listed(client, parent=parent.id)][::-1]


async def _show_result(client: Client, id: str, as_json: bool) -> None:
    """Prints the facts first and the summary last, because it may be long."""
    delegation = await client.get(id)
    if as_json:
        output.json_line(delegation.to_json())
        return
    output.lines(_facts(delegation, await _children(client, delegation)))
    if delegation.result is not None:
        output.line("")
        output.prose(delegation.result.summary)
        output.data(delegation.result)


def _status(delegation: Delegation) -> str:
    return "paused" if delegation.paused else delegation.status


def _mark(delegation: Delegation) -> str:
    return MARKS[delegation.result.mark] if delegation.result else " "


def _child(delegation: Delegation) -> str:
    state = delegation.result.headline if delegation.result else _status(delegation)
    return f"child      {_mark(delegation)} {state:12}  {delegation.request.title}  {delegation.id}"


def _verdict(delegation: Delegation) -> str:
    """Returns the verdict of the checks; without checks `unproven`, or a dash where nothing is against the result."""
    result = delegation.result
    if result is None or result.verification.verdict != "unverified":
        return result.verification.verdict if result else "–"
    return result.mark if result.mark == "unproven" else "–"


def _claims(result: ToolAgentResult) -> list[str]:
    refuted = [f"refuted    by the run: {claim}" for claim in result.refuted_claims]
    return refuted + [f"unproved   by the run: {claim}" for claim in output.unproved(result)]


def _facts(delegation: Delegation, children: Sequence[Delegation]) -> list[str]:
    request = delegation.request
    lines = [
        f"task       {request.title}",
        f"id         {delegation.id}",
        f"status     {_status(delegation)}",
        f"created    {delegation.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if request.parent_id:
        lines.append(f"parent     {request.parent_id}")
    if request.builds_on:
        retried = f"retry of   {request.retry_of} from turn {request.from_turn}"
        what = retried if request.from_turn else f"continues  {request.continues}"
        lines.append(f"{what}; changes are counted from the start of the conversation")
    lines += [*([f"effort     {request.effort}"] if request.effort else []), *map(_child, children)]
    if delegation.worker:
        lines.append(f"worker     {delegation.worker}, attempt {delegation.attempt}")
    lines += [f"waits for  {other}" for other in (*delegation.waits_for, *delegation.pending_permissions)]
    result = delegation.result
    if result is None:
        now = delegation.progress
        facts = (f"turn {now.turn}", count(now.tool_calls, "tool call"), now.last_step)
        return [*lines, f"progress   {', '.join(filter(None, facts))}"]
    lines.append(f"outcome    {outcome(result)}")
    lines += output.verdict(result.verification)
    lines += [f"changed    {output.change(changed)}" for changed in result.file_changes]
    if not result.file_changes and (unchanged := output.changes(result, delegation.request)):
        lines.append(f"changed    {unchanged}")
    if result.git and result.git.commit:
        lines.append(f"delivered  as {where(result.git)}, commit {result.git.commit}")
    lines += _claims(result)
    lines += [f"left out   {sentence}" for sentence in output.left_out(result)]
    if ignored := output.ignored(result.ignored_count, result.ignored_files):
        lines.append(f"ignored    {ignored}")
    if delegation.disk_bytes is not None:
        gone = "its files were removed"
        lines.append(f"on disk    {output.size(delegation.disk_bytes) if delegation.disk_bytes else gone}")
    lines += [f"artifact   {made.name}, version {made.version}, {made.size} bytes" for made in result.artifacts]
    instructed = [f"instructed {read.path}, sha256 {read.sha256[:12]}" for read in result.instructions]
    return [*lines, *instructed, *(f"error      {error}" for error in output.other_errors(result))]


@click.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only these.")
@by_label_and_session
@click.option(
    "--parent", metavar="ID", shell_complete=completion.delegations, help="Only those that belong to this delegation."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="How many, at most.")
@click.option(
    "--for-review",
    is_flag=True,
    help="Only those that changed files: by verdict and number of warnings, then by changed lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Each as one JSON object a line.")
@asynchronous
async def list_(
    limit: int,
    parent: str | None,
    status: str | None,
    labels: tuple[str, ...],
    session: str | None,
    for_review: bool,
    as_json: bool,
) -> None:
    """List delegations, newest first, and what the files of finished ones take on disk."""
    from ...shared.delegation import Status

    async with connect(load_settings()) as service:
        chosen: dict[str, Any] = filters(labels, session) | {"status": Status(status) if status else None}
        chosen |= {"parent": await full_id(service.client, parent) if parent else None}
        if for_review:
            limit = min(limit, LARGEST_PAGE - 1)
            page = await service.client.list(for_review=True, limit=limit + 1, **chosen)
            found, reasons = page.items, page.reasons
        else:
            found, reasons = [each async for each in listed(service.client, limit + 1, **chosen)], []
        disk = await service.client.disk()
    if found[limit:]:
        del found[limit:]
        output.note(f"the {'first' if for_review else 'newest'} {limit}; see more with --limit N")
    if as_json and for_review:
        for each, reason in zip(found, reasons[:limit], strict=True):
            output.json_line(json.dumps({**each.to_dict(), "reason": reason}, ensure_ascii=False))
        return
    if as_json:
        output.json_lines(found)
        return
    output.lines(_table(found, reasons))
    if disk.kept_bytes:
        many, most = count(disk.delegations, "finished delegation"), output.size(disk.max_kept_bytes)
        output.line(
            f"{many} keep{'s' if disk.delegations == 1 else ''} {output.size(disk.kept_bytes)} on disk "
            f"(at most {most}); `deputize prune --keep-bytes SIZE` removes the oldest",
            err=True,
        )


def _table(found: Sequence[Delegation], reasons: Sequence[str]) -> list[str]:
    """Returns a line for each: for programs the whole id first, on a terminal the title, as wide as there is room.

    ``reasons`` are those of a list for a review, else there are none.
    """
    from ...shared.wire import now

    moment, is_terminal = now(), sys.stdout.isatty()
    rows: list[tuple[str, ...]] = []
    titles: list[str] = []
    for item, *reason in zip(found, *([reasons] if reasons else []), strict=False):
        took = (item.result.execution_time_ms if item.result else item.progress.elapsed_ms) / 1000
        price = dollars(item.result.usage.cost_usd if item.result else item.progress.cost_usd)
        id = short_id(item.id) if is_terminal else item.id
        age = f"{output.ago(item.created_at, moment)} ago"
        parent = f"↳ {short_id(item.request.parent_id)}  " if item.request.parent_id else ""
        parent += f"{waits_for(item.waits_for)}  " if item.waits_for else ""
        titles.append(parent + item.request.title)
        rows.append((id, _status(item), _verdict(item), seconds(took), price, age, *reason))
    lines = output.columns(rows, left=(0, 1, 2, 6)) if rows else []
    if not is_terminal:
        return [f"{line}  {title}" for line, title in zip(lines, titles, strict=True)]
    room = max(MIN_TITLE, shutil.get_terminal_size().columns - max(map(len, lines), default=0) - 4)
    room = min(room, max(map(len, titles), default=0))
    marks = map(_mark, found)
    return [
        f"{mark} {_fitted(title, room):{room}}  {line}" for mark, title, line in zip(marks, titles, lines, strict=True)
    ]


def _fitted(title: str, room: int) -> str:
    """Returns a title of at most so many characters, cut between words where that leaves enough of it."""
    if len(title) <= room:
        return title
    words = title[:room].rpartition(" ")[0]
    return cut(title, len(words) + 1 if len(words) > room // 2 else room)
