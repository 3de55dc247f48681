"""`deputize run`: submits one task and waits for its result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output
from .apply import take_over_or_hint
from .connect import (
    Service,
    connect,
    connect_permanent,
    load_settings,
    needs_model_endpoint,
    note_before_work,
)
from .errors import Exit
from .request_options import (
    REQUEST_FILE,
    RequestOptions,
    given_options,
    in_options,
    merged,
    note_if_empty,
    read_request,
    request_options,
    workspace_here,
)
from .values import TEXT, StrictCommand, denied_option, stdin_text, stream_option, wait_option
from .watcher import Watcher, display, note_if_queued, note_lowered_limits, print_result

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings


@click.command(cls=StrictCommand)
@click.argument("task", type=TEXT, required=False, metavar="[TASK|@FILE|-]")
@click.option(
    "--request",
    type=REQUEST_FILE,
    metavar="FILE|-",
    help="The request as JSON; other options take precedence.",
)
@request_options
@click.option("--apply", is_flag=True, help="Take the changes over into DIR if it succeeds.")
@wait_option
@click.option("--detach", is_flag=True, help="Print the id and leave; needs a service that stays.")
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def run(
    request: tuple[str, dict[str, Any]] | None,
    wait: float | None,
    detach: bool,
    stream: bool,
    as_json: bool,
    apply: bool,
    **given: Any,
) -> Exit:
    """Hand over TASK and wait for its result. Without TASK it is read from standard input.

    The result's summary goes to stdout, what happens meanwhile to stderr. Ctrl-C detaches; the work goes on.
    """
    settings = load_settings()
    for name, given_too in (("wait", wait is not None), ("stream", stream)):
        if detach and given_too:
            raise click.UsageError(f"--{name} has no meaning with --detach, which does not wait")
    file, fields = request or ("", {})
    if given["task"] is None and "task" not in fields:
        given["task"] = stdin_text() or None
        if given["task"] is None:
            raise click.MissingParameter(param_hint="'[TASK|@FILE|-]'", param_type="argument")
    if "workspace" not in fields:
        given["workspace"] = workspace_here(settings, given)
    options = given_options(given, file=file)
    with in_options(options.place):
        whole = read_request(merged(fields, options.fields))
    if apply:
        _check_apply(whole, detach=detach)
    note_if_empty([whole], given)
    # What reads stdin is over: in an event loop the first Ctrl-C would not interrupt it.
    if detach:
        return asyncio.run(_run_detached(settings, whole, options, as_json))
    return asyncio.run(_run_and_watch(settings, whole, options, wait, as_json, stream=stream, apply=apply))


def _check_apply(request: DelegationRequest, *, detach: bool) -> None:
    """Raises UsageError for changes that could not be applied once they are paid for."""
    from ...shared.request import DirectoryWorkspace

    workspace = request.workspace
    if detach or not isinstance(workspace, DirectoryWorkspace):
        raise click.UsageError("--apply needs --workspace DIR, whose copy is changed, and no --detach")
    if not os.access(workspace.path, os.W_OK | os.X_OK) or not Path(workspace.path).is_dir():
        raise click.UsageError(
            f"--apply changes {workspace.path}, which is not a directory here that can be written; without --apply, "
            "`deputize apply ID --into DIR` takes the changes over"
        )


async def _run_detached(settings: Settings, request: DelegationRequest, options: RequestOptions, as_json: bool) -> Exit:
    async with connect_permanent(settings) as service:
        with in_options(options.place):
            delegation = (await service.client.create(request)).delegation
        note_lowered_limits(delegation, output.note)
        await note_if_queued(service.client, output.note)
    if as_json:
        output.json_line(delegation.to_json())
    else:
        output.line(delegation.id)
    return Exit.SUCCEEDED


async def _run_and_watch(
    settings: Settings,
    request: DelegationRequest,
    options: RequestOptions,
    wait: float | None,
    as_json: bool,
    **how: bool,
) -> Exit:
    async with connect(settings, workers=1, needs_model=needs_model_endpoint([request], settings)) as service:
        await note_before_work(service, [request], output.note, asks=True)
        with in_options(options.place):
            delegation = (await service.client.create(request)).delegation
        return await follow_to_end(settings, service, [delegation], wait, as_json, **how)


async def follow_to_end(
    settings: Settings,
    service: Service,
    delegations: Sequence[Delegation],
    wait: float | None,
    as_json: bool,
    *,
    stream: bool = False,
    apply: bool = False,
) -> Exit:
    """Shows new delegations until they are finished, then prints their results."""
    with display(stream=stream) as shown:
        for delegation in delegations:
            shown.note(delegation.id)
            note_lowered_limits(delegation, shown.note)
        if not service.own:
            await note_if_queued(service.client, shown.note)
        watcher = Watcher(service, shown, wait, prints_results=not as_json)
        await watcher.all(delegations)
    for delegation in delegations:
        if (result := watcher.results.get(delegation.id)) is None:
            continue
        print_result(delegation, result, json=as_json)
        if await take_over_or_hint(settings, service.client, result, apply=apply):
            return Exit.FAILED
    return watcher.code
