"""New files that .gitignore names stay behind unless they are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deputize.orchestrator.cli import output
from deputize.shared.request import DelegationRequest
from deputize.worker.workspace.workspace import Workspace
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import deputize
from tests.orchestrator.fake_service import FakeService
from tests.worker.workspace.trees import directory, tree

NAMED = "3 new files that .gitignore names: cache/1.dat, cache/2.dat, cache/link.dat"
BEHIND = f"  left behind: {NAMED}; to take them, too: "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "main.py").write_text("old\n")
    (folder / ".gitignore").write_text("*.dat\n")
    return folder


async def ended(service: FakeService, id: str) -> None:
    workspace = await Workspace.create(service.runs[id].request.workspace, id, service.workspaces)
    (workspace.path / "main.py").write_text("new\n")
    (workspace.path / "cache").mkdir()
    for name in ("1", "2"):
        (workspace.path / f"cache/{name}.dat").write_bytes(b"\0" + name.encode())
    (workspace.path / "cache/1.dat").chmod(0o755)
    (workspace.path / "cache/link.dat").symlink_to("/etc/passwd")
    facts = await workspace.facts()
    workspace.close()
    service.patches[id] = facts.patch
    fields = {"ignored_files": sorted(facts.ignored), "ignored_count": facts.ignored_count}
    service.finish(id, summary="Done.", file_changes=[*facts.changes], **fields)


async def finished(service: FakeService, folder: Path, tmp_path: Path) -> str:
    service.workspaces = tmp_path / "workspaces"
    request = DelegationRequest(task="x", workspace=directory(folder, ignored=False))
    id = (await service.create(request)).delegation.id
    await ended(service, id)
    return id


async def test_they_stay_behind_in_one_line_and_are_taken_when_asked_for(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    id, before = await finished(service, folder, tmp_path), tree(folder)
    done = await deputize("apply", id, DEPUTIZE_URL=url)
    assert (done.code, done.out.splitlines()) == (0, [f"1 change applied to {folder}", "  modified main.py"])
    assert [line for line in done.err.splitlines() if line.startswith(BEHIND) and "--with-ignored" in line]
    assert tree(folder).keys() == before.keys()
    more = await deputize("apply", id, "--with-ignored", DEPUTIZE_URL=url)
    assert more.out.splitlines() == [
        f"2 changes applied to {folder}",
        "  created cache/1.dat",
        "  created cache/2.dat",
    ]
    # A link leads elsewhere: only its place in the workspace is shown.
    assert "  left behind: 1 new file that .gitignore names: cache/link.dat" in more.err
    assert tree(folder)["cache/1.dat"] == ("program", b"\0" + b"1")
    assert "cache/link.dat" not in tree(folder)
    back = await deputize("apply", id, "--reverse", "--with-ignored", "--json", DEPUTIZE_URL=url)
    assert json.loads(back.out)["applied"] == ["cache/2.dat", "cache/1.dat", "main.py"]
    assert tree(folder) == before


async def test_files_of_ones_own_with_these_names_are_kept(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    id = await finished(service, folder, tmp_path)
    (folder / "cache").mkdir()
    (folder / "cache/2.dat").write_bytes(b"mine")
    done = await deputize("apply", id, "--with-ignored", DEPUTIZE_URL=url)
    assert (done.code, "  cache/2.dat: a file is here already" in done.err) == (1, True)
    assert (folder / "main.py").read_text() == "old\n"


async def test_a_run_reports_what_stays_behind_and_show_names_it(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    service.workspaces = tmp_path / "workspaces"
    done = await run(url, service, "x", "--workspace", str(folder), "--apply", then=lambda id: ended(service, id))
    assert done.code == 0, done.err
    assert [line for line in done.err.splitlines() if line.startswith(BEHIND)]
    assert tree(folder).keys() == {"main.py", ".gitignore"}
    shown = await deputize("show", "@last", DEPUTIZE_URL=url)
    assert f"ignored    {NAMED}" in shown.out.splitlines()


@pytest.mark.parametrize(
    ("number", "paths", "said"),
    [
        (2, ["a/__pycache__/b.cpython-311.pyc", "__pycache__/c.pyc"], ""),
        (3, [".pytest_cache/v/x", ".mypy_cache/3.11/y.json", "src/p.egg-info/PKG-INFO"], ""),
        (2, ["a/__pycache__/x.nbi", "__pycache__/y.nbc"], ""),
        (5, ["node_modules/a.js", "a/.tox/x", ".nox/x", ".hypothesis/x", ".eggs/x"], ""),
        (2, [".ruff_cache/0/x", "report.csv"], "1 new file that .gitignore names: report.csv"),
        (5000, ["out/1.bin", "old.pyo"], "4999 new files that .gitignore names: out/1.bin, …"),
        (1, ["my__pycache__.txt"], "1 new file that .gitignore names: my__pycache__.txt"),
        (0, list[str](), ""),
    ],
)
def test_a_cache_is_not_named(number: int, paths: list[str], said: str) -> None:
    assert output.ignored(number, paths) == said
