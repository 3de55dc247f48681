"""A folder of another author runs nothing on the host, whichever command is used in it or on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.cli import COMMANDS
from deputize.shared.request import DelegationRequest
from tests.hostile.planted import Planted, plant
from tests.orchestrator.cli.asked import FIRST, asked
from tests.orchestrator.cli.following import finished_by_itself
from tests.orchestrator.command_line import deputize, started
from tests.orchestrator.fake_service import FakeService, worker_card
from tests.sampling import sampled
from tests.waiting import until
from tests.worker.workspace.trees import directory

CALL = 'bash {"command": "git status"}'
ASKED: dict[str, list[list[str]]] = {
    "run": [["run", "x", "--detach", "-w", place] for place in (".", "bare")],
    "batch": [["batch", "tasks.txt", "-w", place] for place in (".", "bare")],
    "apply": [
        ["apply", "ID", *options, *into]
        for options in ([], ["--check"], ["--reverse"], ["--with-ignored"])
        for into in ([], ["--into", "bare"])
    ],
    "eval": [["eval", "tasks.txt", "--runs", "1"]],
    "pull": [["pull", "ID"], ["pull", "ID", "file.txt"]],
    "show": [["show", "ID", *option] for option in ([], ["--patch"], ["--proof"], ["--steps"], ["--events"])],
    "continue": [["continue", "ID", "more"]],
    "retry": [["retry", "ID"]],
    "deliver": [["deliver", "ID"]],
    "merge": [["merge", "ID", *option] for option in (["--check"], ["--into", "bare"])],
    "send": [["send", "ID", "more"]],
    "wrap-up": [["wrap-up", "ID"]],
    "watch": [["watch", "ID"]],
    "resume": [["resume", "ID"]],
    "approve": [["approve", FIRST]],
    "deny": [["deny", FIRST]],
    "cancel": [["cancel", "ID"]],
    "keys": [["keys", "list"]],
    "env": [["env", "list"], ["env", "prepare"], ["env", "prune"]],
    "schedules": [["schedules", "list"]],
    "prove": [["prove", "tasks.txt", "--repository", ".", "--key", "rules.toml"]],
    "policy": [["policy", "explain", CALL], ["policy", "test", "rules.toml"]],
    "doctor": [["doctor"], ["doctor", "--workspace", "."]],
    "prune": [["prune", "--dry-run"]],
    "drain": [["drain", "worker@one"]],
    "mcp": [["mcp"]],
    **{
        name: [[name]]
        for names in (
            "list cost permissions audit tools workers token",
            "settings models webhooks status version open logs stop",
        )
        for name in names.split()
    },
}
STACK = {"up", "demo", "serve", "worker"}
"""Commands that start a stack, or are what one consists of."""
RULES = """
[[example]]
call = 'bash {"command": "git status"}'
expect = "allow"
"""
PATCH = """\
diff --git a/gone.txt b/gone.txt
index {missing}..{other} 100644
--- a/gone.txt
+++ b/gone.txt
@@ -1 +1 @@
-two
+three
"""


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    planted = plant(tmp_path / "project", tmp_path / "outside")
    for place in (planted.folder, planted.bare):
        (place / "gone.txt").write_text("changed here since\n")
    (planted.folder / "tasks.txt").write_text("one\n")
    (planted.folder / "rules.toml").write_text(RULES)
    (planted.folder / "mcp.json").write_text('{"mcpServers": {"planted": {"command": "./git"}}}')
    return planted


def test_every_command_is_asked_over_a_folder_of_another_author() -> None:
    assert ASKED.keys() | STACK == COMMANDS.keys()


@pytest.mark.parametrize("command", sampled({each: each for each in ASKED}, 3))
async def test_no_command_runs_what_a_folder_names(
    command: str, url: str, service: FakeService, planted: Planted, tmp_path: Path
) -> None:
    service.fleet = [worker_card()]
    id = (await service.create(DelegationRequest(task="x", workspace=directory(planted.folder)))).delegation.id
    service.patches[id] = PATCH.format(missing=planted.missing, other="2" * 40)
    service.ask(id, asked(FIRST, id))
    service.finish(id, file_changes=[{"path": "gone.txt", "change": "modified"}])
    for arguments in ASKED[command]:
        given = [id if each == "ID" else each for each in arguments]
        home = str(tmp_path / "home")
        async with finished_by_itself(service):
            done = await deputize(*given, cwd=planted.folder, stdin="", DEPUTIZE_URL=url, DEPUTIZE_HOME=home)
        assert ("Usage: " in done.err, "Traceback" in done.err) == (False, False), done
        assert planted.ran() == [], arguments


@pytest.mark.costly
@pytest.mark.system
async def test_no_stack_runs_what_a_folder_names(planted: Planted, tmp_path: Path) -> None:
    here: dict[str, Any] = {"DEPUTIZE_HOME": str(tmp_path / "home"), "DEPUTIZE_MODEL": "scripted"}
    async with started("up", "--port", "0", cwd=planted.folder, **here) as stack:
        await until(lambda: b"Stop" in stack.out, 60)
        for place in (".", "bare"):
            done = await deputize("run", "Look", "-w", place, "--json", "--apply", cwd=planted.folder, **here)
            assert json.loads(done.out)["toolCallCount"] > 0, done.err
        stack.interrupt()
        await stack.done()
    assert planted.ran() == []
