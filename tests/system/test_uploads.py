"""Uploaded archives with real processes: a worker that is killed while it extracts, and a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runs.bench import call, say, script
from tests.runs.fleet import Fleet
from tests.waiting import until
from tests.worker.workspace.archives import tar

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


async def content(archive: bytes) -> AsyncIterator[bytes]:
    yield archive


@pytest.mark.costly
async def test_the_next_worker_begins_anew_when_one_is_killed_while_it_extracts(fleet: Fleet, tmp_path: Path) -> None:
    contents = {f"top/{number:04}": os.urandom(20_000) * 50 for number in range(250)}
    await fleet.start("1")
    archive = tar(*contents.items(), mode="w:gz", compresslevel=1)
    upload = (await fleet.service.upload(content(archive))).upload.upload
    model = script(tmp_path, [call("bash", command="ls top | wc -l; echo more >> top/0007")], [say("done")])
    id = await fleet.hand_over(model=model, workspace={"kind": "archive", "upload": upload})
    root = fleet.settings.workspaces
    await until(lambda: len([*root.glob(f"{id}.*/files/top/*")]) > 3, 60)
    fleet.signal("1", signal.SIGSTOP)
    half = [*root.glob(f"{id}.*/files/top/*")]
    assert 3 < len(half) < len(contents)
    assert not (root / id).exists()
    await fleet.kill("1")
    await fleet.start("2")
    result = await fleet.result(id)
    assert (result.termination_reason, result.files_modified) == ("completed", ["top/0007"])
    assert result.attempts == 2
    found = {f"top/{path.name}": path.read_bytes() for path in (root / id / "base/top").iterdir()}
    assert found == contents


FULL = """
import asyncio, json, sys
from pathlib import Path
from deputize.orchestrator.uploads import receive
from deputize.shared.errors import OutOfSpace
from deputize.shared.settings import Settings

async def content(size):
    for _ in range(size >> 16):
        yield bytes(1 << 16)

async def main(root):
    settings = Settings(workspace_root=root)
    try:
        await receive(content(8 << 20), settings)
    except OutOfSpace as error:
        said = str(error)
    small = await receive(content(1 << 20), settings)
    print(json.dumps([said, small.upload.bytes, len([*(root / "uploads").iterdir()])]))

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_on_a_full_disk_an_upload_is_refused_and_takes_no_space(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    mount = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path / "small")]
    command += [sys.executable, "-c", FULL, str(tmp_path / "small")]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    if "unshare" in done.stderr and done.returncode:
        pytest.skip("no user namespaces here")
    said, size, count = json.loads(done.stdout)
    assert f"no space left for an upload at {tmp_path / 'small'}" in said
    assert (size, count) == (1 << 20, 1)
