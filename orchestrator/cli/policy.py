"""`deputize policy`: explains decisions, tests the rules of a file, and replays recorded calls under them."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ...shared.errors import Invalid, Misconfigured, NotFound
from ...shared.request_options import ApprovalMode
from ...shared.text import count
from ...shared.wording import cut
from . import output
from .connect import asynchronous, connect, listed, load_settings
from .errors import Exit
from .values import DIRECTORY, LABEL

if TYPE_CHECKING:
    from ...shared.settings import Settings
    from ..client import Client


_FILE = click.Path(dir_okay=False, path_type=Path)
_MODES = [mode.value for mode in ApprovalMode]

PAGE = 50
"""Delegations that are judged by one question."""


async def recordings(client: Client, number: int) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yields pages of the newest runs with their calls, for ``Replay`` (``worker/policy/explanation.py``)."""
    runs: list[dict[str, Any]] = []
    depths: dict[str, int | None] = {}
    async for delegation in listed(client, number):
        try:
            events = await client.plain_events(delegation.id)
        except NotFound:
            continue  # it was removed meanwhile
        request = delegation.request
        depth = await _depth(client, request.parent_id, depths)
        run = {"id": delegation.id, "mode": request.approval_mode, "labels": request.labels, "depth": depth}
        runs.append(run | recorded_calls(events))
        if len(runs) == PAGE:
            yield runs
            runs = []
    if runs:
        yield runs


async def _depth(client: Client, parent: str | None, known: dict[str, int | None]) -> int | None:
    """Returns in how many delegations a child of ``parent`` is nested; None where one of them is gone."""
    if parent is None:
        return 0
    if parent not in known:
        try:
            above = (await client.get(parent)).request.parent_id
        except NotFound:
            known[parent] = None
        else:
            known[parent] = await _depth(client, above, known)
    depth = known[parent]
    return None if depth is None else depth + 1


def recorded_calls(events: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Returns the calls of a recording with their turns and what tainted them, and the run's further tools."""
    calls: list[dict[str, Any]] = []
    further: list[dict[str, Any]] = []
    tainted_by: Sequence[str] = []
    for event in events:
        match event["type"]:
            case "run_started":
                further = event.get("furtherTools", [])
            case "turn_started":
                tainted_by = event.get("taintedBy", [])
            case "replied":
                for call in event["toolCalls"]:
                    what = {"call": call["id"], "name": call["name"], "arguments": call["arguments"]}
                    calls.append({"turn": event["turn"], "taintedBy": tainted_by} | what)
            case _:
                pass
    return {"calls": calls, "furtherTools": further}


Ask = Callable[["Settings", Mapping[str, Any]], dict[str, Any]]
"""Asks the policy's engine a question under these settings. Raises Invalid for a wrong question, and Misconfigured for
a wrong file."""
SHARED = f"{__name__}.shared"
"""Where a context has an engine that several commands share."""
END_SECONDS = 10.0


@contextmanager
def engine(settings: Settings) -> Generator[Ask]:
    """Starts the policy's engine for any number of questions; that takes seconds."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deputize.worker.policy"],
            env=settings.child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            yield partial(_ask, process, errors)
        finally:
            process.kill()  # it holds nothing
            process.communicate()


def _ask(
    process: subprocess.Popen[bytes], errors: IO[bytes], settings: Settings, question: Mapping[str, Any]
) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    own = {name: text for name, text in settings.child_environment().items() if name.startswith("DEPUTIZE_")}
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**question, "settings": own}).encode() + b"\n")
        process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        code = process.wait(END_SECONDS)
        errors.seek(0)
        last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Misconfigured(f"the policy cannot be asked: {last or f'exit code {code}'}")
    found: dict[str, Any] = json.loads(answer)
    if error := found.get("error"):
        raise Invalid(error) if found["usage"] else Misconfigured(error)
    return found


def policy_engine(settings: Settings) -> AbstractContextManager[Ask]:
    """Returns the engine of the context, or one for the block."""
    shared: Ask | None = click.get_current_context().meta.get(SHARED)
    return nullcontext(shared) if shared else engine(settings)


_REASONS = {
    "cut": "with arguments that the recording has cut",
    "masked": "with arguments that hold a masked secret",
    "unknownTool": "of tools that are not known here",
    "unknownDepth": "of delegations whose parent is gone",
    "refused": "with wrong arguments, which the policy was never asked about",
}
SHOWN_CALL = 160


@dataclass(slots=True)
class Tally:
    """What was found in all recordings so far."""

    delegations: int = 0
    judged: int = 0
    not_judged: Counter[str] = field(default_factory=Counter[str])
    changes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def add(self, found: Mapping[str, Any]) -> None:
        self.delegations += 1
        self.judged += found["judged"]
        self.not_judged.update(found["notJudged"])
        self.changes.update((each["old"]["decision"], each["new"]["decision"]) for each in found["changes"])

    def to_json(self) -> str:
        changed = [{"old": old, "new": new, "calls": number} for (old, new), number in sorted(self.changes.items())]
        counts = {"delegations": self.delegations, "judged": self.judged, "notJudged": self.not_judged}
        return json.dumps({"summary": {**counts, "changed": changed}})

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{number} {old} → {new}" for (old, new), number in sorted(self.changes.items()))
        changed = f"{self.changes.total():,} decided otherwise ({kinds})" if kinds else "none decided otherwise"
        lines = [f"{count(self.delegations, 'delegation')}, {count(self.judged, 'call')} judged, {changed}"]
        return lines + [f"not judged: {number} {_REASONS[reason]}" for reason, number in self.not_judged.most_common()]


@click.group()
def policy() -> None:
    """Explain what the policy decides about a call, or test the rules of a file.

    All ask the engine that workers use; nothing is called, and no worker has to run.
    """


@policy.command()
@click.argument("call")
@click.option("--mode", type=click.Choice(_MODES), default="sandboxed", help="The approval mode of the run.")
@click.option("--depth", type=click.IntRange(0), default=0, help="In how many delegations the run is nested.")
@click.option("--label", "labels", type=LABEL, multiple=True, metavar="KEY:VALUE", help="A label of it; repeatable.")
@click.option(
    "--taint",
    multiple=True,
    metavar="SOURCE",
    help="A source of its reading: web, mcp:SERVER or subagent:ID; repeatable.",
)
@click.option("-w", "--workspace", type=DIRECTORY, metavar="DIR", help="Resolve links of paths in this directory.")
@click.option(
    "--policy", "files", type=_FILE, multiple=True, metavar="FILE", help="Instead of DEPUTIZE_POLICY; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def explain(
    call: str,
    mode: str,
    depth: int,
    labels: tuple[str, ...],
    taint: tuple[str, ...],
    workspace: Path | None,
    files: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Show what the policy decides about CALL, by which rule and why.

    CALL is a tool with its arguments: 'bash {"command": "git status"}'. The sandbox counts as working.
    """
    settings = load_settings(policy=files or None)
    named = dict(label.split(":", 1) for label in labels)
    place = str(workspace) if workspace else None
    question = {"call": call, "mode": mode, "depth": depth, "labels": named, "taint": taint, "workspace": place}
    with policy_engine(settings) as ask:
        found = ask(settings, question)
    if as_json:
        output.json_line(json.dumps(found, ensure_ascii=False))
        return
    output.line(found["decision"])
    output.line(f"  rule    {_rule(found)}")
    output.line(f"  reason  {found['reason']}")
    output.lines(f"  note    {note}" for note in found["notes"])
    if line := found["commandLine"]:
        output.line(f"  class   {line['class']}: {line['reason']}")
        output.lines(f"  {each['class']:7} {shlex.join(each['words'])}: {each['reason']}" for each in line["commands"])
        output.lines(f"  effect  {effect}" for effect in line["effects"])


@policy.command("test", short_help="Compare the examples in a file with the decisions of its rules.")
@click.argument("files", metavar="FILE…", type=_FILE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Each example as one JSON object a line.")
def test_(files: tuple[Path, ...], as_json: bool) -> Exit:
    """Compare the examples of each FILE with what its rules and the built-in ones decide; exit 1 on a difference."""
    question = {"test": [str(path.absolute()) for path in files]}
    settings = load_settings()
    with policy_engine(settings) as ask:
        found = ask(settings, question)
    tried: list[dict[str, Any]] = found["examples"]
    output.lines(found["remarks"], err=True)
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


def _rule(found: Mapping[str, Any]) -> str:
    return f"{found['rule']} ({found['place'] or 'built in'})"


@policy.command(short_help="Show which recorded calls the rules in a file would decide differently.")
@click.argument("files", metavar="FILE…", type=_FILE, nargs=-1, required=True)
@click.option(
    "--last", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="How many delegations."
)
@click.option("--json", "as_json", is_flag=True, help="Each call as one JSON object a line, and a summary.")
@asynchronous
async def replay(files: tuple[Path, ...], last: int, as_json: bool) -> Exit:
    """Judge the recorded calls of the newest delegations by the rules of each FILE instead of those of DEPUTIZE_POLICY.

    Calls that are decided differently are shown; exit 1 if there are any. Nothing is called. The sandbox counts as
    working, and links in workspaces are not resolved. Calls that a recording does not show completely are counted.
    """
    settings, tally = load_settings(), Tally()
    rules = [str(path.absolute()) for path in files]
    with policy_engine(settings) as ask:
        async with connect(settings) as service:
            async for runs in recordings(service.client, last):
                answer = await asyncio.to_thread(ask, settings, {"replay": rules, "runs": runs})
                for found in answer["runs"]:
                    tally.add(found)
                    _show(found, as_json=as_json)
    if as_json:
        output.json_line(tally.to_json())
    else:
        output.lines(tally.lines())
    return Exit.FAILED if tally.changes else Exit.SUCCEEDED


def _show(found: Mapping[str, Any], *, as_json: bool) -> None:
    for change in found["changes"]:
        if as_json:
            output.json_line(json.dumps({"delegationId": found["id"], **change}, ensure_ascii=False))
            continue
        call = cut(f"{change['name']} {json.dumps(change['arguments'], ensure_ascii=False)}", SHOWN_CALL)
        output.line(f"{found['id']}  turn {change['turn']}  {call}")
        decided = (f"{verdict['decision']} by {_rule(verdict)}" for verdict in (change["old"], change["new"]))
        output.line(f"  {' → '.join(decided)}: {change['new']['reason']}")
