"""The checks of a proof, repeated here: on another base, with another commit, and what asks for a network."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.request import DelegationRequest, DirectoryWorkspace, GitWorkspace
from deputize.shared.settings import Settings
from deputize.worker.proofs.__main__ import repeated
from tests.network.git_server import PATCH, git, make_repository

CALLS = "grep two app.txt && timeout 5 bash -c 'echo > /dev/tcp/127.0.0.1/{port}'"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", {"app.txt": "one\n", "other.txt": "x\n"}, commits=2)


async def repeat(
    source: Path, base: str | None, run: str, sandbox: Mapping[str, Any] = {}, url: str = "", **fields: Any
) -> dict[str, Any]:
    (folder := source.parent / "work").mkdir(exist_ok=True)
    workspace = DirectoryWorkspace(kind="directory", path=str(source))
    workspace = GitWorkspace(kind="git", url=url or str(source), ref=base) if base else workspace
    request = DelegationRequest(task="x", workspace=workspace, verify=[run])
    asked = {"request": request.to_dict(), "patch": PATCH, "commit": None, "undelivered": [], "paths": ["app.txt"]}
    settings = Settings.load(environ={}, home=source.parent / "home", sandbox=sandbox)
    return await repeated(settings, folder, asked | fields)


async def test_a_patch_that_does_not_fit_the_base_is_not_checked(source: Path) -> None:
    first, last = git(source, "rev-list", "HEAD").split()[::-1]
    why = "the patch does not fit the base: app.txt: it is another file"
    assert await repeat(source, first, "true") == {"misfit": why}
    found = await repeat(source, last, "true", patch=PATCH + "@@ -9 +9 @@\n-a\n+b\n")
    assert found["misfit"].startswith("the patch")


async def test_without_the_base_nothing_is_tried(source: Path) -> None:
    base = git(source, "rev-parse", "HEAD")
    (folder := source.parent / "folder").mkdir()
    found = [
        await repeat(source, "1" * 40, "true"),
        await repeat(folder, base, "true"),
        await repeat(source.parent / "none", base, "true"),
        await repeat(source.parent / "none", None, "true"),
        await repeat(source, base, "true", url="http://127.0.0.1:1/x.git"),
    ]
    assert [[*each] for each in found] == [["untried"]] * len(found), found
    assert [each["untried"].partition(":")[0] for each in found] == [
        "repository_ref",
        "repository_not_found",
        "repository_not_found",
        f"{source.parent / 'none'} cannot be opened as a directory",
        "repository_unreachable",
    ]


async def test_no_check_sees_the_state_of_this_machine(source: Path) -> None:
    (home := source.parent / "home").mkdir()
    found = await repeat(source, git(source, "rev-parse", "HEAD"), "true", {"show": [str(home)]})
    assert found["untried"].startswith(f"sandbox.show names {home}, which is never shown"), found


async def test_without_a_commit_the_files_of_the_patch_are_compared(source: Path) -> None:
    found = await repeat(source, None, "grep two app.txt")
    assert (found["verification"]["verdict"], (source / "app.txt").read_text()) == ("verified", "one\n")
    (source / "app.txt").write_text("three\n")
    assert (await repeat(source, None, "true"))["misfit"].endswith("app.txt: it is another file")


async def test_a_check_that_asks_for_a_network_is_red_here(source: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = await repeat(source, git(source, "rev-parse", "HEAD"), CALLS.format(port=server.getsockname()[1]))
    check = found["verification"]["checks"][0]
    assert (check["base"], check["candidate"], found["verification"]["verdict"]) == ("red", "red", "inconclusive")


async def test_a_commit_is_compared_with_the_base_and_the_patch(source: Path) -> None:
    base = git(source, "rev-parse", "HEAD")
    made = list[str]()
    for name, text in (("app.txt", "two\n"), ("other.txt", "y\n")):
        (source / name).write_text(text)
        git(source, "commit", "-qam", name)
        made.append(git(source, "rev-parse", "HEAD"))
    git(source, "checkout", "-q", "--orphan", "alone", made[0])
    git(source, "commit", "-qm", "without a parent")
    commits = (*made, git(source, "rev-parse", "HEAD"), "2" * 40)
    found = [await repeat(source, base, "grep two app.txt", commit=each) for each in commits]
    assert [each["verification"]["verdict"] for each in found] == ["verified"] * 4
    assert [each["outside"] for each in found] == [[]] * 4
    shown = [(each.get("other", ""), each.get("uncompared", "").partition(":")[0]) for each in found]
    other = ("it is not the base with the patch", "")
    assert shown == [("", ""), other, other, ("", "repository_ref")]
