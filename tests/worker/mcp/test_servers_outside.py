"""Servers outside of the sandbox: on whose decision, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.worker.sandbox.base import NoSandbox
from tests.leaks import ROOT
from tests.toolbench import Toolbench
from tests.waiting import until, until_sync
from tests.worker.mcp.entries import raw
from tests.worker.mcp.opening import opened
from tests.worker.mcp.server_processes import command_of, started

pytestmark = pytest.mark.usefixtures("look_around")  # which processes are ours


async def test_where_commands_cannot_run_no_server_runs_unprotected(bare_desk: Toolbench) -> None:
    async with opened(bare_desk, {"raw": raw()}) as found:
        assert isinstance(bare_desk.sandbox, NoSandbox)
        assert "it would run in the sandbox, and this test has no sandbox" in found.warnings[0]
        assert found.tools == {}


async def test_a_server_outside_the_sandbox_is_the_operators_decision(bare_desk: Toolbench) -> None:
    entry = raw(sandbox=False, env={"KEY": "${SECRET_KEY}"})
    worker = {"PATH": os.environ["PATH"], "SECRET_KEY": "s3cret!", "OTHER_KEY": "other", "HOME": "/nowhere"}
    async with opened(bare_desk, {"raw": entry}, environ=worker) as found:
        assert found.warnings == []
        result = await found.call("mcp__raw__environ")
        assert result.data["cwd"] == str(bare_desk.root)
        environ = json.loads(result.content)
        assert (environ["KEY"], environ["HOME"]) == ("s3cret!", "/nowhere")
        assert "OTHER_KEY" not in environ
        await found.call("mcp__raw__leave_a_child")
        result = await found.call("mcp__raw__die")
        assert "outcome unknown" in (result.error or "")
        assert (await found.call("mcp__raw__echo", text="again")).content == "again"
    assert started() == set()


@pytest.mark.parametrize("dies", [False, True])
async def test_what_a_server_outside_has_detached_ends_with_it(bare_desk: Toolbench, dies: bool) -> None:
    async with opened(bare_desk, {"raw": raw(sandbox=False)}) as found:
        await found.call("mcp__raw__leave_a_child")
        await until(lambda: {b"sleep\x002000\x00", b"sleep\x003000\x00"} <= {command_of(pid) for pid in started()})
        if dies:
            (server,) = [pid for pid in started() if b"raw.py" in command_of(pid)]
            os.kill(server, signal.SIGKILL)
            await until(lambda: started() == set())
    assert started() == set()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"cwd": "no/such"}, "it cannot be started: its working directory: No such file or directory"),
        ({"command": "{root}/no-such-program"}, "it cannot be started: no-such-program: No such file or directory"),
    ],
)
async def test_outside_what_cannot_be_started_is_named_without_our_paths(
    bare_desk: Toolbench, entry: dict[str, str], said: str
) -> None:
    written = {name: text.format(root=bare_desk.root) for name, text in entry.items()}
    async with opened(bare_desk, {"raw": raw(sandbox=False, **written)}) as found:
        assert said in found.warnings[0]
        assert str(bare_desk.root) not in found.warnings[0]


async def test_outside_too_a_server_that_does_not_end_is_killed_with_its_group(bare_desk: Toolbench) -> None:
    script = 'trap "" TERM; sleep 1000 & echo started >&2; wait; sleep 1000'
    entry = {"command": "sh", "args": ["-c", script], "sandbox": False}
    async with opened(bare_desk, {"stubborn": entry}, seconds=1) as found:
        assert "its stderr: started" in found.warnings[0]
    assert [Path(each).name for each in bare_desk.sandbox.reaped] == ["sh"]
    await until(lambda: started() == set())


@pytest.mark.usefixtures("desk")
def test_no_server_outlives_a_killed_worker(tmp_path: Path) -> None:
    """Neither inside of the sandbox nor outside, nor what they have started and detached."""
    command = [sys.executable, "-m", "tests.worker.mcp.holding", str(tmp_path / "worker")]
    (tmp_path / "worker").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            assert len([pid for pid in started() if b"raw.py" in command_of(pid)]) >= 2
            until_sync(lambda: [command_of(pid) for pid in started()].count(b"sleep\x002000\x00") == 2)
        finally:
            worker.kill()
    until_sync(lambda: started() == set())
