"""The set-up command of a project: run once for the same inputs, its result read-only in later runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deputize.shared.errors import Invalid
from deputize.shared.settings import Settings
from deputize.worker.fleet.janitor import Janitor, Presence
from deputize.worker.sandbox.bubblewrap import Bubblewrap
from deputize.worker.sandbox.project_tools import NO_TOOLS, ProjectTools
from deputize.worker.sandbox.setup_command import SetupCache
from tests.runs.bench import open_bench, say, script
from tests.worker.sandbox.sandboxes import said, sandbox_over

HELLO = "mkdir /opt/setup/bin; printf '#!/bin/sh\\necho hello\\n' >/opt/setup/bin/hello; chmod 755 /opt/setup/bin/hello"
ORIGIN = Path("/home/somebody/project")


def cache_of(tmp_path: Path, line: str) -> SetupCache:
    return SetupCache(
        Settings.load(environ={}, home=tmp_path / "home", sandbox={"setup": line, "setup_inputs": "lock"})
    )


async def prepared(cache: SetupCache, folder: Path, *, origin: Path = ORIGIN, build: bool = True) -> ProjectTools:
    return await cache.add_to(NO_TOOLS, folder, origin, build=build)


@pytest.fixture
async def workspace(tmp_path: Path) -> Path:
    assert await Bubblewrap.selftest() is None
    with sandbox_over(tmp_path / "ws"):
        (tmp_path / "ws/lock").write_text("one")
        return tmp_path / "ws"


async def test_its_result_is_found_by_later_commands_and_cannot_be_changed(workspace: Path, tmp_path: Path) -> None:
    tools = await prepared(cache_of(tmp_path, f"{HELLO}; cat /workspace/lock >/opt/setup/seen"), workspace)
    with Bubblewrap(workspace, tools=tools) as sandbox:
        assert await said(sandbox, "hello; cat /opt/setup/seen") == "hello\none"
        assert "Read-only" in await said(sandbox, "touch /opt/setup/x")


async def test_it_runs_once_for_the_same_inputs_of_the_same_project(workspace: Path, tmp_path: Path) -> None:
    cache = cache_of(tmp_path, "date +%N >/opt/setup/when")
    first, second = await asyncio.gather(prepared(cache, workspace), prepared(cache, workspace))
    (workspace / "other").write_text("of no importance")
    assert first == second == await prepared(cache_of(tmp_path, "date +%N >/opt/setup/when"), workspace)
    others = [await prepared(cache, workspace, origin=Path("/home/somebody/else"))]
    (workspace / "lock").write_text("two")
    others.append(await prepared(cache, workspace))
    others.append(await prepared(cache_of(tmp_path, "true"), workspace))
    assert len({tools.mounts[-1].source for tools in (first, *others)}) == 4


async def test_it_cannot_change_the_workspace_and_one_that_an_agent_has_changed_is_not_set_up(
    workspace: Path, tmp_path: Path
) -> None:
    assert await prepared(cache_of(tmp_path, "true"), workspace, build=False) == NO_TOOLS
    with pytest.raises(Invalid, match="Read-only file system"):
        await prepared(cache_of(tmp_path, "touch /workspace/x"), workspace)


async def test_a_command_that_fails_leaves_nothing_and_is_tried_again(workspace: Path, tmp_path: Path) -> None:
    cache = cache_of(tmp_path, "touch /opt/setup/half; echo broken >&2; exit 3")
    for _ in range(2):
        with pytest.raises(Invalid, match=r"ended with exit code 3(.|\n)*broken"):
            await prepared(cache, workspace)
    assert [*(tmp_path / "home/workspaces/setup").iterdir()] == []


async def test_a_run_whose_set_up_fails_is_refused_before_its_model_is_asked(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    async with open_bench(redis_url, tmp_path / "home", sandbox={"setup": "echo no wheel; exit 1"}) as bench:
        workspace = {"kind": "directory", "path": str(tmp_path / "project")}
        result = await bench.run(model=script(tmp_path, [say("done")]), workspace=workspace)
    assert (result.termination_reason, result.turn_count) == ("refused", 0)
    assert "no wheel" in result.summary


async def test_a_script_that_it_runs_is_an_input(workspace: Path, tmp_path: Path) -> None:
    """What a script has made must not be shown any more once the script was cleaned."""
    for line in (
        "bash prepare.sh",
        "cd . && ./prepare.sh",
        "bash '/workspace/prepare.sh' >/opt/setup/log",
        "(. prepare.sh)",
    ):
        made: list[Path] = []
        for content in ("touch /opt/setup/hostile", "touch /opt/setup/clean"):
            (workspace / "prepare.sh").write_text(content)
            (workspace / "prepare.sh").chmod(0o755)
            made.append((await prepared(cache_of(tmp_path, line), workspace)).mounts[-1].source)
        assert [(made[1] / name).exists() for name in ("hostile", "clean")] == [False, True], line


async def test_workers_on_one_volume_share_its_result_and_the_sweep_lets_it_be(
    workspace: Path, redis_url: str, tmp_path: Path
) -> None:
    volume, sandbox = tmp_path / "volume", {"setup": "date +%N >/opt/setup/when", "setup_inputs": "lock"}
    homes = [
        Settings.load(environ={}, home=tmp_path / home, workspace_root=volume, sandbox=sandbox)
        for home in ("one", "two")
    ]
    first, second = [await prepared(SetupCache(settings), workspace) for settings in homes]
    assert first == second
    made = first.mounts[-1].source
    assert made.is_relative_to(volume)
    for path in (made, made.parent):
        os.utime(path, (0, 0))
    async with open_bench(redis_url, tmp_path / "three", workspace_root=volume) as bench:
        presence = Presence(bench.store, bench.bus, "worker-1")
        janitor = Janitor(bench.settings, bench.store, bench.bus, presence, bench.sent.extend)
        await janitor.sweep(0.0)
    assert (made / "when").exists()
