"""The files of a delegation over HTTP: what is in its workspace, and nothing of the machine's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from deputize.orchestrator.delegations import open_service
from deputize.orchestrator.workspace_files import WorkspaceFile
from deputize.shared.request import DelegationRequest
from deputize.worker.workspace.workspace import Workspace
from tests.network.plain_http import PLAIN_HTTP
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.serving import served, settings
from tests.worker.workspace.trees import directory


@pytest.fixture
async def work(service: FakeService, tmp_path: Path) -> AsyncIterator[Workspace]:
    """The workspace of the service's only delegation, changed by its run."""
    source = tmp_path / "source"
    (source / "src").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (source / "src/é b.txt").write_text("before\n")
    service.workspaces = tmp_path / "workspaces"
    id = (await service.create(DelegationRequest(task="x", workspace=directory(source)))).delegation.id
    workspace = await Workspace.create(directory(source), id, service.workspaces)
    (workspace.path / "src/é b.txt").write_text("after\n")
    (workspace.path / "run").write_bytes(bytes(range(256)) * 4000)
    (workspace.path / "run").chmod(0o755)
    (workspace.path / "out").symlink_to("/etc/passwd")
    (workspace.path / "etc").symlink_to("/etc")
    os.mkfifo(workspace.path / "pipe")
    (workspace.path / ".deputize").mkdir(exist_ok=True)
    (workspace.path / ".deputize/ours").write_text("ours")
    yield workspace
    workspace.close()


def url_of(service: FakeService) -> str:
    return f"/v1/delegations/{next(iter(service.runs))}/files"


async def test_the_files_are_listed_without_those_of_git_and_ours(
    http: httpx2.AsyncClient, service: FakeService, work: Workspace
) -> None:
    answer = (await http.get(url_of(service))).json()
    listed = [(file["path"], file["kind"], file["size"], file["executable"]) for file in answer["items"]]
    assert listed == [
        ("etc", "link", 4, False),
        ("out", "link", 11, False),
        ("run", "file", 1_024_000, True),
        ("src/é b.txt", "file", 6, False),
    ]
    assert answer["truncated"] is False
    start = (await http.get(url_of(service), params={"base": True})).json()
    assert [file["path"] for file in start["items"]] == ["src/é b.txt"]


async def test_a_file_comes_byte_for_byte_as_it_is_or_was(
    http: httpx2.AsyncClient, service: FakeService, work: Workspace
) -> None:
    answer = await http.get(f"{url_of(service)}/run")
    assert answer.content == bytes(range(256)) * 4000
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == (
        "application/octet-stream",
        "nosniff",
    )
    assert (await http.get(f"{url_of(service)}/src/é b.txt")).text == "after\n"
    assert (await http.get(f"{url_of(service)}/src/é b.txt", params={"base": True})).text == "before\n"


ODD = [
    b"caf\xe9.txt",
    b"line\nend.txt",
    b"d\xff\n/x\n",
    b"\xef\xbf\xbd",
    b"back\\xe9.txt",
    b"100%41 ?#;x",
    b"\xed\xb3\xa9",
]


async def test_every_name_that_is_listed_can_be_read(
    http: httpx2.AsyncClient, service: FakeService, work: Workspace
) -> None:
    for number, name in enumerate(ODD):
        path = work.path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    listed = [WorkspaceFile.model_validate(file) for file in (await http.get(url_of(service))).json()["items"]]
    names = {os.fsencode(file.name): file for file in listed}
    assert {*ODD} <= names.keys()
    for number, name in enumerate(ODD):
        answer = await http.get(f"{url_of(service)}/{names[name].raw_path or quote(names[name].path)}")
        assert (answer.status_code, answer.text) == (200, str(number))
    missing = await http.get(f"{url_of(service)}/caf%E8.txt")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("out", 409),  # a link to a file outside
        ("etc/passwd", 409),  # through a link
        ("pipe", 409),
        ("src", 409),
        ("none", 404),
        ("src%2f..%2frun", 404),
        ("..%2f..%2f..%2fetc%2fpasswd", 404),
        ("%2fetc%2fpasswd", 404),
        (".git/HEAD", 404),
        (".deputize/ours", 404),
        ("run%00", 404),
        ("%ff%2f..%2f..%2fetc%2fpasswd", 404),
        ("%ff%00", 404),
    ],
)
async def test_nothing_else_is_read(
    http: httpx2.AsyncClient, service: FakeService, work: Workspace, path: str, status: int
) -> None:
    answer = await http.get(f"{url_of(service)}/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_files_out_of_reach_are_a_conflict_that_names_their_place(
    real: httpx2.AsyncClient, redis_url: str, tmp_path: Path
) -> None:
    using = settings(redis_url=redis_url, home=tmp_path)
    async with (
        served(lambda: open_service(using, redis_url), using) as url,
        httpx2.AsyncClient(verify=PLAIN_HTTP, base_url=url, timeout=10) as http,
    ):
        id = (await http.post("/v1/delegations", json={"task": "x"})).json()["id"]
        for path in ("", "/a.txt"):
            answer = await http.get(f"/v1/delegations/{id}/files{path}")
            assert (answer.status_code, "DEPUTIZE_WORKSPACE_ROOT" in answer.json()["detail"]) == (409, True)
        workspace = await Workspace.create(directory(tmp_path), id, tmp_path / "workspaces")
        workspace.close()
        assert (await http.get(f"/v1/delegations/{id}/files")).status_code == 200
        assert (await http.get("/v1/delegations/dlg_none/files")).status_code == 404
