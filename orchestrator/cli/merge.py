"""`deputize merge`: several results as one, checked, and taken over into a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.text import count
from ...shared.wording import put_back
from ..apply import ApplyOptions
from . import completion, output
from .apply import target_directory
from .connect import asynchronous, connect, full_id, load_settings
from .errors import Exit
from .request_options import given_fields, options_of
from .run import follow_to_end
from .values import DIRECTORY, StrictCommand, denied_option, wait_option

if TYPE_CHECKING:
    from ...shared.facts import MergeConflict
    from ..operations import MergeReport


@click.command(cls=StrictCommand)
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=completion.delegations)
@click.option("--into", type=DIRECTORY, metavar="DIR", help="Take the changes over into DIR, if it succeeds.")
@options_of("verify", "protect", "require", "limits/timeoutSeconds", "idempotencyKey")
@click.option("--with-protected", is_flag=True, help="Merge protected files, too, that the checks put back.")
@click.option("--check", is_flag=True, help="Only show the changes that would be made, and the conflicts.")
@wait_option
@denied_option
@click.option("--json", "as_json", is_flag=True, help="The report, or the result of the merge, as one JSON object.")
@asynchronous
async def merge(
    ids: tuple[str, ...],
    into: Path | None,
    wait: float | None,
    as_json: bool,
    check: bool,
    with_protected: bool,
    **given: Any,
) -> Exit:
    """Merge what several delegations changed in copies of the same files: all of it, or nothing if there are conflicts.

    With --verify the merged files are checked as those of a run are. Where they fail although each result passed alone,
    it is found out which results fail together. The merge is a delegation of its own, for `apply`, `deliver`, `show`.

    An ID may be shortened to its beginning or its end; @last is the newest one without a parent.
    """
    from ...shared.compound_requests import MergeRequest

    settings, fields = load_settings(), given_fields(given)
    seconds = fields.pop("limits", {}).get("timeoutSeconds")
    asked = (
        fields | {"dryRun": check, "withProtected": with_protected} | ({"timeoutSeconds": seconds} if seconds else {})
    )
    async with connect(settings, workers=0 if check else 1) as service:
        named = [await full_id(service.client, id) for id in ids]
        if into is not None:
            into = target_directory(await service.client.get(named[0]), into)
        report = await service.client.merge(MergeRequest.model_validate(asked | {"ids": named}))
        if report.delegation is not None:
            how = ApplyOptions(with_protected=with_protected)
            return await follow_to_end(settings, service, [report.delegation], wait, as_json, into=into, how=how)
    if as_json:
        output.json_line(report.to_json())
    else:
        _print(report)
    return Exit.FAILED if report.conflicts else Exit.SUCCEEDED


def _print(report: MergeReport) -> None:
    if report.conflicts:
        output.line(f"nothing can be merged: {count(len(report.conflicts), 'conflict')}")
        for conflict in report.conflicts:
            output.lines(_described(conflict))
    else:
        output.line(f"{count(len(report.files), 'file')} can be changed without a conflict")
        output.lines(f"  {path}" for path in report.files)
    if report.left_out:
        output.note(f"left out: {put_back(report.left_out)}; --with-protected merges them, too")


def _described(conflict: MergeConflict) -> Iterator[str]:
    yield f"  {conflict.path}" + (f": {conflict.why}" if conflict.why else "")
    for side in conflict.sides:
        yield f"    {side.change} by {side.id}"
        yield from (f"      {line}" for line in side.text.splitlines())
