"""The stack of a machine whose disk is full, whose programs do not stop, or which other users reach, too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.stack_processes import ROOT, User, child, family, gone, ready
from tests.waiting import until_sync

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
FULL_THEN_FREE = """
set -e
mount -t tmpfs -o size=400k,mode=700 tmpfs "$1"
for size in 500 384; do
  rm -rf "$1"/*
  head -c ${size}k /dev/zero > "$1/fill" 2> /dev/null || true
  "$0" -m tests.system.stack_user "$1/home" < /dev/null
done
rm "$1/fill"
mount -o remount,size=100m "$1"
"$0" -m tests.system.stack_user "$1/home" < /dev/null
flock "$1/home/supervisor.lock" true
"""

RUN = (
    "import sys; from deputize.orchestrator.cli import main; sys.argv[1:] = ['run', 'hi', '--no-workspace']; "
    "sys.exit(main())"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="deputize-") as folder:
        yield Path(folder)


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk is root's")
def test_a_full_disk_is_reported_and_forgotten_as_soon_as_there_is_room(folder: Path) -> None:
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", FULL_THEN_FREE, sys.executable, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    nothing_fits, redis_does_not, there_is_room = map(json.loads, ended.stdout.splitlines())
    for said in (nothing_fits, redis_does_not):
        # The supervisor's own reason; on a slow machine the one that waits for it sees the full disk first.
        assert said["error"] in ("Misconfigured", "Unavailable")
        assert f"no space left at {folder}/home" in said["message"]
    assert there_is_room["url"].startswith("http://")
    assert ended.returncode == 0, ended.stderr  # the last supervisor let go of its lock


@pytest.mark.long
def test_a_supervisor_whose_redis_does_not_stop_stops_all_the_same(folder: Path) -> None:
    user = User(folder / "home", "workers=0")
    supervisor = user.stack["pid"]
    members = family(supervisor)
    os.kill(child(supervisor, "valkey-server"), signal.SIGSTOP)
    os.kill(supervisor, signal.SIGTERM)
    os.kill(supervisor, signal.SIGTERM)
    gone(members, timeout=60)
    user.leave()


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("setpriv"), reason="a promise of Linux")
def test_no_other_process_of_the_same_user_reads_the_environment_of_ours(folder: Path) -> None:
    """Root may read everything, so without its capabilities: then its rights are those of any user."""
    before: tuple[str, ...] = ("env",)  # a forked process shows the environment of its parent
    if os.geteuid() == 0:
        before = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
    user = User(folder / "home", "sandbox=no", before=before, ANTHROPIC_API_KEY="sk-nobody-reads-this")
    supervisor = user.stack["pid"]
    members = family(supervisor)
    ours = [supervisor, child(supervisor, "deputize.orchestrator.serve"), child(supervisor, "-m deputize.worker")]
    paths = [f"/proc/{pid}/environ" for pid in [user.process.pid, *ours]]
    read = subprocess.run([*before, "cat", *paths], capture_output=True)
    assert read.stdout.count(b"sk-nobody-reads-this") == 1  # of a process that does nothing against it
    assert read.stderr.count(b"Permission denied") == len(ours)
    if os.geteuid() == 0:
        holders = {pid for pid in members if b"sk-nobody" in Path(f"/proc/{pid}/environ").read_bytes()}
        assert holders == {pid for pid, command in members.items() if "-m deputize.worker" in command}
    user.leave()
    gone(members, timeout=20)


@pytest.mark.costly
def test_a_stack_that_is_only_read_gets_a_worker_when_there_is_work(folder: Path) -> None:
    reader = User(folder / "home", "workers=0")
    supervisor = reader.stack["pid"]
    assert reader.stack["workers"] == 0
    assert not child(supervisor, "-m deputize.worker")
    worker = User(folder / "home")
    assert worker.stack["pid"] == supervisor
    assert worker.stack["workers"] == 1
    members = family(supervisor)
    until_sync(lambda: ready(worker.stack), 45)
    reader.leave()
    worker.leave()
    gone(members, timeout=20)


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk is root's")
def test_a_disk_that_fills_up_while_a_command_waits_is_reported_at_once(folder: Path) -> None:
    """Another program fills it: what the command itself writes too much of, its worker removes."""
    waits = {"call": "bash", "arguments": {"command": "touch begun; sleep 1000"}}
    model = folder.with_suffix(".json")
    model.write_text(json.dumps({"rules": [{"turns": [[{"call": "glob", "arguments": {"pattern": "*"}}], [waits]]}]}))
    script = (
        'mount -t tmpfs -o size=400k,mode=700 tmpfs "$1"; "$0" -c "$2"; echo $?; flock "$1/home/supervisor.lock" true'
    )
    variables = {
        "DEPUTIZE_HOME": f"{folder}/home",
        "DEPUTIZE_MODEL": f"scripted:{model}",
        "DEPUTIZE_SHUTDOWN_SECONDS": "1",
    }
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, str(folder), RUN],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout
        disk = Path(f"/proc/{running.pid}/root{folder}")
        until_sync(lambda: [*disk.glob("home/workspaces/*/files/begun")], 60)
        with suppress(OSError), (disk / "full").open("wb", buffering=0) as full:
            while full.write(bytes(4096)):
                pass
        begun = time.monotonic()
        lines = [(line, time.monotonic()) for line in running.stdout]
    model.unlink()
    (said, end), (code, _) = lines[-2:]
    assert (f"no space left at {folder}/home" in said, code) == (True, "3\n")
    assert end - begun < 10
