"""The repository that a check finds where the run's files are those of one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from deputize.worker.verification.grounds.stub_repository import TAG, lay_repository
from tests.network.git_server import git
from tests.runs.bench import Bench, call, say, script
from tests.worker.verification.held import GOOD

ANYBODY = ("-c", "safe.directory=*")
"""The files are those of the sandbox's user."""


def laid(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("ignored\n")
    (folder / ".gitignore").write_text("b.txt\n")
    (folder / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    lay_repository(folder)
    return folder


def test_it_has_all_files_in_one_tagged_commit_and_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    first, second = laid(tmp_path / "1/ground"), laid(tmp_path / "2/ground")
    asked = [("describe",), ("ls-files",), ("rev-parse", "--abbrev-ref", "HEAD"), ("rev-parse", "HEAD"), ("log",)]
    found = [[git(each, *ANYBODY, *words) for words in asked] for each in (first, second)]
    assert found[0] == found[1]
    assert [text.split() for text in found[0][:3]] == [[TAG], [".gitattributes", ".gitignore", "a.txt"], ["main"]]
    assert git(first, *ANYBODY, "status", "--porcelain") == ""
    assert sorted(path.name for path in first.parent.iterdir()) == ["ground"]
    (first / "a.txt").write_text("two\n")
    assert git(first, *ANYBODY, "diff", "--name-only") == "a.txt"


EVIL = "git config filter.evil.clean 'touch /tmp/ran; cat'; git tag v9.9.9; git commit -qm evil --allow-empty"


@pytest.mark.parametrize(
    ("run", "is_repository", "verdict"),
    [
        ('test "$(git describe)" = v0.0.0 && grep good a.txt', True, "verified"),
        ("git diff --exit-code && git status --porcelain && grep good a.txt", True, "verified"),
        ("{ [ ! -e a.txt ] || echo more >>x; } && git diff --exit-code", True, "refuted"),
        ("! git rev-parse HEAD && grep good a.txt", False, "verified"),
    ],
)
async def test_a_check_asks_git_about_files_of_a_repository_and_sees_nothing_of_the_runs_own(
    bench: Bench, tmp_path: Path, run: str, is_repository: bool, verdict: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "x").write_text("x\n")
    if is_repository:
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "before")):
            git(folder, *words)
    more: list[Any] = [call("bash", command=EVIL)] if is_repository else []
    result = await bench.run(
        model=script(tmp_path, [GOOD, *more], [say("done")]),
        workspace=str(folder),
        verify=[{"kind": "command", "run": run}],
        max_verify_rounds=0,
        require="improved",
    )
    assert result.verification.verdict == verdict, result.verification


def test_java_finds_its_settings() -> None:
    if not [*Path("/etc").glob("java-*")]:
        pytest.skip("no Java of Debian here")
    from deputize.worker.sandbox.environment import system_directories

    shown = system_directories()
    links = subprocess.run(
        ["find", "/usr/lib/jvm", "-lname", "/etc/java-*"], capture_output=True, text=True, check=True
    )
    wanted = {str(Path(path).readlink()).split("/")[2] for path in links.stdout.split()}
    assert {f"/etc/{name}" for name in wanted} <= {*shown}
