"""No output of any command lets text from outside act on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deputize.orchestrator.audit_log import AuditRecord
from deputize.orchestrator.cli import COMMANDS, cli
from deputize.shared.delegation import Step, StepStatus, TerminationReason, Usage
from deputize.shared.errors import Invalid
from deputize.shared.events import (
    ErrorSeen,
    ModelRetried,
    PermissionAnswered,
    ProgressMade,
    Replied,
    RunResumed,
    RunRetried,
    RunStarted,
    StepCompleted,
    StepStarted,
    StepUpdated,
    TextDelta,
)
from deputize.shared.fleet import PreparedEnvironment, ToolCard
from deputize.shared.libc import closing_fd
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.notification import Notification
from deputize.shared.schedule import Schedule
from deputize.shared.wire import now
from tests.hostile.texts import ACTING, HOSTILE, assert_harmless
from tests.orchestrator.cli.following import finished_by_itself
from tests.orchestrator.command_line import Done, started
from tests.orchestrator.fake_permissions import question
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.orchestrator.terminal import on_terminal
from tests.sampling import sampled
from tests.waiting import until_it_waits

ID, ENDED, NAME = "<id>", "<ended>", "report\x1b[31m.md"
READING = {
    "audit": [["audit"], ["audit", "--json"]],
    "show": [
        ["show", ID, *more] for more in ([], ["--events"], ["--steps"], ["--usage"], ["--transcript"], ["--proof"])
    ]
    + [["show", ID, *more, "--json"] for more in ([], ["--events"], ["--steps"], ["--usage"])]
    + [["show", "dlg_" + ACTING]],
    "list": [["list"], ["list", "--json"], ["list", "--session", ACTING], ["list", "--status", HOSTILE]],
    "apply": [["apply", ID], ["apply", ID, "--check", "--reverse", "--json"], ["apply", ID, "--into", HOSTILE]],
    "pull": [["pull", ID], ["pull", ID, HOSTILE], ["pull", ID, "--overwrite", "--json"]],
    "send": [["send", ID, HOSTILE], ["send", ID, HOSTILE, "--json"]],
    "wrap-up": [["wrap-up", ID, HOSTILE], ["wrap-up", ID, "--json"]],
    "cancel": [["cancel", ID], ["cancel", ID, "--json"], ["cancel", HOSTILE]],
    "prune": [["prune"], ["prune", "--json", "--dry-run"], ["prune", "--older-than", HOSTILE]],
    "tools": [["tools"], ["tools", "--json"]],
    "workers": [["workers"], ["workers", "--json"]],
    "status": [["status"], ["status", "--json"]],
    "version": [["version"]],
    "drain": [["drain", HOSTILE[:5]], ["drain", "x"]],
    "doctor": [["doctor"], ["doctor", "--json"]],
    "permissions": [["permissions", *more] for more in ([], ["--json"], ["@last"])],
    "approve": [["approve", "@last", each] for each in ("--always", "--tool", "--server")],
    "deny": [["deny", "@last", "--reason", HOSTILE]],
    "webhooks": [["webhooks"], ["webhooks", "--json"], ["webhooks", "redeliver", ID]],
    "schedules": [
        ["schedules", "list"],
        ["schedules", "list", "--json"],
        *(["schedules", each, HOSTILE] for each in ("run", "pause", "resume")),
    ],
    "env": [["env", "list"], ["env", "list", "--json"]],
    "cost": [["cost"], ["cost", "--by", "label"], ["cost", "--by", "model", "--json"], ["cost", "--by", HOSTILE]],
}
"""Commands that ask once. A new command or a new output of one is a line here or below."""
FOLLOWING = {
    "run": [["run", HOSTILE, "--tools", ACTING], *(["run", "x", each] for each in ("--json", "--detach", "--stream"))],
    "eval": [
        ["eval", "<file>", "--runs", "1"],
        ["eval", "<file>", "--runs", "1", "--json"],
        ["eval", "<file>", "--stream"],
    ],
    "batch": [["batch", "<file>"], ["batch", "<file>", "--json"], ["batch", "<file>", "--stream"]],
    "watch": [["watch", ID], ["watch", ID, "--json"], ["watch", ID, "--stream"]],
    "resume": [["resume", ID], ["resume", ID, "--json"]],
    "continue": [["continue", ENDED, HOSTILE], ["continue", ENDED, "x", "--json"]],
    "retry": [["retry", ENDED], ["retry", ENDED, "--json"]],
    "deliver": [["deliver", ENDED], ["deliver", ENDED, "--json"]],
    "merge": [["merge", ENDED, "--check"], ["merge", ENDED, "--json"]],
    "demo": [["demo"]],
}
SERVERS = {"up", "serve", "worker", "mcp", "token", "settings", "models", "stop", "open", "keys"}
LOOKING = {"policy", "prove", "logs"}
"""Commands that print what lies in files (``test_policy.py`` and ``test_operate.py`` try them)."""
"""They print addresses and settings of their own; what others say goes to their log (tests/shared/test_log.py)."""


@pytest.fixture
async def id(service: FakeService) -> str:
    """A delegation whose every text is hostile."""
    service.fleet = [worker_card(name=HOSTILE, model=HOSTILE, sandbox=HOSTILE, tools=[HOSTILE])]
    request = DelegationRequest(task=ACTING, session_id=ACTING, labels={HOSTILE: HOSTILE}, context=HOSTILE)
    id = (await service.create(request)).delegation.id
    service.runs[id] = service.runs[id].model_copy(update={"worker": HOSTILE, "pending_permissions": [HOSTILE]})
    happen(service, id)
    tried: dict[str, Any] = {"id": f"{id}-2", "delegation_id": id, "type": "delegation.finished"}
    service.planned[HOSTILE] = Schedule(name=HOSTILE, cron=HOSTILE, zone=HOSTILE, paused=HOSTILE, error=HOSTILE)
    sizes: dict[str, Any] = {"bytes": 1, "seconds": 1.0, "prepared_at": now(), "used_at": now()}
    service.prepared = [PreparedEnvironment(environment=HOSTILE, key=HOSTILE, workers=[HOSTILE], **sizes)]
    service.notified[id] = [Notification(**tried, url=HOSTILE, error=HOSTILE)]
    asked: dict[str, Any] = {"token": HOSTILE, "client": HOSTILE, "method": "POST", "route": HOSTILE, "tool": HOSTILE}
    asked["reason"] = HOSTILE
    for ids in ([id], []):
        await service.record(AuditRecord(**asked, at=now(), delegation_ids=ids, status=202, request_id=HOSTILE))
    return id


def step(status: StepStatus) -> Step:
    said = dict.fromkeys(("title", "tool_name", "error", "description", "result", "thinking", "summary"), HOSTILE)
    arguments = {HOSTILE: HOSTILE}
    return Step(id="s", type="read", status=status, arguments=arguments, turn_index=1, timestamp=now(), **said)


def happen(service: FakeService, id: str) -> None:
    failed = step(StepStatus.FAILED)
    for event in (
        RunStarted(worker=HOSTILE, model=f"scripted{HOSTILE}", tools=[], limits=service.runs[id].effective_limits),
        RunResumed(worker=HOSTILE, from_turn=1, reason=HOSTILE),
        RunRetried(reason=TerminationReason.ERROR, error=HOSTILE, retry=1, of=1, delay_seconds=1),
        TextDelta(turn=1, text=f"{ACTING}\n{HOSTILE}"),
        Replied(turn=1, text=f"{ACTING}\n{HOSTILE}!", stop_reason=HOSTILE, usage=Usage(), cache_miss=HOSTILE),
        StepStarted(step=step(StepStatus.RUNNING)),
        StepUpdated(step_id="s", metadata={"output": f"{HOSTILE}\n{ACTING}"}),
        question(HOSTILE, failed),
        PermissionAnswered(permission_id=HOSTILE, outcome=HOSTILE),
        StepCompleted(step=failed),
        ModelRetried(turn=1, error=HOSTILE, delay_seconds=1),
        ProgressMade(message=HOSTILE),
        ErrorSeen(message=HOSTILE, kind=HOSTILE),
    ):
        service.happen(id, event)
    service.ask(id, question(HOSTILE, failed, id))
    service.patches[id] = f"diff --git a/x b/x\n+{ACTING}\n"
    service.made[id, NAME] = [ACTING]


def finish(service: FakeService, id: str) -> None:
    changed = {"path": HOSTILE, "change": "renamed", "from": HOSTILE}
    made = [{"name": HOSTILE, "version": 1, "size": 1}]
    git = {"base": HOSTILE, "pullRequestUrl": HOSTILE}
    said = {"summary": ACTING, "errors": [HOSTILE], "file_changes": [changed], "artifacts": made, "git": git}
    service.finish(id, TerminationReason.ERROR, **said)


class HostileTools(FakeService):
    async def tools(self) -> list[ToolCard]:
        return [ToolCard(name=HOSTILE, description=HOSTILE, kind=HOSTILE, effect="pure", parameters={})]


@pytest.fixture
def service() -> FakeService:
    return HostileTools()


def end(service: FakeService, id: str) -> None:
    happen(service, id)
    finish(service, id)


def test_every_command_is_tried() -> None:
    assert {*READING, *FOLLOWING} | SERVERS | LOOKING == set(COMMANDS)


def test_every_switch_that_changes_what_is_printed_is_tried() -> None:
    for name, tried in (READING | FOLLOWING).items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        switches = {each.opts[0] for each in command.params if isinstance(each, click.Option) and each.is_flag}
        # --patch has tests of its own below.
        unprinted = {
            "--all",
            "--resume",
            "--patch",
            "--help",
            "--with-ignored",
            "--with-protected",
            "--workflows",
            "--apply",
            "--no-workspace",
            "--for-review",
            "--fail-on-denied",
        }
        assert switches - unprinted <= {part for arguments in tried for part in arguments}, name


@pytest.mark.parametrize(
    ("arguments", "finished"),
    sampled(
        {
            f"{'finished' if finished else 'unfinished'}-{each}": (each, finished)
            for name, tried in READING.items()
            for each in tried
            for finished in ([True] if name == "doctor" else [True, False])  # it shows no run
        },
        3,
    ),
)
async def test_a_command_that_asks_prints_nothing_that_acts(
    url: str, service: FakeService, id: str, arguments: list[str], finished: bool, tmp_path: Path
) -> None:
    if finished:
        finish(service, id)
    given = [id if part == ID else part for part in arguments]
    variables = {"DEPUTIZE_URL": url, "DEPUTIZE_HOME": str(tmp_path), "DEPUTIZE_MODEL": HOSTILE}
    done = await asyncio.to_thread(CliRunner(env=variables).invoke, cli, given)
    assert done.output
    assert_harmless(done.output)
    if "--json" in given:
        assert all(json.loads(line) for line in done.stdout.splitlines())


async def carried_out(url: str, service: FakeService, arguments: list[str], **more: Any) -> Done:
    async with finished_by_itself(service, end), started(*arguments, DEPUTIZE_URL=url, **more) as command:
        return await command.done()


@pytest.mark.parametrize("arguments", sampled({repr(each): each for tried in FOLLOWING.values() for each in tried}, 3))
async def test_a_command_that_follows_prints_nothing_that_acts(
    url: str, service: FakeService, id: str, arguments: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "tasks\x1b[31m.jsonl"
    file.write_text(json.dumps({"task": ACTING}) + "\n" + json.dumps({"task": "two"}))
    given = [{ID: id, ENDED: id, "<file>": str(file)}.get(part, part) for part in arguments]
    if ENDED in arguments:
        finish(service, id)
    if arguments == ["demo"]:  # which ends at once where no worker has a sandbox
        service.fleet.append(worker_card())
    done = await carried_out(url, service, given)
    assert done.out
    assert_harmless(done.out)
    assert_harmless(done.err)


@pytest.mark.parametrize("command", [["list"], ["run", "x", "--detach"], ["show", "dlg_" + "0" * 26], ["prune"]])
async def test_a_refusal_of_the_service_prints_nothing_that_acts(
    url: str, service: FakeService, command: list[str]
) -> None:
    service.away = Invalid(HOSTILE, [{"pointer": HOSTILE, "detail": HOSTILE}] * 2)
    done = await asyncio.to_thread(CliRunner(env={"DEPUTIZE_URL": url}).invoke, cli, command)
    assert done.exit_code == 2
    assert "a\\x1b]0;PWNED" in done.stderr
    assert_harmless(done.output)


@pytest.mark.parametrize(
    "arguments",
    [
        [HOSTILE],
        [f"--{HOSTILE}"],
        ["run", f"--{HOSTILE}"],
        ["run", "x", "--approval", HOSTILE],
        ["run", "x", "--context", f"@{HOSTILE}"],
        ["run", "x", "--max-turns", HOSTILE],
        ["run", "x", "--workspace", HOSTILE, "--timeout", "nan"],
        ["batch", HOSTILE],
        ["list", HOSTILE],
        ["--config", HOSTILE, "list"],
    ],
    ids=repr,
)
def test_wrong_use_prints_nothing_that_acts(arguments: list[str]) -> None:
    done = CliRunner(env={"DEPUTIZE_URL": "http://127.0.0.1:1"}).invoke(cli, arguments)
    assert done.exit_code in (2, 3)
    assert done.stderr
    assert_harmless(done.output)


@pytest.mark.parametrize(
    "tried", ["list URL", "list PORT", "list HOME", "list REDIS_URL", "doctor PORT", "doctor URL HOME REDIS_URL"]
)
def test_a_hostile_setting_prints_nothing_that_acts(tried: str, tmp_path: Path) -> None:
    command, *settings = tried.split()
    names = [f"DEPUTIZE_{name}" for name in settings]
    variables = {"DEPUTIZE_HOME": str(tmp_path), **dict.fromkeys(names, str(tmp_path / HOSTILE))}
    done = CliRunner(env=variables).invoke(cli, [command])
    assert_harmless(done.output)


async def test_a_patch_and_an_artifact_are_exact_for_programs(url: str, service: FakeService, id: str) -> None:
    for more, whole in ((["--patch"], service.patches[id]), (["--artifact", NAME], ACTING)):
        async with started("show", id, *more, DEPUTIZE_URL=url) as command:
            assert (await command.done()).out == whole


@pytest.mark.parametrize("more", [["--patch"], ["--artifact", NAME], ["--events"], []], ids=repr)
async def test_a_terminal_shows_nothing_that_acts(url: str, service: FakeService, id: str, more: list[str]) -> None:
    finish(service, id)
    async with on_terminal("show", id, *more, DEPUTIZE_URL=url) as terminal:
        assert await terminal.ended() == 0
    assert "a\\x1b]0;PWNED" in terminal.drawn
    colours = re.compile(r"\x1b\[(0|1|3\d)m")  # those of a patch are ours
    assert_harmless(colours.sub("", terminal.drawn.replace("\r\n", "\n")))


@pytest.mark.parametrize(
    "arguments", [["run", HOSTILE], ["watch", ID, "--stream"], ["batch", "<file>"], ["demo"]], ids=repr
)
async def test_the_table_on_a_terminal_shows_nothing_that_acts(
    url: str, service: FakeService, id: str, arguments: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"task": ACTING}))
    given = [{ID: id, "<file>": str(file)}.get(part, part) for part in arguments]
    if arguments == ["demo"]:
        service.fleet.append(worker_card())
    async with finished_by_itself(service, end), on_terminal(*given, DEPUTIZE_URL=url) as terminal:
        await terminal.ended()
    assert "\\x1b]0;PWNED" in terminal.drawn
    ours = re.compile(r"\x1b\[[0-9;?]*[mAJKlh]|\r")  # colours and moves of the cursor
    assert_harmless(ours.sub("", terminal.drawn.replace("\x1b[2J", "<cleared>")))
    assert "<cleared>" not in terminal.drawn


ASKS = """
import asyncio, click
from deputize.orchestrator.cli import output
async def main():
    output.confirm("Go on?")
try:
    asyncio.run(main())
except click.Abort:
    print("aborted")
"""


async def test_the_first_ctrl_c_ends_a_question_also_in_an_event_loop() -> None:
    ours, theirs = os.openpty()
    asking = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ASKS, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    with closing_fd(ours):
        while b"[y/N]: " not in said:
            said += await asyncio.to_thread(os.read, ours, 1000)
        await until_it_waits(asking.pid)
        asking.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(asking.wait(), 30) == 0
        assert b"aborted" in os.read(ours, 1000)
