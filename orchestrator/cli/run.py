"""`deputize run`: submits one task and waits for its result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputize.orchestrator.cli import formatting, output
from deputize.orchestrator.cli.connect import (
    connect,
    connect_permanent,
    load_settings,
    needs_model_endpoint,
    note_before_work,
)
from deputize.orchestrator.cli.errors import Exit
from deputize.orchestrator.cli.live import display
from deputize.orchestrator.cli.values import Directory, Finite, Text, in_options, stdin_text
from deputize.orchestrator.cli.watcher import Watcher, note_if_queued, note_lowered_limits, print_result

if TYPE_CHECKING:
    from deputize.orchestrator.client import Client
    from deputize.shared.delegation import Delegation
    from deputize.shared.request import DelegationRequest
    from deputize.shared.settings import Settings

APPROVAL_MODES = ("ask", "sandboxed", "auto", "readOnly")


@click.command()
@click.argument("task", type=Text(), required=False, metavar="[TASK|@FILE|-]")
@click.option("--context", type=Text(), metavar="TEXT|@FILE|-", help="Background the worker needs.")
@click.option("--expect", type=Text(), metavar="TEXT|@FILE|-", help="What must be true at the end.")
@click.option(
    "--workspace",
    type=Directory(),
    metavar="DIR",
    help="Work on a copy of this directory; without it in an empty one.",
)
@click.option("--tools", metavar="A,B", help="Only these tools; names or patterns.")
@click.option("--approval", type=click.Choice(APPROVAL_MODES), help="Who decides on risky steps.")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="Replies of the model, at most.")
@click.option("--max-tool-calls", type=click.IntRange(0), metavar="N", help="Tool calls, at most.")
@click.option("--timeout", type=Finite(0, min_open=True), metavar="S", help="Seconds of work, at most.")
@click.option("--max-cost", type=Finite(0, min_open=True), metavar="USD", help="US dollars, at most.")
@click.option("--model", metavar="M", help="Another model than the configured one.")
@click.option("--wait", type=Finite(0), metavar="S", help="Watch for so many seconds; the work goes on.")
@click.option("--detach", is_flag=True, help="Print the id and leave; needs a service that stays.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_context
def run(ctx: click.Context, wait: float | None, detach: bool, as_json: bool, **given: Any) -> Exit:
    """Hand over TASK and wait for its result. Without TASK it is read from standard input.

    The result's summary goes to stdout, what happens meanwhile to stderr. Ctrl-C detaches; the work goes on.
    """
    settings = load_settings(ctx)
    if detach and wait is not None:
        raise click.UsageError("--wait has no meaning with --detach, which does not wait")
    if given["task"] is None:
        given["task"] = stdin_text(ctx) or None
    if given["task"] is None:
        raise click.MissingParameter(ctx=ctx, param=next(each for each in ctx.command.params if each.name == "task"))
    request = _request(given)
    if detach:
        return asyncio.run(_run_detached(settings, request, as_json))
    return asyncio.run(_run_and_watch(settings, request, wait, as_json))


def _request(given: dict[str, Any]) -> DelegationRequest:
    """Returns the request from the options given; others keep their defaults. Raises Invalid, ``click.UsageError``."""
    from pydantic import ValidationError

    from deputize.shared.errors import Invalid
    from deputize.shared.request import DelegationRequest
    from deputize.shared.wire import explain

    limits = {
        "max_turns": given["max_turns"],
        "max_tool_calls": given["max_tool_calls"],
        "timeout_seconds": given["timeout"],
        "max_cost_usd": given["max_cost"],
    }
    workspace: Path | None = given["workspace"]
    tools: str | None = given["tools"]
    if tools is not None and not tools.strip(", "):
        raise click.UsageError("--tools names no tool; leave it out for the default ones")
    fields = {
        "task": given["task"],
        "context": given["context"],
        "expected_outcome": given["expect"],
        "limits": {name: value for name, value in limits.items() if value is not None},
        "tools": tools and [name.strip() for name in tools.split(",") if name.strip()],
        "approval_mode": given["approval"],
        "model": given["model"],
        # The worker runs in another working directory.
        "workspace": workspace and {"kind": "directory", "path": str(workspace.absolute())},
    }
    try:
        return DelegationRequest.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        mistakes = explain(error, DelegationRequest)
        raise in_options(Invalid(f"{mistakes[0]['pointer']}: {mistakes[0]['detail']}", mistakes)) from None


async def _create(client: Client, request: DelegationRequest) -> Delegation:
    from deputize.shared.errors import Refused

    try:
        return await client.create(request)
    except Refused as refusal:
        raise in_options(refusal) from None


async def _run_detached(settings: Settings, request: DelegationRequest, as_json: bool) -> Exit:
    async with connect_permanent(settings) as service:
        delegation = await _create(service.client, request)
        note_lowered_limits(delegation, _note)
        await note_if_queued(service.client, _note)
    if as_json:
        output.json_line(delegation.to_json())
    else:
        output.line(delegation.id)
    return Exit.SUCCEEDED


async def _run_and_watch(settings: Settings, request: DelegationRequest, wait: float | None, as_json: bool) -> Exit:
    from deputize.shared.request import DirectoryWorkspace

    async with connect(settings, workers=1, needs_model=needs_model_endpoint([request], settings)) as service:
        await note_before_work(service, [request], _note)
        delegation = await _create(service.client, request)
        with display() as shown:
            shown.note(delegation.id)
            note_lowered_limits(delegation, shown.note)
            if not service.own:
                await note_if_queued(service.client, shown.note)
            watched = await Watcher(service, shown, wait, prints_results=not as_json).all([delegation])
        for result in watched.results.values():
            print_result(result, json=as_json)
            if result.file_changes and isinstance(request.workspace, DirectoryWorkspace):
                folder = Path(request.workspace.path)
                apply = formatting.apply_command(settings, result, folder)
                _note(f"  {folder} itself is unchanged; to take this over: {apply}")
    return watched.code


def _note(text: str) -> None:
    output.line(text, err=True)
