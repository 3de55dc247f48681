"""`deputize batch`: many requests from a file, results as they finish, and resuming after an interruption."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...shared.errors import Refused
from ...shared.text import count
from . import formatting, output
from .batch_files import Results, open_results
from .batch_input import FORMATS, BatchInput, RequestLine
from .connect import connect, load_settings, needs_model_endpoint, note_before_work
from .errors import Exit, exit_code_of_results
from .live import display
from .request_options import given_options, note_if_empty, request_options, workspace_here
from .values import Finite, StrictCommand, Text, denied_option, stdin_once, stream_option
from .watcher import Watcher, note_if_queued

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.request import DelegationRequest
    from ...shared.settings import Settings
    from ..client import Client

CHUNK_SIZE = 1000
"""Requests per call to the service."""


@click.command(cls=StrictCommand)
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="The format of FILE; the default is that of its extension, or jsonl.",
)
@click.option(
    "--task", type=Text(), metavar="TEXT|@FILE", help="The task of every line; {{column}} stands for its cell."
)
@request_options
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write results here, one a line.")
@click.option("--resume", is_flag=True, help="Go on where an earlier batch into the same --out broke off.")
@click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds; the work goes on.")
@denied_option
@stream_option
@click.option("--json", "as_json", is_flag=True, help="Each result as one JSON object a line.")
@click.pass_context
def batch(
    ctx: click.Context,
    file: BinaryIO,
    format: str | None,
    out: Path | None,
    resume: bool,
    wait: float | None,
    stream: bool,
    as_json: bool,
    **given: Any,
) -> Exit:
    """Hand over many tasks: a JSON request, a line of text or a row of a CSV or TSV table each ("-" reads stdin).

    Options of a request hold for every line that sets no other value. In all of them {{column}} stands for a cell of
    the row, {{line}} for the line of a text: batch files.csv --task "Summarise {{path}}". Without --task the columns
    task, context and expectedOutcome count.

    Results come as the delegations finish; with --out each also goes to a file, with the number of its line.
    """
    if resume and out is None:
        raise click.UsageError("--resume needs --out: there it finds what is done")
    if file is sys.stdin.buffer:
        stdin_once(ctx)
    settings = load_settings(ctx)
    given["workspace"] = workspace_here(settings, given)
    name = click.format_filename(file.name)
    source = BatchInput.of(name, format, given_options(given, task="--task"))
    lines = source.read(file)
    if not lines:
        raise click.UsageError(f"{name} holds no request")
    note_if_empty([line.request for line in lines], given)
    options = _OutputOptions(source, wait, stream, as_json)
    if out is None:
        code, results = asyncio.run(_run(settings, lines, options, None))
        return exit_code_of_results(results) if code is None else code
    with open_results(out, file, resume=resume) as written:
        return _run_into(settings, lines, options, written)


@dataclass(frozen=True, slots=True)
class _OutputOptions:
    """Where the requests come from, and how their results are to be shown."""

    source: BatchInput
    wait: float | None
    stream: bool
    as_json: bool


def _run_into(settings: Settings, lines: list[RequestLine], options: _OutputOptions, written: Results) -> Exit:
    lines = written.keyed(lines)
    left = [line for line in lines if line.number not in written.done]
    if written.done:
        output.line(f"{len(written.done)} done before, {count(len(left), 'request')} left", err=True)
    code, _ = asyncio.run(_run(settings, left, options, written)) if left else (None, [])
    if len(written.done) >= len(lines):
        written.complete()
    return exit_code_of_results(written.done.values()) if code is None else code


async def _run(
    settings: Settings, lines: list[RequestLine], options: _OutputOptions, written: Results | None
) -> tuple[Exit | None, list[ToolAgentResult]]:
    requests = [line.request for line in lines]
    async with connect(settings, workers=1, needs_model=needs_model_endpoint(requests, settings)) as service:
        await note_before_work(service, requests, partial(output.line, err=True))
        try:
            delegations = await submit_in_chunks(service.client, requests)
        except Refused as refusal:
            if written:
                written.withdraw()
            raise options.source.placed(refusal, lines) from None
        numbers: dict[str, list[int]] = {}
        for delegation, line in zip(delegations, lines, strict=True):
            numbers.setdefault(delegation.id, []).append(line.number)  # lines with the same key are one delegation
        by_id = {delegation.id: delegation for delegation in delegations}
        on_screen = sys.stdout.isatty() and not options.as_json  # then the results themselves show each outcome
        with display(show_outcomes=not on_screen, stream=options.stream) as shown:

            def on_result(result: ToolAgentResult) -> None:
                for number in numbers[result.delegation_id]:
                    if written:
                        written.add(number, result)
                    with shown.aside():
                        _print(by_id[result.delegation_id], result, number, options.as_json)

            shown.note(f"{count(len(lines), 'delegation')} accepted")
            if not service.own:
                await note_if_queued(service.client, shown.note)
            watched = await Watcher(service, shown, options.wait, on_result=on_result).all([*by_id.values()])
    return watched.cut, list(watched.results.values())


async def submit_in_chunks(client: Client, requests: Sequence[DelegationRequest]) -> list[Delegation]:
    """Submits the requests in chunks. Returns their delegations in order; none is accepted if one is refused."""
    taken: list[Delegation] = []
    for start in range(0, len(requests), CHUNK_SIZE):
        try:
            taken += await client.batch(requests[start : start + CHUNK_SIZE])
        except Refused as refusal:
            await client.cancel_all(delegation.id for delegation in taken)
            raise _shift_indexes(refusal, start) from None
    return taken


def _shift_indexes(refusal: Refused, start: int) -> Refused:
    """Returns the error with indexes into the chunk converted to indexes into the batch."""
    errors: list[dict[str, str]] = []
    for each in refusal.errors:
        head, requests, index, *rest = [*each["pointer"].split("/", 3), "", "", ""][:4]
        if requests == "requests" and index.isdigit():
            each = each | {"pointer": "/".join([head, requests, str(int(index) + start), *filter(None, rest)])}
        errors.append(each)
    return type(refusal)(refusal.detail, errors)


def _print(delegation: Delegation, result: ToolAgentResult, number: int, as_json: bool) -> None:
    if as_json:
        output.json_line(json.dumps({"line": number, **result.to_dict()}, ensure_ascii=False))
    else:
        end = formatting.end_line(result, f"line {number}", delegation.request)
        output.line(f"{end}  {formatting.cut(result.summary, 100)}")
