"""Repositories and archives that were made to cost a worker time and memory: its other runs go on meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.workspaces import UPLOADS
from deputize.worker.workspace.archive_formats import MAX_HEADER_BYTES
from tests.attacks.stage import Stage
from tests.network.git_server import git, make_repository
from tests.runs.bench import call, say
from tests.worker.workspace.archives import store

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]
SECONDS = 60
"""What ordinary work takes at most beside it; alone one or two seconds, on a very busy machine some tens."""
Make = Callable[[Stage, Path], dict[str, Any]]
HONEST = [[call("write_file", path=f"{number}.txt", content="x"), call("bash", command="ls")] for number in range(5)]


def given_to_worker(stage: Stage, folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, stage.folder.stat().st_uid, -1)


def with_headers(text: bytes, count: int) -> Make:
    """An archive of so many files, each with a header of pax that was slow to read once."""

    def make(stage: Stage, _: Path) -> dict[str, Any]:
        header = tarfile.TarInfo("x")
        header.type = tarfile.XHDTYPE
        header.size = MAX_HEADER_BYTES - 4 * tarfile.BLOCKSIZE
        content = (text * header.size)[: header.size]
        files = (tarfile.TarInfo(f"f{number}").tobuf(tarfile.USTAR_FORMAT) for number in range(count))
        archive = b"".join(header.tobuf() + content + file for file in files) + bytes(1024)
        spec = store(stage.settings.workspaces, gzip.compress(archive, 1))
        given_to_worker(stage, stage.settings.workspaces / UPLOADS)
        return spec.model_dump()

    return make


def repository(tree: Callable[[Path], str]) -> Make:
    """A repository whose last commit has that tree."""

    def make(stage: Stage, folder: Path) -> dict[str, Any]:
        source = make_repository(folder / "source", {"app.py": "one\n"})
        git(source, "update-ref", "refs/heads/main", git(source, "commit-tree", tree(source), "-m", "x"))
        given_to_worker(stage, folder)
        return {"kind": "git", "url": f"file://{source}"}

    return make


def nested(depth: int, width: int) -> Callable[[Path], str]:
    """So many levels of folders, each with as many of the next one: some kilobytes."""

    def tree(source: Path) -> str:
        found = f"100644 blob {git(source, 'rev-parse', 'HEAD:app.py')}\tf\n"
        for _ in range(depth):
            made = git(source, "mktree", input=found.encode())
            found = "".join(f"040000 tree {made}\td{number}\n" for number in range(width))
        return git(source, "mktree", input=found.encode())

    return tree


KINDS: dict[str, tuple[Make, str]] = {
    "digits in the headers of an archive": (with_headers(b"1", 20), "completed"),
    "records in the headers of an archive": (with_headers(b"2 ", 20), "completed"),
    "a wide repository": (repository(nested(10, 10)), "refused"),
    "a deep repository": (repository(nested(500, 1)), "refused"),
}
"""And how a run ends that begins with it."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.costly
async def test_other_runs_go_on_beside_a_workspace_made_to_harm(ordinary: Stage, kind: str, tmp_path: Path) -> None:
    folder = ordinary.folder / "files" / f"of-{tmp_path.name}"
    folder.mkdir()
    make, reason = KINDS[kind]
    workspace = await asyncio.to_thread(make, ordinary, folder)
    hostile = asyncio.create_task(ordinary.run([say("begun")], workspace=workspace, wait=120))
    began = time.monotonic()
    found = await ordinary.run(*HONEST)
    assert (taken := time.monotonic() - began) < SECONDS, f"{taken:.0f} s for ordinary work"
    assert (found.result.termination_reason, found.result.attempts) == ("completed", 1), found.result
    harmed = (await hostile).result
    assert (harmed.termination_reason, harmed.attempts) == (reason, 1), harmed
