"""Whatever a service names, `apply` and `pull` write below their directory, through no link, and not into git's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deputize.orchestrator.workspace_files import FileList, OpenedFile, WorkspaceFile
from deputize.shared.request import DelegationRequest
from deputize.shared.wire import now
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served
from tests.worker.workspace.trees import directory, tree

UNSAFE = ["../outside/x", "a/../../outside/x", "a//x", "./x", ".git/hooks/post-checkout", "a/.GIT/config"]


class HostileService(FakeService):
    """Reports that the workspace of every delegation has one file, of any name, and hands it out under every name."""

    name = ""

    def __init__(self, content: Path) -> None:
        super().__init__()
        self._content = content

    async def files(self, id: str, *, base: bool = False) -> FileList:
        file = WorkspaceFile(path=self.name, kind="file", size=1, executable=True, modified_at=now())
        return FileList(items=[file], truncated=False)

    async def open_file(self, id: str, path: str, *, base: bool = False) -> OpenedFile:
        return OpenedFile(os.open(self._content, os.O_RDONLY), 1)


@pytest.fixture
def hostile(tmp_path: Path) -> HostileService:
    (tmp_path / "content").write_bytes(b"!")
    return HostileService(tmp_path / "content")


@pytest.fixture
async def url(hostile: HostileService) -> AsyncIterator[str]:
    async with served(hostile) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("project/.git/hooks", "project/a/.GIT", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/linked").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/mine").write_text("mine")
    (tmp_path / "project/link").symlink_to(tmp_path / "outside/mine")
    return tmp_path / "project"


async def asked(url: str, hostile: HostileService, folder: Path, name: str, *arguments: str) -> Done:
    request = DelegationRequest(task="x", workspace=directory(folder, ignored=False))
    id = (await hostile.create(request)).delegation.id
    hostile.name = name
    change = {"path": name, "change": "created", "inPatch": False}
    hostile.finish(id, ignored_files=[name], ignored_count=1, file_changes=[change])
    return await deputize(arguments[0], id, *arguments[1:], DEPUTIZE_URL=url, cwd=folder)


WAYS = [
    ("apply", "--with-ignored"),
    ("apply", "--with-ignored", "--reverse"),
    ("pull",),
    ("pull", "--overwrite"),
]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("name", UNSAFE)
async def test_a_name_that_leads_elsewhere_is_refused(
    url: str, hostile: HostileService, folder: Path, name: str, way: tuple[str, ...]
) -> None:
    before = tree(folder.parent), sorted(folder.rglob("*"))
    for into in ((), ("--into", str(folder))):
        done = await asked(url, hostile, folder, name, *way, *into)
        assert (done.code, "not a safe path" in done.err) == (2, True), done
    assert (tree(folder.parent), sorted(folder.rglob("*"))) == before


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("name", ["linked/x", "link", "linked/mine"])
async def test_a_link_in_the_directory_is_not_followed(
    url: str, hostile: HostileService, folder: Path, name: str, way: tuple[str, ...]
) -> None:
    await asked(url, hostile, folder, name, *way)
    assert tree(folder.parent / "outside") == {"mine": ("file", b"mine")}
    assert (folder / "linked").is_symlink()
