"""`deputize policy replay`: which recorded calls other rules would decide differently."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...shared.text import count
from . import formatting, output
from .connect import connect, load_settings
from .errors import Exit
from .policy_process import PolicyProcess, policy_process

if TYPE_CHECKING:
    from ...shared.settings import Settings

_FILE = click.Path(dir_okay=False, path_type=Path)
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
    from .recorded_calls import Recordings

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
    call = formatting.cut(f"{change['name']} {json.dumps(change['arguments'], ensure_ascii=False)}", SHOWN_CALL)
    old, new = change["old"], change["new"]
    output.line(f"{id}  turn {change['turn']}  {call}")
    output.line(f"  {verdict(old)} → {verdict(new)}: {new['reason']}")


def verdict(found: Mapping[str, Any]) -> str:
    return f"{found['decision']} by {found['rule']} ({found['place'] or 'built in'})"
