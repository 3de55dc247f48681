"""What another author's repository cannot cost: lists and trees are read as they come, and leftovers hinder nothing."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from deputize.shared.errors import Invalid, RepositoryFailed
from deputize.shared.git.own import OwnRepository, Patience
from deputize.shared.workspaces import MAX_DEPTH, MAX_ENTRIES, delete
from tests.network.git_server import GitServer, git, make_repository
from tests.shared.git.cloning import cloned, settings

FILES = {"app.py": "one\n"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES)


def branch(source: Path, name: str, tree: str) -> None:
    git(source, "update-ref", f"refs/heads/{name}", git(source, "commit-tree", tree, "-m", name))


def tree_of(source: Path, *entries: str) -> str:
    return git(source, "mktree", input="".join(f"{entry}\n" for entry in entries).encode())


def nested(source: Path, depth: int, width: int = 1) -> str:
    """A tree of so many levels, each with as many entries of the next one."""
    tree = tree_of(source, f"100644 blob {git(source, 'rev-parse', 'HEAD:app.py')}\tf")
    for _ in range(depth):
        tree = tree_of(source, *(f"040000 tree {tree}\td{number:06}" for number in range(width)))
    return tree


def of_empty_trees(source: Path, depth: int, width: int) -> str:
    """A listing of files has no entry for any of these."""
    tree = tree_of(source)
    for _ in range(depth):
        tree = tree_of(source, *(f"040000 tree {tree}\td{number}" for number in range(width)))
    return tree


def flat(source: Path, count: int) -> str:
    blob = git(source, "rev-parse", "HEAD:app.py")
    return tree_of(source, *(f"100644 blob {blob}\tf{number:07}" for number in range(count)))


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["flat", "nested", "empty", "submodules"])
def test_a_commit_of_too_many_entries_is_refused_before_it_is_checked_out(
    kind: str, server: GitServer, source: Path, tmp_path: Path
) -> None:
    """Some kilobytes are enough for ten thousand million of them."""
    if kind == "submodules":
        commit = git(source, "rev-parse", "HEAD")
        tree = tree_of(source, *(f"160000 commit {commit}\tm{number:07}" for number in range(MAX_ENTRIES + 1)))
    else:
        makes = {
            "flat": lambda: flat(source, MAX_ENTRIES + 1),
            "nested": lambda: nested(source, 10, 10),
            "empty": lambda: of_empty_trees(source, 10, 10),
        }
        tree = makes[kind]()
    branch(source, "many", tree)
    chosen = settings(tmp_path, server)
    url = server.add(source)
    tracemalloc.start()
    try:
        with (
            pytest.raises(Invalid, match="it has more than 200,000 files and folders"),
            cloned(chosen, url, "many", seconds=600),
        ):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    with cloned(chosen, url, "main") as clone:
        assert (clone.files / "app.py").read_text() == "one\n"


def test_a_commit_may_be_as_deep_as_an_archive(server: GitServer, source: Path, tmp_path: Path) -> None:
    branch(source, "deep", nested(source, MAX_DEPTH - 1))
    branch(source, "deeper", nested(source, MAX_DEPTH))
    chosen, url = settings(tmp_path, server), server.add(source)
    with pytest.raises(Invalid, match="it has more than 100 folders inside one another"), cloned(chosen, url, "deeper"):
        pass
    with cloned(chosen, url, "deep") as clone:
        assert (clone.files / "/".join(["d000000"] * (MAX_DEPTH - 1)) / "f").read_text() == "one\n"


@pytest.mark.parametrize("ref", ["main", None])
def test_refs_that_cannot_be_meant_are_not_held_in_memory(
    ref: str | None, server: GitServer, source: Path, tmp_path: Path
) -> None:
    commit, url = git(source, "rev-parse", "HEAD"), server.add(source)
    lines = "".join(f"{commit} refs/x/{number:06}\n" for number in range(100_000))
    with (server.root / "project.git/packed-refs").open("a") as packed:
        packed.write(lines)
    tracemalloc.start()
    try:
        with cloned(settings(tmp_path, server), url, ref) as clone:
            assert (clone.branch, clone.commit) == ("main", commit)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20, "the test's server holds each answer, of 7 MB"
    finally:
        tracemalloc.stop()


def test_too_many_refs_that_may_be_meant_are_refused(server: GitServer, source: Path, tmp_path: Path) -> None:
    """git names each whose name ends as the asked one."""
    commit, url = git(source, "rev-parse", "HEAD"), server.add(source)
    lines = "".join(f"{commit} refs/x/{number:06}/refs/heads/gone\n" for number in range(MAX_ENTRIES + 1))
    (server.root / "project.git/packed-refs").write_text(lines)
    with (
        pytest.raises(Invalid, match="more than 200,000 refs that may be meant"),
        cloned(settings(tmp_path, server), url, "gone"),
    ):
        pass


def test_a_leftover_that_cannot_be_removed_hinders_no_later_clone(
    server: GitServer, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, chosen = server.add(source), settings(tmp_path, server)
    with cloned(chosen, url, "main"):
        (place,) = chosen.repositories.iterdir()
    leftover = place / "making.0"
    leftover.mkdir()
    held = leftover / "held"
    held.write_text("x")
    if subprocess.run(["chattr", "+i", held], check=False, capture_output=True).returncode:
        pytest.skip("this user or file system has no immutable files")
    try:
        git(source, "commit", "-q", "--allow-empty", "-m", "new")
        git(source, "push", "-q", str(server.root / "project.git"), "main")
        with cloned(chosen, url, "main") as clone:
            assert clone.commit == git(source, "rev-parse", "HEAD")
        assert [record.getMessage() for record in caplog.records] == [f"{leftover} is left aside: it cannot be removed"]
    finally:
        subprocess.run(["chattr", "-i", held], check=True)


def test_a_leftover_of_any_depth_is_removed(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, chosen = server.add(source), settings(tmp_path, server)
    with cloned(chosen, url, "main"):
        (place,) = chosen.repositories.iterdir()
    leftover = os.open(place, os.O_RDONLY)
    for name in ("making.0", *["d"] * 3000):
        os.mkdir(name, dir_fd=leftover)
        inner = os.open(name, os.O_RDONLY, dir_fd=leftover)
        os.close(leftover)
        leftover = inner
    os.close(leftover)
    with cloned(chosen, url, "main", depth=2):
        assert not [*place.glob("making.*")]


def test_what_a_command_writes_as_errors_is_kept_only_at_its_end(tmp_path: Path) -> None:
    own = OwnRepository(tmp_path / "own.git", Patience("here"))
    own.make()
    names = [f"{number:05}-{'x' * 100}" for number in range(2000)]
    patch = "".join(f"diff --git a/{name} b/{name}\ndeleted file mode 100644\n" for name in names)
    with pytest.raises(RepositoryFailed) as failed:
        own.run("apply", "--cached", "-", input=patch.encode())
    assert failed.value.kind == "delivery_patch"
    assert "x: does not exist in index" in str(failed.value)
    assert names[0] not in str(failed.value)


def test_an_entry_without_an_end_is_refused(tmp_path: Path) -> None:
    own = OwnRepository(tmp_path / "own.git", Patience("here"))
    own.make()
    with pytest.raises(RepositoryFailed, match="has an entry of more than 65,536 bytes"):
        _ = [*own.records("rev-parse", "--sq-quote", "x" * 100_000, end=b"\0")]


def test_a_command_is_killed_where_its_answer_is_not_read_to_its_end(tmp_path: Path, source: Path) -> None:
    branch(source, "many", nested(source, 10, 10))
    own = OwnRepository(source / ".git", Patience("here"))
    listing = own.records("ls-tree", "-r", "many", end=b"\n")
    assert next(listing).endswith(b"/f")
    (running,) = (path for path in Path("/proc").glob("[0-9]*") if _works_in(path) == str(source / ".git"))
    listing.close()
    assert not running.exists()


def _works_in(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def test_a_tree_that_is_deep_and_cannot_be_removed_is_an_error_of_the_system(tmp_path: Path) -> None:
    inner = os.open(tmp_path, os.O_RDONLY)
    for name in ("tree", *["d"] * 1500):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    held = f"/proc/{os.getpid()}/fd/{inner}"
    try:
        if subprocess.run(["chattr", "+i", f"{held}/."], check=False, capture_output=True).returncode:
            pytest.skip("this user or file system has no immutable files")
        with pytest.raises(OSError, match="too deep"):
            delete(tmp_path / "tree")
    finally:
        subprocess.run(["chattr", "-i", f"{held}/."], check=False, capture_output=True)
        os.close(inner)
    delete(tmp_path / "tree")
    assert not [*tmp_path.iterdir()]
