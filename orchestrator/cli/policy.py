"""`deputize policy`: explain what the policy decides about a call, test a file's examples, replay recorded calls."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.text import count
from . import output
from .connect import load_settings
from .errors import Exit
from .policy_process import policy_process
from .policy_replay import replay
from .request_options import APPROVAL_MODES
from .values import Directory, Label

if TYPE_CHECKING:
    pass

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def policy() -> None:
    """Explain what the policy decides about a call, or test the rules of a file.

    All ask the engine that workers use; nothing is called, and no worker has to run.
    """


@policy.command()
@click.argument("call")
@click.option("--mode", type=click.Choice(APPROVAL_MODES), default="sandboxed", help="The approval mode of the run.")
@click.option("--depth", type=click.IntRange(0), default=0, help="In how many delegations the run is nested.")
@click.option("--label", "labels", type=Label(), multiple=True, metavar="KEY:VALUE", help="A label of it; repeatable.")
@click.option(
    "--taint", multiple=True, metavar="SOURCE", help="What it has read: web, mcp:SERVER or subagent:ID; repeatable."
)
@click.option("-w", "--workspace", type=Directory(), metavar="DIR", help="Resolve links of paths in this directory.")
@click.option(
    "--policy", "files", type=_FILE, multiple=True, metavar="FILE", help="Instead of DEPUTIZE_POLICY; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def explain(
    ctx: click.Context,
    call: str,
    mode: str,
    depth: int,
    labels: tuple[str, ...],
    taint: tuple[str, ...],
    workspace: Path | None,
    files: tuple[Path, ...],
    as_json: bool,
) -> Exit:
    """Show what the policy decides about CALL, by which rule and why.

    CALL is a tool with its arguments: 'bash {"command": "git status"}'. The sandbox counts as working.
    """
    settings = load_settings(ctx, policy=files or None)
    named = dict(label.split(":", 1) for label in labels)
    place = str(workspace) if workspace else None
    question = {"call": call, "mode": mode, "depth": depth, "labels": named, "taint": taint, "workspace": place}
    with policy_process(ctx) as process:
        found = process.ask(settings, question)
    if as_json:
        output.json_line(json.dumps(found, ensure_ascii=False))
        return Exit.SUCCEEDED
    output.line(found["decision"])
    output.line(f"  rule    {_rule(found)}")
    output.line(f"  reason  {found['reason']}")
    for note in found["notes"]:
        output.line(f"  note    {note}")
    if found["commandLine"]:
        _print_commands(found["commandLine"])
    return Exit.SUCCEEDED


@policy.command("test", short_help="Compare the examples in a file with what its rules decide.")
@click.argument("files", metavar="FILE…", type=_FILE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Each example as one JSON object a line.")
@click.pass_context
def test_(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> Exit:
    """Compare the examples of each FILE with what its rules and the built-in ones decide; exit 1 on a difference."""
    question = {"test": [str(path.absolute()) for path in files]}
    with policy_process(ctx) as process:
        found = process.ask(load_settings(ctx), question)
    tried: list[dict[str, Any]] = found["examples"]
    for remark in found["remarks"]:
        output.line(remark, err=True)
    wrong = [each for each in tried if each["decision"] != each["expect"]]
    for each in tried if as_json else wrong:
        if as_json:
            output.json_line(json.dumps(each, ensure_ascii=False))
            continue
        output.line(f"{each['example']}: {each['call']}")
        output.line(f"  expected {each['expect']}, decided {each['decision']} by {_rule(each)}: {each['reason']}")
    if not tried:
        raise click.UsageError("there is nothing to test: add [[example]] tables with call and expect")
    if not as_json:
        output.line(f"{count(len(tried), 'example')}, {len(wrong) or 'none'} decided otherwise")
    return Exit.FAILED if wrong else Exit.SUCCEEDED


def _print_commands(line: Mapping[str, Any]) -> None:
    """Prints the class of a command line, and of each command in it."""
    output.line(f"  class   {line['class']}: {line['reason']}")
    for command in line["commands"]:
        output.line(f"  {command['class']:7} {shlex.join(command['words'])}: {command['reason']}")
    for effect in line["effects"]:
        output.line(f"  effect  {effect}")


def _rule(found: Mapping[str, Any]) -> str:
    return f"{found['rule']} ({found['place'] or 'built in'})"


policy.add_command(replay)
