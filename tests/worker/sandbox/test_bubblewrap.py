"""What a command cannot see or do, and what it still can."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import OFFLINE, VARIABLES
from tests.worker.sandbox.sandboxes import bash, said

SECRET = "sk-test-of-the-sandbox-0123456789"


@pytest.mark.parametrize("what", ["mem", "maps", "environ", "fd/0"])
async def test_no_command_reads_or_changes_the_guard_that_tells_of_it(sandbox: Bubblewrap, what: str) -> None:
    """Its memory holds the word by which we know its report."""
    for redirection in ("<", ">>"):
        assert "Permission denied" in await said(sandbox, f": {redirection}/proc/2/{what}; exit 0")


@pytest.mark.requirement("P-17")
async def test_no_secret_of_the_workers_environment_is_anywhere_in_sight(
    sandbox: Bubblewrap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    assert (
        await said(
            sandbox, f"env | grep {SECRET}; cat /proc/*/environ /proc/*/cmdline 2>&- | grep -c {SECRET[:-1]}.?\\$"
        )
        == "0"
    )
    assert await said(sandbox, "cat /proc/1/environ | wc -c") == "0"
    names = (await said(sandbox, "env | cut -d= -f1 | sort | xargs")).split()
    assert {*names} == {*VARIABLES, *OFFLINE, "PATH", "PWD", "SHLVL", "_"}


@pytest.mark.requirement("P-17")
async def test_variables_given_on_purpose_arrive_unchanged(sandbox: Bubblewrap) -> None:
    value = "a b'\"$HOME\n=é"
    done = await sandbox.run(bash('printf %s "$GIVEN"', env={"GIVEN": value}))
    assert done.stdout.decode() == value


@pytest.mark.requirement("S002-073")
async def test_paths_beyond_the_workspace_are_refused_without_a_question(sandbox: Bubblewrap, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("not for commands")
    tries = f"cat {tmp_path}/beside; cat /workspace/../{tmp_path}/beside; ln -s {tmp_path}/beside l; cat l"
    assert "not for commands" not in await said(sandbox, f"{tries}; echo x >>{tmp_path}/beside; exit 0")
    assert (tmp_path / "beside").read_text() == "not for commands"


@pytest.mark.parametrize(
    "script",
    [
        "python3 -c 'import threading, multiprocessing; multiprocessing.Pool(2).map(abs, [1]); print(1)'",
        "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
        "cat <(echo 1)",
        "ps >/dev/null && echo 1",
        "mkfifo p; (echo 1 >p) & cat p",
        "echo 1 >/tmp/f && cat /tmp/f",
        "python3 -c 'from socket import *; s = create_server((\"\", 0)); create_connection(s.getsockname()); print(1)'",
    ],
)
async def test_ordinary_work_goes_on_inside(script: str, sandbox: Bubblewrap) -> None:
    assert await said(sandbox, script) == "1"


async def test_each_limit_holds(sandbox: Bubblewrap, place: Path) -> None:
    limits = await said(sandbox, "ulimit -u; ulimit -v; ulimit -f; ulimit -n; ulimit -c")
    assert limits.split() == ["256", "unlimited", str(1 << 20), "1024", "0"]
    await said(sandbox, "truncate -s 1025M big; true")
    assert not (place / "big").exists() or (place / "big").stat().st_size <= 1 << 30
    forks = "import os, signal\nfor number in range(300):\n  if os.fork() == 0: signal.pause()"
    assert (await said(sandbox, f"python3 -c '{forks}'")).endswith("Resource temporarily unavailable")


async def test_a_fork_bomb_is_bounded_and_ends_with_its_time(sandbox: Bubblewrap) -> None:
    done = await sandbox.run(bash("f() { f | f & }; f; wait; sleep 1000", timeout=0.5))
    assert done.timed_out
    assert await said(sandbox, "echo fine") == "fine"
