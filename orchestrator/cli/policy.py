"""The calls of recorded runs, as the policy is asked about them again."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ...shared.errors import Invalid, Misconfigured, NotFound
from ...shared.lines import cut
from ...shared.request_options import ApprovalMode
from ...shared.text import count
from . import output
from .connect import connect, load_settings
from .errors import Exit
from .values import Directory, Label

if TYPE_CHECKING:
    from ...shared.delegation import Delegation
    from ...shared.settings import Settings
    from ..client import Client


_FILE = click.Path(dir_okay=False, path_type=Path)
_MODES = [mode.value for mode in ApprovalMode]

PAGE = 50
"""Delegations that are read at a time."""
AT_ONCE = 8
"""Recordings that are read at once: a service limits its connections."""


class Recordings:
    """Reads the newest delegations of a service with their calls."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._depths: dict[str, int | None] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def newest(self, number: int) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yields pages of at most ``number`` runs in all, for ``Replay`` (``worker/policy/explanation.py``)."""
        cursor = None
        while number > 0:
            page = await self._client.list(limit=min(PAGE, number), cursor=cursor)
            found = await asyncio.gather(*map(self._run, page.items))
            yield [run for run in found if run]
            number -= len(page.items)
            if (cursor := page.next_cursor) is None:
                return

    async def _run(self, delegation: Delegation) -> dict[str, Any] | None:
        """Returns the question about one delegation, or None where it was removed meanwhile."""
        try:
            async with self._gate:
                events = await self._client.plain_events(delegation.id)
        except NotFound:
            return None
        request = delegation.request
        calls, further = _calls(events)
        return {
            "id": delegation.id,
            "mode": request.approval_mode,
            "labels": request.labels,
            "depth": await self._depth(request.parent_id),
            "furtherTools": further,
            "calls": calls,
        }

    async def _depth(self, parent: str | None) -> int | None:
        """Returns in how many delegations a child of ``parent`` is nested; None where one of them is gone."""
        if parent is None:
            return 0
        if parent not in self._depths:
            try:
                above = (await self._client.get(parent)).request.parent_id
            except NotFound:
                self._depths[parent] = None
            else:
                self._depths[parent] = await self._depth(above)
        depth = self._depths[parent]
        return None if depth is None else depth + 1


def _calls(events: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
                where = {"turn": event["turn"], "taintedBy": tainted_by}
                calls += [_call(asked, where) for asked in event["toolCalls"]]
            case _:
                pass
    return calls, further


def _call(asked: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
    return {**where, "call": asked["id"], "name": asked["name"], "arguments": asked["arguments"]}


SHARED = f"{__name__}.shared"
"""Where a context has a process that several commands share."""
END_SECONDS = 10.0


class PolicyProcess:
    """One process for any number of questions; it starts with the first one, which takes seconds."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def ask(self, settings: Settings, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises Invalid for a wrong question, and Misconfigured for a wrong file."""
        environment = settings.child_environment()
        process = self._process = self._process or self._started(environment)
        assert process.stdin is not None
        assert process.stdout is not None
        own = {name: text for name, text in environment.items() if name.startswith("DEPUTIZE_")}
        try:
            process.stdin.write(json.dumps({**question, "settings": own}).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise Misconfigured(f"the policy cannot be asked: {self._why_it_ended(process)}")
        found: dict[str, Any] = json.loads(answer)
        if error := found.get("error"):
            raise Invalid(error) if found["usage"] else Misconfigured(error)
        return found

    def _started(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "deputize.worker.policy"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def _why_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait(END_SECONDS)
        assert self._errors is not None
        self._errors.seek(0)
        last = self._errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        return last or f"exit code {code}"

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()  # it holds nothing
            self._process.communicate()
            self._process = None
        if self._errors is not None:
            self._errors.close()


@contextmanager
def policy_process(ctx: click.Context) -> Generator[PolicyProcess]:
    """Yields the process of the context, or one for this block."""
    if shared := ctx.meta.get(SHARED):
        yield shared
        return
    process = PolicyProcess()
    try:
        yield process
    finally:
        process.close()


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
        counts = {"delegations": self.delegations, "judged": self.judged, "notJudged": dict(self.not_judged)}
        return json.dumps({"summary": {**counts, "changed": changed}})

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{number} {old} → {new}" for (old, new), number in sorted(self.changes.items()))
        changed = f"{self.changes.total():,} decided otherwise ({kinds})" if kinds else "none decided otherwise"
        lines = [f"{count(self.delegations, 'delegation')}, {count(self.judged, 'call')} judged, {changed}"]
        return lines + [f"not judged: {number} {_REASONS[reason]}" for reason, number in self.not_judged.most_common()]


@click.command(short_help="Show which recorded calls the rules in a file would decide differently.")
@click.argument("files", metavar="FILE…", type=_FILE, nargs=-1, required=True)
@click.option(
    "--last", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="How many delegations."
)
@click.option("--json", "as_json", is_flag=True, help="Each call as one JSON object a line, and a summary.")
@click.pass_context
def replay(ctx: click.Context, files: tuple[Path, ...], last: int, as_json: bool) -> Exit:
    """Judge the recorded calls of the newest delegations by the rules of each FILE instead of those of DEPUTIZE_POLICY.

    Calls that are decided differently are shown; exit 1 if there are any. Nothing is called. The sandbox counts as
    working, and links in workspaces are not resolved. Calls that a recording does not show completely are counted.
    """
    settings = load_settings(ctx)
    with policy_process(ctx) as process:
        tally = asyncio.run(_replay(settings, process, [str(path.absolute()) for path in files], last, as_json))
    if as_json:
        output.json_line(tally.to_json())
    else:
        for line in tally.lines():
            output.line(line)
    return Exit.FAILED if tally.changes else Exit.SUCCEEDED


async def _replay(settings: Settings, process: PolicyProcess, files: Sequence[str], last: int, as_json: bool) -> Tally:
    """Judges each page of recordings while the next one is read."""
    tally = Tally()
    judging: asyncio.Task[dict[str, Any]] | None = None
    try:
        async with connect(settings) as service:
            async for runs in Recordings(service.client).newest(last):
                if judging:
                    _report(await judging, tally, as_json=as_json)
                asked = asyncio.to_thread(process.ask, settings, {"replay": files, "runs": runs})
                judging = asyncio.create_task(asked)
        if judging:
            _report(await judging, tally, as_json=as_json)
    finally:
        if judging and not judging.done():
            await asyncio.wait({judging})
    return tally


def _report(answer: Mapping[str, Any], tally: Tally, *, as_json: bool) -> None:
    for found in answer["runs"]:
        tally.add(found)
        for change in found["changes"]:
            _show(found["id"], change, as_json=as_json)


def _show(id: str, change: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.json_line(json.dumps({"delegationId": id, **change}, ensure_ascii=False))
        return
    call = cut(f"{change['name']} {json.dumps(change['arguments'], ensure_ascii=False)}", SHOWN_CALL)
    old, new = change["old"], change["new"]
    output.line(f"{id}  turn {change['turn']}  {call}")
    output.line(f"  {verdict(old)} → {verdict(new)}: {new['reason']}")


def verdict(found: Mapping[str, Any]) -> str:
    return f"{found['decision']} by {found['rule']} ({found['place'] or 'built in'})"


if TYPE_CHECKING:
    pass


@click.group()
def policy() -> None:
    """Explain what the policy decides about a call, or test the rules of a file.

    All ask the engine that workers use; nothing is called, and no worker has to run.
    """


@policy.command()
@click.argument("call")
@click.option("--mode", type=click.Choice(_MODES), default="sandboxed", help="The approval mode of the run.")
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
