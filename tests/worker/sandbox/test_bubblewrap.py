"""What a command cannot see or do, and what it still can."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.shared.settings import SandboxSettings
from deputize.worker.linux.tree import children
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import OFFLINE, VARIABLES, BindMount
from deputize.worker.sandbox.namespaces import writable_mount_refusal
from deputize.worker.sandbox.options import isolation_options, reading_options
from deputize.worker.sandbox.project_tools import ProjectTools
from tests.waiting import until
from tests.worker.sandbox.sandboxes import bash, said, sandbox_over, unheard


@pytest.mark.parametrize("what", ["mem", "maps", "environ", "fd/0"])
async def test_no_command_reads_or_changes_the_guard_that_reports_it(sandbox: Bubblewrap, what: str) -> None:
    """Its memory holds the word by which we know its report."""
    for redirection in ("<", ">>"):
        assert "Permission denied" in await said(sandbox, f": {redirection}/proc/2/{what}; exit 0")


@pytest.mark.requirement("P-17")
async def test_variables_given_on_purpose_arrive_unchanged(sandbox: Bubblewrap) -> None:
    value = "a b'\"$HOME\n=é"
    done = await sandbox.run(bash('printf %s "$GIVEN"', env={"GIVEN": value}))
    assert done.stdout.decode() == value


@pytest.mark.requirement("P-17")
async def test_a_command_and_what_starts_it_have_no_variable_of_the_worker(
    sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    monkeypatch.setenv("LANG", "canary")
    heard: list[bytes] = []
    process = await sandbox.start(
        bash("cat /proc/[0-9]*/environ 2>/dev/null; env; echo up; sleep 1000"), heard.append, unheard
    )
    await until(lambda: heard and heard[-1].endswith(b"up\n"))
    outside = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (process.pid, *children(process.pid))]
    assert (len(outside), set(outside)) == (2, {b""})
    assert b"canary" not in b"".join(heard)
    names = {line.partition("=")[0] for line in b"".join(heard).decode().rpartition("\0")[2].splitlines()}
    assert names == {"PATH", "PWD", "SHLVL", "_", "up", *VARIABLES, *OFFLINE}
    await process.end()


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


def project(folder: Path, *mounts: BindMount) -> ProjectTools:
    """The tools of a project that has packages of its own; its path has blanks in it, as the kernel's list has not."""
    source = folder / "a project" / "node_modules"
    source.mkdir(parents=True)
    shown = BindMount("project-node_modules", source, str(source))
    return ProjectTools(mounts=mounts, alias=str(source.parent), dependencies={"node_modules": shown})


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_mounts_of_a_project_are_those_that_were_asked_for(
    read_only: bool, place: Path, tmp_path: Path
) -> None:
    made_for_it = BindMount("setup", tmp_path, "/opt/setup", writable=True)
    with sandbox_over(place, tools=project(tmp_path, made_for_it), read_only=read_only) as sandbox:
        done = await sandbox.run(bash("touch node_modules/x || touch '" + str(tmp_path) + "/a project/node_modules/x'"))
    assert done.stderr.count(b"Read-only file system") == 2


async def test_a_mount_that_covers_another_one_is_noticed_before_anything_runs(place: Path, tmp_path: Path) -> None:
    """As a link to /dev/shm leaves one, exchanged between the two steps in which a mount becomes read-only."""
    covering = BindMount("covering", tmp_path, "/dev/shm", writable=True)
    refused = pytest.raises(ToolError, match=r"could not be set up: /dev/shm is writable and should not be")
    with sandbox_over(place, tools=project(tmp_path, covering)) as sandbox, refused as caught:
        await sandbox.run(bash("touch ran"))
    assert caught.value.type is ErrorType.SANDBOX_UNAVAILABLE
    assert not (place / "ran").exists()


async def test_every_writable_mount_has_to_be_expected(sandbox: Bubblewrap) -> None:
    process = await sandbox.start(bash("exec sleep 1000"), unheard, unheard, interactive=True)
    await until(lambda: process.init_pid)
    assert writable_mount_refusal(process.init_pid, ["/tmp", "/workspace"]) is None
    assert "/workspace is writable" in str(writable_mount_refusal(process.init_pid, ["/tmp"]))
    await process.end()
    assert "cannot be read" in str(writable_mount_refusal(process.init_pid, ["/tmp", "/workspace"]))


def test_the_files_of_a_sandbox_are_read_once_and_an_upgrade_does_not_reach_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fds: list[int] = []
    try:
        isolation_options(SandboxSettings(), fds)
        reading_options(fds)
        monkeypatch.setattr(Path, "read_bytes", None)
        isolation_options(SandboxSettings(), fds)
        reading_options(fds)
    finally:
        for fd in fds:
            os.close(fd)
