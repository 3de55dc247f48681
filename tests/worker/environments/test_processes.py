"""Environments that several processes prepare at the same time, and one that is killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.orchestrator.command_line import environment
from tests.waiting import until
from tests.worker.sandbox.sandboxes import processes_named

pytestmark = [pytest.mark.system]
PROGRAM = [sys.executable, "-P", "-m", "deputize.worker.environments"]
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The folder in which a set-up waits for a file."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/lock").write_text("one")
    return tmp_path / "gate"


@pytest.fixture
def start(tmp_path: Path, gate: Path) -> Generator[Start]:
    """Starts a process that prepares the environment."""
    setup = f"sleep 98764 & until test -e {gate}/go; do sleep 0.05; done; mkdir made; kill %1"
    table = {"shop": {"setup": setup, "inputs": ["lock"], "show": [str(gate)]}}
    env = environment(DEPUTIZE_HOME=str(tmp_path / "home"), DEPUTIZE_ENVIRONMENTS=json.dumps(table))
    begun: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        argv = [*PROGRAM, "prepare", "shop", str(tmp_path / "project")]
        begun.append(subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def folders(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "home/workspaces/environments").glob("shop-*") if path.is_dir()]


@pytest.mark.costly
async def test_one_process_prepares_and_the_others_wait_for_it(tmp_path: Path, gate: Path, start: Start) -> None:
    processes = [start() for _ in range(3)]
    await until(lambda: folders(tmp_path), 60)
    (gate / "go").touch()
    ended = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert sum("preparing the environment shop" in errors for _, errors in ended) == 1
    assert len({output for output, _ in ended}) == len(folders(tmp_path)) == 1


async def test_a_killed_preparation_leaves_a_half_that_the_next_one_removes(
    tmp_path: Path, gate: Path, start: Start
) -> None:
    first = start()
    await until(lambda: folders(tmp_path) and processes_named("98764"), 60)
    first.kill()
    first.communicate()
    (half,) = folders(tmp_path)
    await until(lambda: processes_named("98764") == [])
    (gate / "go").touch()
    second = start()
    output, errors = second.communicate()
    assert second.returncode == 0, errors
    (whole,) = folders(tmp_path)
    assert whole.name == output.split()[0] == half.name.partition(".")[0]
    assert (whole / "workspace/made").is_dir()
