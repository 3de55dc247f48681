"""`deputize run --upload`: a directory is sent to a service, and the changes come back to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deputize.orchestrator.orchestrator import Orchestrator
from deputize.shared.errors import Invalid
from deputize.shared.request import ArchiveWorkspace
from deputize.shared.settings import Settings
from deputize.shared.workspaces import UPLOADS
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.shared.patches.patching import patch_of


@pytest.fixture
def service(tmp_path: Path) -> FakeService:
    service = FakeService()
    service.workspaces = tmp_path / "elsewhere"
    return service


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / "b.csv").write_text("1,2\n")
    (folder / "out").symlink_to("/etc/passwd")
    return folder


def kept(service: FakeService) -> dict[str, float]:
    uploads = service.workspaces / UPLOADS
    return {path.name: path.stat().st_ctime_ns for path in uploads.iterdir()} if uploads.exists() else {}


async def test_a_directory_is_sent_once_and_changes_can_be_applied_to_it(
    url: str, service: FakeService, folder: Path
) -> None:
    def work(id: str) -> None:
        service.patches[id] = patch
        service.finish(id, summary="Done.", file_changes=[{"path": "a.txt", "change": "modified", "inPatch": True}])

    patch = patch_of("a.txt", b"one\n", b"two\n")
    arguments = ("Fix it", "--upload", str(folder), "--exclude", "*.csv")
    done = await run(url, service, *arguments, then=work)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert f"note: {folder}/out is not sent: it is a link that leads out" in done.err
    assert "--into DIR" in done.err
    (upload,) = (sent := kept(service))
    (run_of_it,) = service.runs.values()
    assert run_of_it.request.workspace == ArchiveWorkspace(kind="archive", upload=f"sha256:{upload}")
    done = await run(url, service, *arguments, "--apply", then=work)
    assert done.code == 0, done.err
    assert (folder / "a.txt").read_text() == "two\n"
    assert kept(service).keys() == sent.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workspace", "."], "--upload excludes --workspace"),
        (["--no-workspace"], "--upload excludes --workspace"),
        (["--apply", "--detach"], "--apply needs"),
    ],
)
async def test_what_excludes_it_is_a_mistake(url: str, folder: Path, arguments: list[str], said: str) -> None:
    done = await deputize("run", "x", "--upload", str(folder), *arguments, DEPUTIZE_URL=url)
    assert (done.code, said in done.err) == (2, True), done.err


async def test_detached_it_is_sent_too(url: str, service: FakeService, folder: Path) -> None:
    done = await deputize("run", "x", "--upload", str(folder), "--detach", DEPUTIZE_URL=url)
    assert done.code == 0, done.err
    assert len(kept(service)) == len(service.runs) == 1


async def test_from_python_a_directory_or_an_archive_is_sent(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\3\4 and more")
    async with Orchestrator(Settings(url=url)) as orchestrator:
        one = await orchestrator.upload(folder)
        assert await orchestrator.upload(str(folder)) == one
        two = await orchestrator.upload(tmp_path / "x.zip")
        started = await orchestrator.start("x", workspace={"kind": "archive", "upload": two})
        with pytest.raises(Invalid, match="cannot be packed"):
            await orchestrator.upload(tmp_path / "none")
    assert {f"sha256:{name}" for name in kept(service)} == {one, two}
    assert started.request.workspace == ArchiveWorkspace(kind="archive", upload=two)
