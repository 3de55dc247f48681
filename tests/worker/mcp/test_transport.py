"""The program of a server: what the sandbox shows it, and what runs outside of the sandbox on whose decision."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deputize.shared.errors import Misconfigured
from deputize.worker.mcp.transport import needed, program_of
from deputize.worker.sandbox import environment
from deputize.worker.sandbox.bubblewrap import NoSandbox
from tests.processes.leaks import ROOT
from tests.runs.toolbench import Toolbench
from tests.waiting import until, until_sync
from tests.worker.mcp.opening import command_of, opened, started
from tests.worker.mcp.servers import raw


def places(program: str, *asked: Path) -> list[str]:
    found = needed(program, asked)
    assert len({shown.name for shown in found}) == len(found)
    assert all(str(shown.source) == shown.target for shown in found)
    return [shown.target for shown in found]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A directory with a program, and with what no one else is to see."""
    for folder in ("bin", "lib", "secrets"):
        (tmp_path / "opt" / folder).mkdir(parents=True)
    (tmp_path / "opt/bin/server").touch()
    return tmp_path / "opt"


def test_a_virtual_environment_comes_with_the_interpreter_behind_it(prefix: Path, tmp_path: Path) -> None:
    base = tmp_path / "python"
    for folder in ("bin", "lib/python3.11", "etc"):
        (base / folder).mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"version = 3.11\nhome = {base}/bin\n")
    assert places(f"{prefix}/bin/server") == [str(prefix), f"{base}/bin", f"{base}/lib"]


@pytest.mark.parametrize("library", ["python3.11", "node_modules"])
def test_of_a_prefix_programs_and_libraries_are_shown(prefix: Path, library: str) -> None:
    (prefix / "lib" / library).mkdir()
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin", f"{prefix}/lib"]


@pytest.mark.parametrize("part", ["bin", "lib"])
@pytest.mark.parametrize("library", ["python3.11", "node_modules"])
def test_a_link_in_the_place_of_a_part_shows_no_other_directory(prefix: Path, part: str, library: str) -> None:
    """As a checkout may have one to a directory of its user's, where a Node is installed beside much else."""
    theirs = prefix.parent / "theirs"
    (prefix / part).rename(theirs)
    (theirs if part == "lib" else prefix / "lib").joinpath(library).mkdir()
    (prefix / part).symlink_to(theirs)
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin/server"]


def test_an_environment_shows_nothing_of_a_prefix_without_a_python(prefix: Path, tmp_path: Path) -> None:
    for folder in ("theirs/bin", "theirs/lib/node_modules"):
        (tmp_path / folder).mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {tmp_path}/theirs/bin\n")
    assert places(f"{prefix}/bin/server") == [str(prefix)]


def test_of_any_other_directory_only_the_program_is_shown(prefix: Path) -> None:
    assert places(f"{prefix}/bin/server") == [f"{prefix}/bin/server"]


def test_a_link_shows_where_it_leads(prefix: Path, tmp_path: Path) -> None:
    """As tools of uv and pipx lie beside the environment that each has."""
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "home/bin").mkdir(parents=True)
    link = tmp_path / "home/bin/server"
    link.symlink_to("../../opt/bin/server")
    assert places(str(link)) == [str(link), str(prefix)]
    loop = tmp_path / "home/bin/loop"
    loop.symlink_to("loop")
    assert places(str(loop)) == []


@pytest.mark.parametrize("program", ["/usr/bin/env", "/bin/sh", "no-such-program", "/no/such/program", "./here"])
def test_what_is_there_anyway_or_nowhere_needs_nothing(program: str) -> None:
    assert places(program) == []


def test_what_is_asked_for_is_shown_once(prefix: Path) -> None:
    assert places("/bin/sh", prefix, prefix / "secrets", Path("/usr/share")) == [str(prefix)]


@pytest.mark.parametrize("path", ["/proc/self", "/workspace", "/dev", "relative", "/no/such/place"])
def test_what_cannot_be_shown_is_named(path: str) -> None:
    with pytest.raises(Misconfigured, match=f"show names {path}"):
        needed("/bin/sh", [Path(path)])


def test_a_program_is_the_sandboxs_own_where_it_has_one(prefix: Path) -> None:
    assert program_of("/x/y", "") == "/x/y"
    assert program_of("sh", str(prefix / "bin")) == environment.program("sh", ())
    assert program_of("no-such-program", "/nowhere") == "no-such-program"
    (prefix / "bin/server").chmod(0o755)
    assert program_of("server", str(prefix / "bin")) == f"{prefix}/bin/server"


def test_this_very_interpreter_can_be_shown() -> None:
    assert str(Path(sys.prefix)) in places(sys.executable) or sys.prefix == sys.base_prefix


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
