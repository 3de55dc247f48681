"""A sandbox with a mount that can be written and should not be is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.shared.errors import ErrorType, ToolError
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.environment import BindMount
from deputize.worker.sandbox.namespaces import writable_mount_refusal
from deputize.worker.sandbox.project_tools import ProjectTools
from tests.waiting import until
from tests.worker.sandbox.sandboxes import bash, sandbox_over, unheard


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
