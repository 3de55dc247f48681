"""`deputize run`: submits one task and waits for its result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.errors import Invalid
from ...shared.workspaces import UPLOAD_POINTER
from ..apply import NO_OPTIONS, ApplyOptions
from . import output
from .apply import take_over_or_hint
from .connect import (
    Service,
    connect,
    connect_permanent,
    lacks_endpoint,
    load_settings,
    note_before_work,
    with_full_ids,
)
from .errors import Exit
from .request_options import (
    REQUEST_FILE,
    RequestOptions,
    agree_to_copies,
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
    from ..client import Client
    from ..packing import Packed


@click.command(cls=StrictCommand)
@click.argument("task", type=TEXT, required=False, metavar="[TASK|@FILE|-]")
@click.option(
    "--request",
    type=REQUEST_FILE,
    metavar="FILE|-",
    help="The request as JSON; other options take precedence.",
)
@request_options
@click.option(
    "--upload",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR|ARCHIVE",
    help="Send this directory, or a zip or tar file, to a service elsewhere, to work on.",
)
@click.option(
    "--apply",
    is_flag=True,
    help="Apply the changes to DIR if it succeeds; with --verify if the verdict meets --require.",
)
@click.option(
    "--with-protected", is_flag=True, help="With --apply take protected files, too, that the checks put back."
)
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
    with_protected: bool,
    upload: Path | None,
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
    archive = _packed(upload, given) if upload else None
    if "workspace" not in fields:
        given["workspace"] = workspace_here(settings, given)
    options = given_options(given, file=file)
    with in_options(options.place):
        whole = read_request(merged(fields, options.fields))
    into = _applied_to(whole, upload, detach=detach) if apply else None
    how = ApplyOptions(with_protected=with_protected)
    note_if_empty([whole], given)
    agree_to_copies([whole], settings)
    # What reads stdin is over: in an event loop the first Ctrl-C would not interrupt it.
    if detach:
        return asyncio.run(_run_detached(settings, whole, options, as_json, archive))
    return asyncio.run(
        _run_and_watch(settings, whole, options, wait, as_json, archive, stream=stream, into=into, how=how)
    )


def _packed(path: Path, given: dict[str, Any]) -> Packed:
    """Opens or makes the archive, and puts its name among the options."""
    from ..packing import pack

    if given["workspace"] or given["no_workspace"]:
        raise click.UsageError("--upload excludes --workspace and --no-workspace")
    archive = pack(path, ignored=given["with_ignored"], exclude=given["exclude"])
    given["upload"] = archive.name
    output.lines((f"note: {path}/{each} is not sent: {why}" for each, why in archive.left_out.items()), err=True)
    return archive


def _applied_to(request: DelegationRequest, upload: Path | None, *, detach: bool) -> Path:
    """Returns the directory to change. Raises UsageError for what could not be applied once it is paid for."""
    from ...shared.request import DirectoryWorkspace

    workspace = request.workspace
    folder = Path(workspace.path) if isinstance(workspace, DirectoryWorkspace) else upload
    if detach or folder is None:
        raise click.UsageError("--apply needs --workspace DIR, whose copy is changed, or --upload DIR, and no --detach")
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        raise click.UsageError(
            f"--apply changes {folder}, which is not a directory here that can be written; without --apply, "
            "`deputize apply ID --into DIR` takes the changes over"
        )
    return folder


async def _submitted(
    client: Client, request: DelegationRequest, options: RequestOptions, archive: Packed | None
) -> Delegation:
    """Submits the request, and sends its archive before where the service does not have it."""
    request = await with_full_ids(client, request)
    with in_options(options.place):
        try:
            return (await client.create(request)).delegation
        except Invalid as error:
            if archive is None or all(each["pointer"] != UPLOAD_POINTER for each in error.errors):
                raise
        with archive.file:
            await client.upload(archive.chunks(), archive.sha256)
        return (await client.create(request)).delegation


async def _run_detached(
    settings: Settings, request: DelegationRequest, options: RequestOptions, as_json: bool, archive: Packed | None
) -> Exit:
    async with connect_permanent(settings) as service:
        delegation = await _submitted(service.client, request, options, archive)
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
    archive: Packed | None,
    **how: Any,
) -> Exit:
    async with connect(settings, workers=1, lacks_model=lacks_endpoint([request], settings)) as service:
        await note_before_work(service, [request], output.note, asks=True)
        delegation = await _submitted(service.client, request, options, archive)
        return await follow_to_end(settings, service, [delegation], wait, as_json, **how)


async def follow_to_end(
    settings: Settings,
    service: Service,
    delegations: Sequence[Delegation],
    wait: float | None,
    as_json: bool,
    *,
    stream: bool = False,
    into: Path | None = None,
    how: ApplyOptions = NO_OPTIONS,
) -> Exit:
    """Shows new delegations until they are finished, prints their results, and applies their changes to ``into``."""
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
        if await take_over_or_hint(settings, service.client, result, into, how):
            return Exit.FAILED
    return watcher.code
