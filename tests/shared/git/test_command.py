"""git as the host starts it: with the data of a repository, and never with its configuration."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from deputize.shared.git import GitCommand, git, read_regular, repository_of
from deputize.shared.git.command import found_git
from deputize.shared.listed import outer_rules, tracked_paths
from deputize.shared.patches.merge import content_in_git
from tests.hostile.planted import Planted, plant
from tests.network.git_server import make_repository

ASKED: dict[str, list[str]] = {
    "cat-file": ["blob", "ID"],
    "check-ignore": ["-v", "--no-index", "file.txt"],
    "config": ["--get", "core.fsmonitor"],
    "ls-files": ["-z", "--cached", "--others", "--exclude-standard"],
    "merge-file": ["-p", "file.txt", "file.txt", "file.txt"],
}


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return plant(tmp_path / "project", tmp_path / "outside")


def test_the_planted_repository_starts_programs_of_a_git_that_reads_it(planted: Planted) -> None:
    for folder, id in ((planted.folder, planted.missing), (planted.bare, planted.missing)):
        subprocess.run(["git", "cat-file", "blob", id], cwd=folder, check=False, capture_output=True)
        assert "remote.planted.uploadpack" in planted.ran()
        planted.log.unlink()
    subprocess.run(["git", "status"], cwd=planted.folder, check=False, capture_output=True)
    assert planted.ran() != []


def test_every_command_is_asked() -> None:
    assert sorted(ASKED) == sorted(get_args(GitCommand))


@pytest.mark.parametrize("command", get_args(GitCommand))
@pytest.mark.parametrize("as_user", [False, True])
def test_no_command_starts_what_a_repository_names(command: GitCommand, as_user: bool, planted: Planted) -> None:
    for id in (planted.blob, planted.missing):
        arguments = [id if each == "ID" else each for each in ASKED[command]]
        for where in (planted.folder, planted.bare):
            git(command, *arguments, repository=planted.folder, cwd=where, as_user=as_user)
            git(command, *arguments, cwd=where, as_user=as_user)
    assert planted.ran() == []


def test_contents_of_a_repository_are_found_without_starting_anything(planted: Planted) -> None:
    for folder in (planted.folder, planted.bare):
        assert content_in_git(folder, planted.blob) == b"one\n"
        assert content_in_git(folder, planted.missing) is None
    assert content_in_git(planted.folder.parent, planted.blob) is None
    assert planted.ran() == []


def test_contents_of_a_worktree_and_of_a_repository_that_borrows_are_found(tmp_path: Path, planted: Planted) -> None:
    for name, command in (
        (
            "tree",
            ["git", "-C", str(planted.folder), "worktree", "add", "--detach", "--no-checkout", str(tmp_path / "tree")],
        ),
        ("clone", ["git", "clone", "-q", "-n", "--shared", str(planted.folder), str(tmp_path / "clone")]),
    ):
        subprocess.run(["rm", "-f", str(planted.folder / ".git/config")], check=True)
        subprocess.run(command, check=True, capture_output=True)
        assert content_in_git(tmp_path / name, planted.blob) == b"one\n"


def test_tracked_files_are_listed_also_of_a_split_index(planted: Planted) -> None:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"}
    (planted.folder / ".git/config").write_text("")
    subprocess.run(["git", "update-index", "--split-index"], cwd=planted.folder, env=env, check=True)
    done = git("ls-files", "-z", repository=planted.folder)
    assert done.stdout == b"file.txt\0gone.txt\0"


def test_variables_of_the_environment_and_a_relative_path_change_nothing(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_DIR", "GIT_PAGER"):
        monkeypatch.setenv(name, str(planted.folder / "git"))
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(planted.folder)
    assert content_in_git(planted.folder, planted.blob) == b"one\n"
    assert planted.ran() == []


def test_git_that_does_not_end_is_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="did not end within"):
        git("config", "--list", "--file", tmp_path / "pipe", seconds=0.5)


LOOSE = "1" * 40
WAITING = {
    "config": ("HEAD", "commondir", "config", "config.worktree"),
    "ls-files": ("index", "sharedindex.1"),
    "cat-file": (
        *("objects/info/alternates", "objects/pack/multi-pack-index", "objects/pack/x.idx", f"objects/11/{LOOSE[2:]}"),
        *("more/pack/y.pack", f"more/11/{LOOSE[2:]}", "more/info/alternates", "further/pack/multi-pack-index"),
    ),
}


@pytest.mark.parametrize(("command", "name"), [(command, name) for command in WAITING for name in WAITING[command]])
@pytest.mark.parametrize("kind", ["FIFO", "link to a FIFO", "socket"])
def test_no_fifo_of_a_state_is_opened(
    command: GitCommand, name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(tmp_path / "r", {"a": "x"})
    state = folder / ".git"
    if "objects" not in name:
        (state / "more/info").mkdir(parents=True)
        (state / "objects/info/alternates").write_text("# x\n../more\n")
        (state / "more/info/alternates").write_text(f"{state}/further\n")
    path = state / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "socket":
            bound.bind(path.name)
        else:
            path.symlink_to(tmp_path / "pipe") if kind != "FIFO" else os.mkfifo(path)
        arguments = [LOOSE if each == "ID" else each for each in ASKED[command]]
        with pytest.raises(OSError, match="is neither a file nor a folder, and git would wait for it"):
            git(command, *arguments, repository=folder, seconds=10)
        assert content_in_git(folder, LOOSE) is None
        outer_rules(folder)
        assert tracked_paths(folder) == frozenset() or command != "ls-files"


def test_without_git_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", ".")
    with pytest.raises(FileNotFoundError, match="not on PATH"):
        git("config", "--list", cwd=tmp_path)


@pytest.mark.parametrize("named", ["gitdir: /nowhere\n", "gitdir: a\0b", "gitdir: ", "", "x" * 5000])
def test_a_repository_whose_state_cannot_be_found_has_no_contents(named: str, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text(named)
    assert repository_of(tmp_path / "below") == tmp_path
    assert content_in_git(tmp_path, "1" * 40) is None


def test_only_the_bytes_of_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some")
    os.mkfifo(tmp_path / "pipe")
    unreadable = Path("/proc/self/mem")  # a regular file whose first page is not mapped
    paths = [tmp_path / "file", tmp_path / "pipe", tmp_path, tmp_path / "missing", unreadable]
    assert [read_regular(path, 4) for path in paths] == [b"some", b"", b"", b"", b""]
    assert read_regular(tmp_path / "file", 3) == b""


def test_git_is_found_on_the_path_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert found_git() is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found_git() is None
