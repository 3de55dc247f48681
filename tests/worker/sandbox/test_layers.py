"""Layers of prepared directories: what commands see of them, where their changes go, and which links move nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.layers import Layer, make_room
from deputize.worker.sandbox.project_tools import ProjectTools
from deputize.worker.sandbox.protections import give
from tests.worker.sandbox.sandboxes import said, sandbox_over


@pytest.fixture
async def made(tmp_path: Path) -> ProjectTools:
    assert await Bubblewrap.selftest() is None
    (source := tmp_path / "prepared").mkdir()
    (source / "file").write_text("prepared\n")
    (tmp_path / "changes").mkdir()
    for path in (source, source / "file"):
        give(path)
    return ProjectTools(layers=(Layer.of_workspace(0, source, "deep/made"),))


async def test_what_a_command_writes_is_seen_by_the_next_one_and_changes_nothing_below(
    tmp_path: Path, made: ProjectTools
) -> None:
    with sandbox_over(tmp_path / "ws", tools=made, changes=tmp_path / "changes") as sandbox:
        await said(sandbox, "mkdir deep")
        assert await said(sandbox, "echo changed >deep/made/file; cat deep/made/file") == "changed"
        assert await said(sandbox, "cat deep/made/file; rm deep/made/file") == "changed"
        assert await said(sandbox, "ls deep/made") == ""
    assert (tmp_path / "prepared/file").read_text() == "prepared\n"
    assert [*(tmp_path / "ws/deep/made").iterdir()] == []


async def test_without_a_folder_for_changes_it_is_read_only(tmp_path: Path, made: ProjectTools) -> None:
    with sandbox_over(tmp_path / "ws", tools=made) as sandbox:
        await said(sandbox, "mkdir deep")
        assert "Read-only" in await said(sandbox, "cat deep/made/file; echo x >deep/made/file")
        assert await said(sandbox, "cat deep/made/file") == "prepared"


@pytest.mark.parametrize("link", ["deep", "deep/made"])
async def test_over_a_link_of_the_run_nothing_is_mounted(tmp_path: Path, made: ProjectTools, link: str) -> None:
    with sandbox_over(tmp_path / "ws", tools=made, changes=tmp_path / "changes") as sandbox:
        await said(
            sandbox, f"mkdir -p target/made $(dirname {link}); rmdir {link} 2>&-; ln -s /workspace/target {link}"
        )
        assert await said(sandbox, f"ls target target/made; test -L {link} && cat /proc/mounts | grep -c overlay") == (
            "target:\nmade\n\ntarget/made:\n0"
        )


async def test_a_layer_is_seen_whatever_files_are_at_its_path_in_a_folder_of_the_worker(
    tmp_path: Path, made: ProjectTools
) -> None:
    for number, plant in enumerate(
        ("ln -s /etc deep/made", "echo x >deep/made", "mkdir deep/made; echo x >deep/made/file")
    ):
        with sandbox_over(ws := tmp_path / f"ws{number}") as sandbox:
            await said(sandbox, f"mkdir deep; {plant}")
        make_room(made.layers, ws)
        with Bubblewrap(ws, tools=made) as sandbox:
            assert await said(sandbox, "cat deep/made/file") == "prepared"
