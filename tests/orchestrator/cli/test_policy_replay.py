"""`deputize policy replay`: recorded calls, judged again by the rules of a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from deputize.orchestrator.cli import cli
from deputize.shared.delegation import Usage
from deputize.shared.events import AskedCall, Replied, RunStarted, TurnStarted
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.shared.tool_traits import ToolTraits
from tests.fake_model import Turn, call, text
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.orchestrator.whole import Whole

RULES = """
[[rule]]
name = "push"
decision = "deny"
reason = "people push"
command_prefix = "git push"

[[rule]]
name = "deep"
decision = "deny"
reason = "not from there"
kind = "edit"
depth = 2

[[rule]]
name = "read"
decision = "ask"
kind = "other"
taint = "web"
"""
PUSH, STATUS = {"command": "cd x && git push"}, {"command": "git status"}
BIG, SMALL = 1_000, 40
"""Delegations: what must take at most 60 seconds, and how many of them are tried here."""
Replay = Callable[..., Any]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path / "rules.toml"


@pytest.fixture
def replay(policy_context: click.Context, rules: Path, tmp_path: Path) -> Replay:
    async def run(url: str, *options: str, **variables: str) -> Result:
        environment = {"DEPUTIZE_URL": url, "DEPUTIZE_TOKEN": None, "DEPUTIZE_HOME": str(tmp_path)} | variables
        arguments = ["policy", "replay", str(rules), *options]
        runner = CliRunner(env=environment)
        return await asyncio.to_thread(runner.invoke, cli, arguments, parent=policy_context)

    return run


async def recorded(
    service: FakeService,
    *turns: Sequence[tuple[str, dict[str, Any]]],
    tainted_by: Sequence[str] = (),
    further: Sequence[ToolTraits] = (),
    **fields: Any,
) -> str:
    """A delegation whose turns had these calls."""
    id = (await service.create(DelegationRequest(task="do it", **fields))).delegation.id
    started = RunStarted(worker="w", model="m", tools=[], limits=Limits(), further_tools=list(further))
    service.happen(id, started)
    for number, calls in enumerate(turns, 1):
        asked = [AskedCall(id=f"{number}.{at}", name=name, arguments=given) for at, (name, given) in enumerate(calls)]
        service.happen(id, TurnStarted(turn=number, tainted_by=list(tainted_by)))
        service.happen(id, Replied(turn=number, stop_reason="tool_use", usage=Usage(), tool_calls=asked))
    service.finish(id)
    return id


async def test_what_changes_is_shown_with_both_rules(
    url: str, service: FakeService, replay: Replay, rules: Path
) -> None:
    id = await recorded(service, [("bash", STATUS)], [("bash", PUSH), ("read_file", {"path": "a"})])
    done = await replay(url)
    assert done.stdout.splitlines() == [
        f'{id}  turn 2  bash {{"command": "cd x && git push"}}',
        f"  allow by ask_before_changes (built in) → deny by push ({rules}:2): people push",
        "1 delegation, 3 calls judged, 1 decided otherwise (1 allow → deny)",
    ]
    assert done.exit_code == 1
    old = await replay(url, DEPUTIZE_POLICY=str(rules))
    assert (old.exit_code, old.stdout) == (0, "1 delegation, 3 calls judged, none decided otherwise\n")


async def test_json_has_a_line_for_each_change_and_a_summary(url: str, service: FakeService, replay: Replay) -> None:
    id = await recorded(service, [("bash", PUSH)])
    done = await replay(url, "--json")
    change, summary = map(json.loads, done.stdout.splitlines())
    assert (change["delegationId"], change["turn"], change["call"], change["name"]) == (id, 1, "1.0", "bash")
    assert (change["old"]["decision"], change["new"]["decision"], change["new"]["rule"]) == ("allow", "deny", "push")
    assert summary == {
        "summary": {
            "delegations": 1,
            "judged": 1,
            "notJudged": {},
            "changed": [{"old": "allow", "new": "deny", "calls": 1}],
        }
    }


async def test_the_run_counts_as_it_was(url: str, service: FakeService, replay: Replay) -> None:
    write = ("write_file", {"path": "a", "content": "x"})
    tool = ToolTraits(name="mcp__git__push", kind="other", effect="effectful", source="mcp", server="git", trusted=True)
    first = await recorded(service, [write])
    second = await recorded(service, [write], parent_id=first)
    third = await recorded(service, [write], parent_id=second)
    other = ("mcp__git__push", {})
    tainted = await recorded(service, [other], tainted_by=["web"], further=[tool])
    await recorded(service, [other], further=[tool])
    await recorded(service, [("bash", PUSH)], approval_mode="readOnly")  # denied before, too
    done = await replay(url, "--json")
    *changes, _ = map(json.loads, done.stdout.splitlines())
    assert {(each["delegationId"], each["new"]["decision"]) for each in changes} == {(third, "deny"), (tainted, "ask")}


async def test_what_a_recording_lacks_is_counted_and_not_judged(url: str, service: FakeService, replay: Replay) -> None:
    cut, masked = {"command": "git push " + "x" * 100 + "…"}, {"command": "git push https://***@example.org"}
    await recorded(
        service,
        [("bash", cut), ("bash", {"command": ["… [cut: 9 entries, 1 allowed]"]}), ("bash", masked)],
        [("lint", {"path": "a"}), ("mcp__git__push", {}), ("bash", {"comand": "git push"}), ("bash", STATUS)],
    )
    await recorded(service, [("bash", PUSH)], parent_id="dlg_00000000000000000000000000")
    done = await replay(url)
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            "2 delegations, 1 call judged, none decided otherwise",
            "not judged: 2 with arguments that the recording has cut",
            "not judged: 2 of tools that are not known here",
            "not judged: 1 of delegations whose parent is gone",
            "not judged: 1 with arguments that hold a masked secret",
            "not judged: 1 with wrong arguments, which the policy was never asked about",
        ],
    )


async def test_only_the_newest_are_read(url: str, service: FakeService, replay: Replay) -> None:
    for _ in range(3):
        await recorded(service, [("bash", PUSH)])
    assert (await replay(url, "--last", "2")).stdout.endswith(
        "2 delegations, 2 calls judged, 2 decided otherwise (2 allow → deny)\n"
    )


async def test_a_wrong_file_ends_with_3(url: str, service: FakeService, replay: Replay, rules: Path) -> None:
    await recorded(service, [("bash", PUSH)])
    rules.write_text('[[rule]]\ntol = 1\nname = "x"\ndecision = "ask"\n')
    done = await replay(url)
    assert (done.exit_code, f"{rules}:2: tol: unknown key 'tol'" in done.stderr) == (3, True)


async def test_a_real_run_is_replayed(whole: Whole, replay: Replay) -> None:
    first = Turn([call("bash", command="git push"), call("write_file", path="a.txt", content="x")])
    result = await whole.first(first, Turn([text("done")]))
    async with served(whole.service) as url:
        done = await replay(url, "--json")
    change, summary = map(json.loads, done.stdout.splitlines())
    assert (change["delegationId"], change["arguments"]["command"]) == (result.delegation_id, "git push")
    assert (change["new"]["rule"], summary["summary"]["judged"]) == ("push", 2)


async def test_many_take_little_time(url: str, service: FakeService, replay: Replay) -> None:
    turns = [[("bash", {"command": f"cd {n} && make"}), ("read_file", {"path": f"{n}"})] for n in range(10)]
    for _ in range(SMALL):
        await recorded(service, *turns)
    started = time.monotonic()
    done = await replay(url, "--last", str(BIG))
    assert done.stdout.startswith(f"{SMALL} delegations, {SMALL * 20:,} calls judged, none")
    assert time.monotonic() - started < 60 * SMALL / BIG * 4  # four times what is promised: others use this machine
