"""`deputize pull`: what a patch cannot hold reaches the caller, and nothing of the caller's is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deputize.shared.request import DelegationRequest, EmptyWorkspace
from deputize.worker.workspace.workspace import Workspace
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import FakeService
from tests.worker.workspace.trees import directory

LARGE = bytes(range(256)) * 40_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data/old.bin").write_bytes(b"\0" * 9_000_000)
    (folder / "logo.png").write_bytes(b"\0\1\2")
    return folder


async def finished(service: FakeService, folder: Path | None) -> str:
    """A run that changed files of all kinds, with its files within reach of the service."""
    spec = directory(folder) if folder else EmptyWorkspace()
    id = (await service.create(DelegationRequest(task="x", workspace=spec))).delegation.id
    workspace = await Workspace.create(spec, id, service.workspaces)
    (workspace.path / "data").mkdir(exist_ok=True)
    (workspace.path / "data/new.bin").write_bytes(LARGE)
    (workspace.path / "data/new.bin").chmod(0o755)
    (workspace.path / "data/old.bin").write_bytes(LARGE)
    (workspace.path / "small.txt").write_text("small\n")
    (workspace.path / "logo.png").write_bytes(b"\0new")
    facts = await workspace.facts()
    workspace.close()
    service.patches[id] = facts.patch
    service.finish(id, file_changes=list(facts.changes))
    return id


async def pull(url: str, *arguments: str, cwd: Path | None = None) -> Done:
    if cwd is None:
        return await deputize("pull", *arguments, DEPUTIZE_URL=url)
    return await deputize("pull", *arguments, DEPUTIZE_URL=url, cwd=cwd)


async def test_what_the_patch_lacks_is_fetched(url: str, service: FakeService, folder: Path, tmp_path: Path) -> None:
    service.workspaces = tmp_path / "workspaces"
    id = await finished(service, folder)
    applied = await deputize("apply", id, DEPUTIZE_URL=url)
    assert "  not in the patch: data/new.bin, data/old.bin; to fetch: " in applied.err
    done = await pull(url, id, cwd=folder)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"2 files fetched into {folder}",
        "  data/new.bin, 10 MB",
        "  data/old.bin, 10 MB",
    ]
    assert (folder / "data/new.bin").read_bytes() == (folder / "data/old.bin").read_bytes() == LARGE
    assert (folder / "data/new.bin").stat().st_mode & 0o111
    assert not [*folder.glob(".deputize*")]
    # With the files in reach a binary change can be taken back, too.
    back = await deputize("apply", id, "--reverse", DEPUTIZE_URL=url)
    assert (back.code, "to fetch" in back.err) == (0, False)
    assert (folder / "logo.png").read_bytes() == b"\0\1\2"
    (folder / "small.txt").write_text("another\n")
    refused = await deputize("apply", id, DEPUTIZE_URL=url)
    assert (refused.code, "small.txt: " in refused.err, "to fetch" in refused.err) == (1, True, False)


async def test_files_that_were_changed_here_are_kept(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    service.workspaces = tmp_path / "workspaces"
    id = await finished(service, folder)
    (folder / "data/old.bin").write_bytes(b"mine")
    done = await pull(url, id, cwd=folder)
    assert (done.code, done.out) == (1, "")
    assert "  data/old.bin: it has another content here; --overwrite replaces it" in done.err.splitlines()
    assert not (folder / "data/new.bin").exists()
    report = json.loads((await pull(url, id, "--overwrite", "--json", cwd=folder)).out)
    assert report["fetched"] == ["data/new.bin", "data/old.bin"]
    assert (folder / "data/old.bin").read_bytes() == LARGE


async def test_files_go_to_the_current_directory_and_not_to_the_one_that_was_copied(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    service.workspaces = tmp_path / "workspaces"
    id = await finished(service, folder)
    here = tmp_path / "here"
    here.mkdir()
    done = await pull(url, id, cwd=here)
    assert (done.code, done.out.splitlines()[0]) == (0, f"2 files fetched into {here}")
    assert (here / "data/new.bin").read_bytes() == LARGE
    assert not (folder / "data/new.bin").exists()


async def test_of_an_empty_workspace_everything_comes_here_and_paths_choose(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    service.workspaces = tmp_path / "workspaces"
    id = await finished(service, None)
    here = tmp_path / "here"
    here.mkdir()
    assert (await pull(url, id, cwd=here)).code == 0
    names = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    assert names == {"data/new.bin", "data/old.bin", "logo.png", "small.txt"}
    chosen = await pull(url, "@last", "data/", "*.txt", "--into", str(tmp_path / "more"))
    assert chosen.out.splitlines()[0] == f"3 files fetched into {tmp_path / 'more'}"
    missing = await pull(url, id, "smal.txt")
    assert (missing.code, "did you mean small.txt?" in missing.err) == (2, True)


async def test_names_that_are_not_utf_8_or_hold_line_ends_are_fetched_as_they_are(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    service.workspaces = tmp_path / "workspaces"
    id = (await service.create(DelegationRequest(task="x", workspace=EmptyWorkspace()))).delegation.id
    workspace = await Workspace.create(EmptyWorkspace(), id, service.workspaces)
    odd = {b"caf\xe9.txt", b"line\nend.txt", b"d\xff/x", b"back\\xe9.txt", b"plain.txt"}
    (workspace.path / os.fsdecode(b"d\xff")).mkdir()
    for name in odd:
        (workspace.path / os.fsdecode(name)).write_bytes(name)
    facts = await workspace.facts()
    workspace.close()
    service.finish(id, file_changes=list(facts.changes))
    for number, chosen in enumerate([(), (".",), ("caf\\xe9.txt", "d\\xff", "*l*.txt")]):
        here = tmp_path / str(number)
        done = await pull(url, id, *chosen, "--into", str(here))
        assert (done.code, done.err) == (0, "")
        fetched = {os.fsencode(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()}
        assert fetched == {name: name for name in odd if name in fetched}
        assert {*fetched} == odd - ({b"back\\xe9.txt"} if number == 2 else set())
        assert "  line\\nend.txt, 12 bytes" in done.out.splitlines()


async def test_a_redis_out_of_reach_is_reported(url: str, service: FakeService, tmp_path: Path) -> None:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    done = await pull(url, id)
    assert (done.code, "DEPUTIZE_WORKSPACE_ROOT" in done.err) == (2, True)
