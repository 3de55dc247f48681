"""`continue`, `retry`, `resume`, `send`, `wrap-up`, `cancel` and `prune`: commands about an existing delegation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import Conflict
from ...shared.request_options import OPTIONS
from ...shared.request_options import TEXT as TEXT_SHOWN
from ...shared.text import count
from ...shared.wording import put_back
from . import completion, output
from .connect import Service, ask, asynchronous, connect, full_id, load_settings
from .errors import Exit
from .request_options import given_fields, options_of
from .run import follow_to_end
from .selection import by_label_and_session, check_one_way, chosen_ids, filters, shown
from .values import TEXT, Duration, Size, StrictCommand, denied_option, wait_option

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.message import SentMessage
    from ...shared.settings import Settings


_LIMITS = [pointer for pointer in OPTIONS if pointer.startswith("limits/")]
_JSON = click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")


@click.command("continue", cls=StrictCommand)
@click.argument("id", shell_complete=completion.delegations)
@click.argument("text", type=TEXT, metavar="TEXT|@FILE|-")
@options_of(*_LIMITS, "idempotencyKey")
@wait_option
@denied_option
@_JSON
@asynchronous
async def continue_(
    id: str,
    text: str,
    idempotency_key: str | None,
    wait: float | None,
    as_json: bool,
    **limits: Any,
) -> Exit:
    """Go on with a finished delegation: TEXT is what is to be done now, in its conversation and its files.

    It is a new delegation with limits and a result of its own, whose patch has the changes of the whole conversation;
    limits that are not given are those of the finished one. An ID may be shortened to its beginning or its end; @last
    is the newest one without a parent.
    """
    from ...shared.limits import Limits

    settings = load_settings()
    async with _connect_with_worker(settings) as service:
        earlier = await service.client.get(await full_id(service.client, id))
        changed = given_fields(limits).get("limits")
        own = Limits.model_validate(earlier.request.limits.to_dict() | changed) if changed else None
        new = await service.client.continue_(earlier.id, text, own, idempotency_key=idempotency_key)
        return await follow_to_end(settings, service, [new.delegation], wait, as_json)


@click.command(cls=StrictCommand)
@click.argument("id", shell_complete=completion.delegations)
@click.option("--from-turn", type=click.IntRange(1), metavar="N", help="Begin with this turn of its run.")
@options_of("idempotencyKey")
@wait_option
@denied_option
@_JSON
@asynchronous
async def retry(
    id: str,
    from_turn: int | None,
    idempotency_key: str | None,
    wait: float | None,
    as_json: bool,
) -> Exit:
    """Hand the task of a finished delegation over again, with the same request, from the start.

    With --from-turn the conversation and the files from before that turn are kept. Files that were too large, or too
    many, to be kept after each step are named, with the turns that can be chosen.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    settings = load_settings()
    async with _connect_with_worker(settings) as service:
        client = service.client
        new = await client.retry(await full_id(client, id), from_turn=from_turn, idempotency_key=idempotency_key)
        return await follow_to_end(settings, service, [new.delegation], wait, as_json)


def _connect_with_worker(settings: Settings) -> AbstractAsyncContextManager[Service]:
    return connect(settings, workers=1, lacks_model=not settings.reaches())


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=completion.delegations)
@click.option("--all", "every", is_flag=True, help="Everything that is paused, which is the default.")
@by_label_and_session
@wait_option
@denied_option
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line.")
@asynchronous
async def resume(
    ids: tuple[str, ...],
    every: bool,
    labels: tuple[str, ...],
    session: str | None,
    wait: float | None,
    as_json: bool,
) -> Exit:
    """Resume interrupted work, and wait for its results.

    Without an ID, --label or --session it is all that is paused. An ID may be shortened to its beginning or its end;
    @last is the newest one without a parent.
    """
    chosen = filters(labels, session)
    check_one_way(ids, chosen, every=every or not (ids or chosen))
    settings = load_settings()
    async with _connect_with_worker(settings) as service:
        paused = await chosen_ids(service.client, ids, chosen, lambda delegation: delegation.paused)
        if not paused:
            output.note("nothing is paused")
            return Exit.SUCCEEDED
        delegations = [await service.client.resume(id) for id in paused]
        return await follow_to_end(settings, service, delegations, wait, as_json)


@click.command()
@click.argument("id", shell_complete=completion.delegations)
@click.option("--branch", "deliver", metavar="BRANCH", help="Its name; {id} is filled in. Default: deputize/{id}.")
@click.option("--message", "deliver_message", type=TEXT, metavar=TEXT_SHOWN, help="The message of the commit.")
@click.option(
    "--with-protected",
    "deliver_with_protected",
    flag_value="yes",
    help="Push protected files, too, that the checks put back.",
)
@click.option(
    "--workflows",
    "deliver_workflows",
    flag_value="yes",
    help="Push files, too, that a git host executes, such as workflows of CI.",
)
@options_of(
    *("deliver/pullRequest/title", "deliver/pullRequest/body", "deliver/pullRequest/draft", "deliver/attestation")
)
@click.option("--json", "as_json", is_flag=True, help="The delegation as one JSON object.")
@asynchronous
async def deliver(id: str, as_json: bool, **given: Any) -> Exit:
    """Push what a run changed in its clone, as a new branch of the repository that it was cloned from.

    Without options as its request asks, by default as deputize/ID. At most once; a branch that is there is not changed.
    A run whose checks did not find what it requires is refused.
    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    from ...shared.request import Deliver

    settings = load_settings()
    async with connect(settings) as service:
        asked = given_fields(given).get("deliver")
        wanted = Deliver.model_validate(asked) if asked else None
        delegation = await service.client.deliver(await full_id(service.client, id), wanted)
    if as_json:
        output.json_line(delegation.to_json())
    elif delegation.result and (git := delegation.result.git):
        output.line(f"{git.branch} is {git.commit}")
        output.lines([git.pull_request_url] if git.pull_request_url else [])
        if git.left_out:
            output.note(f"  left out: {put_back(git.left_out)}; `deputize apply --with-protected` takes them over")
    return Exit.SUCCEEDED


@click.command(cls=StrictCommand)
@click.argument("id", shell_complete=completion.delegations)
@click.argument("text", type=TEXT, metavar=TEXT_SHOWN)
@click.option("--json", "as_json", is_flag=True, help="The message's id as one JSON object.")
@asynchronous
async def send(id: str, text: str, as_json: bool) -> None:
    """Send a message to a delegation that is not finished: its model reads TEXT before its next turn, once.

    It belongs to the task from then on. `deputize watch ID` shows when it was read; one that came too late is in the
    result. An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    if not text.strip():
        raise click.UsageError("the message is empty")
    await _send([id], {}, text, as_json, "steer")


@click.command("wrap-up", cls=StrictCommand)
@click.argument("id", required=False, metavar="[ID]", shell_complete=completion.delegations)
@click.argument("text", type=TEXT, metavar=f"[{TEXT_SHOWN}]", default="")
@by_label_and_session
@click.option("--json", "as_json", is_flag=True, help="The id of each message as a JSON object a line.")
@asynchronous
async def wrap_up(id: str | None, text: str, labels: tuple[str, ...], session: str | None, as_json: bool) -> None:
    """Let a delegation end with a report: no further tool calls, one last turn, and its changes of files are kept.

    A reply or a call under way has 10 seconds to end. Its model reads TEXT for the report. One that never ran ends at
    once. An ID may be shortened to its beginning or its end; @last is the newest one without a parent. With --label or
    --session, and without an ID, it is for all of those that are not finished.
    """
    chosen = filters(labels, session)
    if chosen and id is not None and (text or id.startswith("dlg_")):
        raise click.UsageError("give an ID, or --label and --session")
    ids, text = ((), TEXT.convert(id or "", None, None)) if chosen else ((id,) if id else (), text)
    check_one_way(ids, chosen)
    await _send(ids, chosen, text, as_json, "wrapUp")


async def _send(ids: Sequence[str], chosen: Mapping[str, Any], text: str, as_json: bool, mode: str) -> None:
    from ...shared.message import MessageMode

    async with connect(load_settings()) as service:
        wanted = await chosen_ids(service.client, ids, chosen)
        sent: list[SentMessage] = []
        for id in wanted:
            try:
                sent.append(await service.client.send(id, text, MessageMode(mode)))
            except Conflict:
                if ids:
                    raise  # of those that were chosen one may have ended meanwhile
    if not sent:
        output.note(f"nothing is unfinished with {shown(chosen)}")
    elif as_json:
        output.json_lines(sent)
    else:
        output.lines(each.message_id for each in sent)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=completion.delegations)
@click.option("--all", "every", is_flag=True, help="Everything that is not finished.")
@by_label_and_session
@click.option("--json", "as_json", is_flag=True, help="Each delegation as one JSON object a line.")
@asynchronous
async def cancel(
    ids: tuple[str, ...], every: bool, labels: tuple[str, ...], session: str | None, as_json: bool
) -> None:
    """Stop delegations. What they did so far stays in their results; what is finished stays as it is.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent. --label and --session
    choose among those that are not finished: `cancel --label batch:ID` stops one batch.
    """
    chosen = filters(labels, session)
    check_one_way(ids, chosen, every=every)
    async with connect(load_settings()) as service:
        wanted = await chosen_ids(service.client, ids, chosen)
        cancelled = [await service.client.cancel(id) for id in wanted]
    if not cancelled:
        output.note(f"nothing is unfinished{f' with {shown(chosen)}' if chosen else ''}")
    if as_json:
        output.json_lines(cancelled)
        return
    output.lines(f"{each.id}  {_becomes(each)}" for each in cancelled)


def _becomes(cancelled: Delegation) -> str:
    """Returns what becomes of a delegation: only a worker can report what one that had begun did so far."""
    if cancelled.status.finished:
        return cancelled.status
    waits = cancelled.status == "queued" and cancelled.attempt > 0
    return "stopping, as soon as a worker takes it and reports its work" if waits else "stopping"


@click.command()
@click.option(
    "--older-than",
    type=Duration(min=0, max=1e9),
    metavar="TIME",
    help="Those that finished so long ago: 90s, 15min, 24h, 7d; without it and --keep-bytes "
    "WORKSPACE_RETENTION_SECONDS of the service's settings count.",
)
@click.option(
    "--keep-bytes",
    type=Size(min=0, max=1e18),
    metavar="SIZE",
    help="The oldest delegations, until the files of the others take no more: 500MB, 2GB.",
)
@click.option("--dry-run", is_flag=True, help="Only show the delegations that would be removed.")
@click.option("--json", "as_json", is_flag=True, help="The removed delegations, as one JSON object.")
def prune(older_than: float | None, keep_bytes: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove finished delegations: their records now, their files as soon as the workers are notified.

    What is not finished is never touched, nor what an unfinished one continues. `--older-than 0` removes all the rest.
    """
    most = None if keep_bytes is None else int(keep_bytes)
    removed = ask(lambda client: client.prune(older_than, most, dry_run=dry_run))
    if as_json:
        output.json_line(removed.to_json())
        return
    freed = f", {output.size(removed.freed_bytes)} on disk" if removed.freed_bytes else ""
    output.line(f"{count(removed.removed, 'delegation')} {'would be ' if dry_run else ''}removed{freed}")
    output.lines(f"  {id}" for id in (removed.ids if dry_run else ()))
