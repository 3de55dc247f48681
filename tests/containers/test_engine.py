"""`make containers` without an engine: what it would run, and that its absence is not a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.__main__ import Faulty, commands, shell
from tests.containers.engine import Unavailable
from tests.processes.ordinary_user import need_ordinary_user
from tests.system.compose import ROOT

OFFLINE = "ERROR: failed to solve: Temporary failure in name resolution"


def test_the_header_of_the_compose_file_prints_the_commands_that_are_run() -> None:
    prepared, up, builds = commands((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert (up, len(builds)) == ("docker compose up --build --scale worker=4", 2)
    assert [line for line in prepared if line.startswith("docker")] == []


@pytest.mark.parametrize("name", ["deputize_token", "anthropic_api_key", "redis_conf", "redis_url", "flower_auth"])
def test_the_commands_before_the_start_make_each_secret(name: str, tmp_path: Path) -> None:
    (tmp_path / "shared").symlink_to(ROOT / "shared")
    prepared, *_ = commands((ROOT / "docker-compose.yml").read_text("utf-8"))
    shell("umask 077\n" + "\n".join(prepared), tmp_path, {**os.environ, "ANTHROPIC_API_KEY": "key"})
    assert (tmp_path / "secrets" / name).read_text().strip() != ""
    assert (tmp_path / "secrets" / name).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("script", "builds", "error"),
    [
        (f"echo '{OFFLINE}' >&2; exit 1", True, Unavailable),
        (f"echo '{OFFLINE}' >&2; exit 1", False, Faulty),
        ("echo 'ERROR: failed to solve: exit code: 1' >&2; exit 1", True, Faulty),
        ("echo 'worker-1 exited: Temporary failure'; exit 1", True, Faulty),
    ],
    ids=["build offline", "a delegation offline", "a build that is wrong", "a worker that is offline"],
)
def test_only_a_build_without_a_network_is_no_fault(
    script: str, builds: bool, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        shell(script, tmp_path, {"PATH": os.environ["PATH"]}, builds=builds)


@pytest.mark.system
def test_without_an_engine_it_ends_well_and_prints_why(tmp_path: Path) -> None:
    need_ordinary_user()
    script = (
        "import sys; from tests.containers import __main__ as it\n"
        "from tests.processes.ordinary_user import become_ordinary; become_ordinary(); sys.exit(it.main())"
    )
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("containers: not tried: no engine answers, and only root on Debian can start one")
