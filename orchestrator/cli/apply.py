"""`deputize apply`: takes the changes of a run over into the directory that its workspace is a copy of."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...shared.errors import Invalid, NotFound
from ...shared.request_options import OPTIONS
from ...shared.text import count, visible
from ...shared.wording import put_back, where
from ..apply import NO_OPTIONS, ApplyOptions, left_behind, take_over
from . import completion, output
from .connect import NEWEST, connect, full_id, load_settings
from .errors import Exit
from .values import DIRECTORY

if TYPE_CHECKING:
    from ...shared.delegation import Delegation, ToolAgentResult
    from ...shared.patches.merge import MergePlan, Planned
    from ...shared.settings import Settings
    from ..client import Client

_REACHED = re.compile(r"(?:Stopped|No attempt has ended by itself): (\S+)")
"""What the summary states where the model has written no report."""


@click.command()
@click.argument("id", default=NEWEST, shell_complete=completion.delegations)
@click.option(
    "--into",
    type=DIRECTORY,
    metavar="DIR",
    help="Change this directory, not the one that was copied.",
)
@click.option("--check", is_flag=True, help="Only show the changes that would be made, and whether they can be.")
@click.option("--reverse", is_flag=True, help="Take the changes back.")
@click.option("--with-ignored", is_flag=True, help="Take new files that .gitignore names, too.")
@click.option("--with-protected", is_flag=True, help="Take protected files, too, that the checks put back.")
@click.option("--json", "as_json", is_flag=True, help="The outcome of each file, as one JSON object.")
def apply(id: str, into: Path | None, as_json: bool, **how: bool) -> Exit:
    """Take over what a run changed: into the directory that it worked on a copy of.

    Files that were changed here since are merged. Where that would lose other work, nothing at all is changed, and the
    files are named. ID may be shortened to its beginning or its end; without one it is @last, the newest without a
    parent.
    """
    settings = load_settings()
    return asyncio.run(_apply(settings, id, into, ApplyOptions(**how), as_json))


async def _apply(settings: Settings, id: str, into: Path | None, how: ApplyOptions, as_json: bool) -> Exit:
    async with connect(settings) as service:
        client = service.client
        delegation = await client.get(await full_id(client, id))
        folder = target_directory(delegation, into)
        plan = await take_over(client, delegation, folder, how)
    if as_json:
        output.json_line(_as_json(plan, delegation, folder, how))
    else:
        print_plan(settings, plan, delegation, folder, output.line, how)
    return Exit.FAILED if plan.refused else Exit.SUCCEEDED


def target_directory(delegation: Delegation, into: Path | None) -> Path:
    """Returns the directory to change. Raises Invalid where none is known or it does not exist."""
    from ...shared.request import DirectoryWorkspace

    workspace = delegation.request.workspace
    if into is None:
        if not isinstance(workspace, DirectoryWorkspace):
            raise Invalid(f"{delegation.id} did not start from a directory here; name one to change with --into DIR")
        into = Path(workspace.path)
        if into.parent.name.startswith("dlg_"):
            raise Invalid(
                f"{delegation.id} worked on a copy of the files of {into.parent.name}; apply that one, which has its "
                "changes, or name the directory to change with --into DIR"
            )
    if not into.is_dir():
        raise Invalid(f"{into} is not a directory on this machine; name the one to change with --into DIR")
    return into.absolute()


def print_plan(
    settings: Settings,
    plan: MergePlan,
    delegation: Delegation,
    folder: Path,
    write: Callable[[str], None],
    how: ApplyOptions = NO_OPTIONS,
) -> None:
    """Prints what was done or would be done; the files that prevent it and those missing in the patch go to stderr."""
    changes, warn = count(len(plan.applied), "change"), partial(output.line, err=True)
    if plan.refused:
        warn(f"nothing was changed in {folder}: {count(len(plan.refused), 'file')} would lose other work")
        for path, why in sorted(plan.refused.items()):
            warn(f"  {path}: {why}")
    elif not plan.applied:
        already = f"it has {'none of the changes' if how.reverse else 'every change already'}"
        write(f"nothing to do in {folder}: {already if plan.already else 'no file was changed'}")
    elif how.check:
        write(f"{changes} can be applied to {folder}")
    else:
        write(f"{changes} {'taken back in' if how.reverse else 'applied to'} {folder}")
    for planned in () if plan.refused else plan.applied:
        write(f"  {planned.verb} {planned.path}{_remark(plan, planned)}")
    if not (plan.refused or how.reverse) and (missing := missing_note(settings, delegation)):
        warn(missing)
    into = _into(delegation, folder)
    taken = [*plan.already, *(planned.path for planned in plan.applied)]
    if stays := ignored_note(settings, delegation, how, taken, into):
        warn(stays)
    if protected := left_behind(delegation, how):
        again = output.command(settings, "apply", delegation.id, "--with-protected", *into)
        warn(f"  left out: {put_back(protected)}" + ("" if how.reverse else f"; to take them, too: {again}"))
    if plan.applied and not (plan.refused or how.check or how.reverse):
        back = ("--reverse", *(["--with-protected"] if how.with_protected else []), *into)
        warn(f"  to take it back: {output.command(settings, 'apply', delegation.id, *back)}")


def _remark(plan: MergePlan, planned: Planned) -> str:
    """Returns what else a reader must know of a change."""
    target = plan.links_out.get(planned.path)
    out = f", a link that leads out of the directory: {visible(target)}" if target else ""
    return f", merged with the changes here{out}" if planned.merged else out


def _into(delegation: Delegation, folder: Path) -> Sequence[str]:
    """Returns the option by which `apply` changes this directory; none for the one that it changes by default."""
    workspace = delegation.request.workspace
    return () if workspace.kind == "directory" and workspace.path == str(folder) else ("--into", str(folder))


def missing_note(settings: Settings, delegation: Delegation) -> str | None:
    """Returns a line about the changed files that are not in the patch, and how to get them; None if all are."""
    missing = not_in_patch(delegation)
    names = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
    fetch = output.command(settings, "pull", delegation.id)
    return f"  not in the patch: {names}; to fetch: {fetch}" if missing else None


def ignored_note(
    settings: Settings,
    delegation: Delegation,
    how: ApplyOptions = NO_OPTIONS,
    taken: Sequence[str] = (),
    into: Sequence[str] = (),
) -> str | None:
    """Returns a line about the new files that .gitignore names and that stay behind, and how to get them.

    ``taken``: those that do not; ``into``: the options of `apply` that name the directory.
    """
    if delegation.result is None or not delegation.result.ignored_count or how.reverse:
        return None
    left = [path for path in delegation.result.ignored_files if path not in taken]
    listed = output.ignored(delegation.result.ignored_count, left, len(delegation.result.ignored_files))
    command = ("pull", delegation.id, "PATH") if how.with_ignored else ("apply", delegation.id, "--with-ignored", *into)
    hint = f"to take them, too: {output.command(settings, *command)}"
    return f"  left behind: {listed}; {hint}" if listed else None


def not_in_patch(delegation: Delegation) -> list[str]:
    """Returns the paths of changed files that are not in the patch, without the state of repositories."""
    changes = delegation.result.file_changes if delegation.result else []
    return [each.path for each in changes if not each.in_patch and each.path.rpartition("/")[2] != ".git"]


async def take_over_or_hint(
    settings: Settings,
    client: Client,
    result: ToolAgentResult,
    into: Path | None = None,
    how: ApplyOptions = NO_OPTIONS,
) -> bool:
    """Applies the changes to the directory, or prints how to. Returns whether that was refused.

    Only a success is applied; with checks its verdict is what its request requires.
    """
    from ...shared.delegation import shortfall_of

    delegation, note = await client.get(result.delegation_id), partial(output.line, err=True)
    if result.termination_reason == "completed":
        why = shortfall_of(delegation.request, result)
    else:
        why = f"it ended as {result.termination_reason}"
    if into and why:
        note(f"nothing was applied to {into}: {why}")
    elif into and result.file_changes:
        plan = await take_over(client, delegation, into, how)
        print_plan(settings, plan, delegation, into, note, how)
        return bool(plan.refused)
    if output.is_read_by_a_person():
        name = await _short_name(client, delegation.id)
        output.lines(islice(_hints(settings, delegation, result, name), 1), err=True)
        note(f"  more: {output.command(settings, 'show', name)}")
    else:
        output.lines(_hints(settings, delegation, result, delegation.id), err=True)
    return False


async def _short_name(client: Client, id: str) -> str:
    """Returns the name of this delegation for a command: ``@last`` if it is the newest, else its id."""
    with suppress(NotFound):
        return NEWEST if await full_id(client, NEWEST) == id else id
    return id


def _hints(settings: Settings, delegation: Delegation, result: ToolAgentResult, name: str) -> Generator[str]:
    """Yields what can be done with a run that has ended, the likeliest first; ``name`` is its id, or short for it."""
    from ...shared.delegation import shortfall_of
    from ...shared.request import DirectoryWorkspace

    workspace, command = delegation.request.workspace, partial(output.command, settings)
    if option := _raising(delegation, result):
        yield f"  to go on: {command('continue', name, 'go on', option, 'N')}"
    if result.git and result.git.commit:
        yield f"  delivered as {where(result.git)}"
    elif result.git and result.file_changes and not shortfall_of(delegation.request, result):
        yield f"  to push its changes as a branch: {command('deliver', name)}"
    if workspace.kind == "archive" and any(change.in_patch for change in result.file_changes):
        yield f"  to take this over: {command('apply', name, '--into', 'DIR')}"
    elif not isinstance(workspace, DirectoryWorkspace) and result.file_changes:
        yield f"  to fetch its files: {command('pull', name)}"
        return
    if isinstance(workspace, DirectoryWorkspace) and any(change.in_patch for change in result.file_changes):
        take = command("apply", name, *(() if Path(workspace.path).is_dir() else ("--into", "DIR")))
        yield f"  {workspace.path} itself is unchanged; to take this over: {take}"
    yield from filter(None, (missing_note(settings, delegation), ignored_note(settings, delegation)))


def _raising(delegation: Delegation, result: ToolAgentResult) -> str | None:
    """Returns the option that raises the limit at which a run ended; None where no option does.

    A cap of the service is one of these, as are a deadline and what the fleet may spend.
    """
    stated = _REACHED.match(result.summary)
    name = stated[1] if stated else _likeliest(delegation, result)
    option = OPTIONS.get(f"limits/{name}")
    if not result.termination_reason.is_limit or option is None:
        return None
    is_own = delegation.effective_limits.to_dict()[name] == delegation.request.limits.to_dict()[name]
    return option.flag if is_own else None


def _likeliest(delegation: Delegation, result: ToolAgentResult) -> str:
    """Returns the name of the limit that a reason stands for: of a budget the one that is used up the most."""
    limits, usage = delegation.effective_limits, result.usage
    used = {
        "maxTokens": usage.total / limits.max_tokens if limits.max_tokens else 0,
        "maxCostUsd": (usage.cost_usd or 0) / limits.max_cost_usd if limits.max_cost_usd else 0,
    }
    names = {"max_turns": "maxTurns", "max_tool_calls": "maxToolCalls", "timeout": "timeoutSeconds"}
    most = max(used, key=lambda name: used[name])
    return names.get(result.termination_reason, most if used[most] else "")


def _as_json(plan: MergePlan, delegation: Delegation, folder: Path, how: ApplyOptions) -> str:
    return json.dumps(
        {
            "directory": str(folder),
            "applied": [] if plan.refused else [planned.path for planned in plan.applied],
            "merged": [] if plan.refused else [planned.path for planned in plan.applied if planned.merged],
            "already": plan.already,
            "refused": plan.refused,
            "notInPatch": not_in_patch(delegation),
            "leftOut": left_behind(delegation, how),
            "ignored": delegation.result.ignored_files if delegation.result else [],
        }
    )
