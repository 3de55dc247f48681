"""Clones from a real server and from folders: what is in them, what is not, and how they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from deputize.shared.errors import Invalid, RepositoryFailed
from deputize.shared.git.clones import Clone
from deputize.shared.git.own import GitStopped, OwnRepository, Patience
from deputize.shared.settings import Settings
from tests.hostile.planted import plant
from tests.network.git_server import TOKEN, USER, GitServer, git, make_repository
from tests.shared.git.cloning import cloned, everything_below, settings, write_credentials
from tests.waiting import until_sync

FILES = {"app.py": "one\n", "docs/guide.md": "# Guide\n"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES, commits=4)


@pytest.mark.parametrize("depth", [1, 3, 2**31 - 1])
def test_a_clone_has_the_history_that_was_asked_for(
    depth: int, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    before = git(source, "rev-parse", "HEAD~1")
    with cloned(settings(tmp_path, server), url, before, depth=depth) as clone:
        assert git(clone.files, "rev-parse", "HEAD") == clone.commit == before
        assert len(git(clone.files, "log", "--format=%s").splitlines()) == min(depth, 3)
        later = git(source, "rev-parse", "HEAD")
        assert later.encode() not in everything_below(clone.files)
        assert git(clone.files, "cat-file", "--batch-all-objects", "--batch-check").count("commit") == min(depth, 3)
        assert (clone.files / "app.py").read_text() == "2\n"


def test_a_branch_is_checked_out_and_origin_leads_nowhere(server: GitServer, source: Path, tmp_path: Path) -> None:
    git(source, "branch", "feature/x", "HEAD~1")
    url = server.add(source)
    chosen = settings(tmp_path, server)
    for ref, branch in ((None, "main"), ("main", "main"), ("feature/x", "feature/x"), ("refs/heads/main", "main")):
        with cloned(chosen, url, ref) as clone:
            assert (clone.branch, git(clone.files, "status", "-sb")) == (branch, f"## {branch}")
            assert git(clone.files, "remote", "get-url", "--push", "origin") == "nowhere"
            assert git(clone.files, "remote", "get-url", "origin") == url
            with pytest.raises(subprocess.CalledProcessError) as failed:
                git(clone.files, "fetch", "origin")
            assert failed.value.stderr == b"fatal: transport 'http' not allowed\n"
            names = {path.name for path in clone.state.iterdir()}
            assert names == {"HEAD", "config", "index", "info", "objects", "refs", "shallow"}
            assert str(tmp_path).encode() not in b"".join(
                path.read_bytes() for path in clone.state.rglob("*") if path.is_file()
            )


def test_a_tag_is_its_commit(server: GitServer, source: Path, tmp_path: Path) -> None:
    git(source, "tag", "-a", "v1", "-m", "v1", "HEAD~2")
    git(source, "tag", "light", "HEAD~1")
    url = server.add(source)
    for ref, commit in (("v1", "HEAD~2"), ("light", "HEAD~1"), ("refs/tags/v1", "HEAD~2")):
        with cloned(settings(tmp_path, server), url, ref) as clone:
            assert (clone.branch, clone.commit) == (None, git(source, "rev-parse", commit))
            assert (clone.state / "HEAD").read_text() == f"{clone.commit}\n"


def test_siblings_are_one_fetch_and_later_requests_see_what_is_new(
    server: GitServer, source: Path, tmp_path: Path
) -> None:
    url, chosen, accepted = server.add(source), settings(tmp_path, server), time.time()

    def commit_of(since: float) -> str:
        with cloned(chosen, url, "main", since=since) as clone:
            return clone.commit

    with ThreadPoolExecutor(10) as threads:
        first = set(threads.map(commit_of, [accepted] * 10))
    assert (len(first), server.fetches) == (1, 1)
    listed = len(server.requests)
    git(source, "commit", "-q", "--allow-empty", "-m", "new")
    git(source, "push", "-q", str(server.root / "project.git"), "main")
    assert {commit_of(accepted)} == first
    assert len(server.requests) == listed  # nothing was asked
    assert {commit_of(time.time())} == {git(source, "rev-parse", "main")}
    assert server.fetches == 2
    assert commit_of(time.time()) == git(source, "rev-parse", "main")
    assert server.fetches == 2  # the refs were listed, and nothing had moved


def test_a_commit_id_that_is_there_asks_the_server_nothing(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, commit = server.add(source), git(source, "rev-parse", "HEAD~1")
    for _ in range(2):
        with cloned(settings(tmp_path, server), url, commit) as clone:
            assert clone.commit == commit
    assert (server.fetches, len([1 for method, *_ in server.requests if method == "GET"])) == (1, 1)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"status": 404}, "repository_not_found"),
        ({"status": 410}, "repository_not_found"),
        ({"status": 401}, "repository_authentication"),
        ({"credentials": (USER, TOKEN)}, "repository_authentication"),
        ({"status": 403}, "repository_forbidden"),
        ({"status": 500}, "repository_unreachable"),
        ({"status": 429}, "repository_unreachable"),
        ({"redirect": "http://127.0.0.1:1"}, "repository_never"),
        ({"cut_after": 30}, "repository_unreachable"),
    ],
)
def test_failures_have_a_kind(
    wrong: dict[str, object], kind: str, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url = server.add(source)
    for name, value in wrong.items():
        setattr(server, name, value)
    with pytest.raises(RepositoryFailed) as failed, cloned(settings(tmp_path, server), url):
        pass
    assert failed.value.kind == kind
    assert str(failed.value).startswith(f"{kind}: {url}: ")


def test_head_is_the_default_branch(server: GitServer, source: Path, tmp_path: Path) -> None:
    with cloned(settings(tmp_path, server), server.add(source), "HEAD") as clone:
        assert (clone.branch, clone.commit) == ("main", git(source, "rev-parse", "HEAD"))


def test_a_folder_of_another_user_is_refused_with_the_reason(source: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    for path in (source / ".git", *(source / ".git").rglob("*")):
        os.chown(path, 1234, 1234)
    with pytest.raises(RepositoryFailed, match="belongs to another user") as failed:
        cloned(settings(tmp_path), str(source)).__enter__()
    assert failed.value.kind == "repository_forbidden"


def test_a_shortened_commit_is_refused_with_the_reason(server: GitServer, source: Path, tmp_path: Path) -> None:
    short = git(source, "rev-parse", "--short", "HEAD")
    with pytest.raises(RepositoryFailed, match="all 40 digits"):
        cloned(settings(tmp_path, server), server.add(source), short).__enter__()


@pytest.mark.parametrize("ref", ["none", "0" * 39 + "1", "refs/heads/none", "v9"])
def test_a_ref_that_is_not_there_is_a_kind(ref: str, server: GitServer, source: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryFailed) as failed, cloned(settings(tmp_path, server), server.add(source), ref):
        pass
    assert failed.value.kind == "repository_ref"


def test_refs_that_are_no_commit_are_a_kind(server: GitServer, source: Path, tmp_path: Path) -> None:
    git(source, "tag", "blob", git(source, "rev-parse", "HEAD:app.py"))
    with pytest.raises(RepositoryFailed) as failed, cloned(settings(tmp_path, server), server.add(source), "blob"):
        pass
    assert failed.value.kind == "repository_ref"


def test_an_empty_repository_has_no_commit(server: GitServer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    url = server.add(tmp_path / "empty")
    with pytest.raises(RepositoryFailed, match="it has no commit yet"), cloned(settings(tmp_path, server), url):
        pass


def test_a_head_that_names_no_branch_is_no_empty_repository(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    git(server.root / "project.git", "symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(RepositoryFailed, match=r"no default branch.*--ref"), cloned(settings(tmp_path, server), url):
        pass


def test_a_detached_head_is_taken_as_it_is(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    git(server.root / "project.git", "update-ref", "--no-deref", "HEAD", git(source, "rev-parse", "HEAD~1"))
    with cloned(settings(tmp_path, server), url) as clone:
        assert (clone.branch, clone.commit) == (None, git(source, "rev-parse", "HEAD~1"))


def test_a_host_that_is_not_there_is_unreachable(server: GitServer, tmp_path: Path) -> None:
    closed = settings(tmp_path, git_hosts=["127.0.0.1:1"])
    with pytest.raises(RepositoryFailed) as failed, cloned(closed, "http://127.0.0.1:1/r"):
        pass
    assert failed.value.kind == "repository_unreachable"


def test_a_redirect_takes_no_credentials_elsewhere(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    path = write_credentials(tmp_path / "credentials", server.host)
    server.redirect = f"http://localhost:{server.port}"
    chosen = settings(tmp_path, server, git_credentials_file=path)
    with pytest.raises(RepositoryFailed, match="redirects"), cloned(chosen, url):
        pass
    assert len(server.requests) == 1


def test_credentials_reach_their_host_and_nothing_else(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    server.credentials = (USER, TOKEN)
    path = write_credentials(tmp_path / "credentials", server.host)
    chosen = settings(tmp_path / "home", server, git_credentials_file=path)
    with cloned(chosen, url) as clone:
        assert (clone.files / "app.py").exists()
    kept = everything_below(tmp_path / "home")
    assert TOKEN.encode() not in kept
    assert b"Authorization" not in kept
    server.status = 403
    with pytest.raises(RepositoryFailed) as failed, cloned(chosen, url):
        pass
    assert TOKEN not in str(failed.value)


def test_git_is_ended_with_what_waits_for_it(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, stop = server.add(source), threading.Event()
    server.hold = threading.Event()

    def environments() -> list[list[bytes]]:
        """Those of the processes that work in this test's cache."""
        found: list[list[bytes]] = []
        for process in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                variables = process.read_bytes().split(b"\0")
                here = [each for each in variables if each.startswith(f"GIT_DIR={tmp_path}/home".encode())]
                found += [variables] if here else []
        return found

    def stop_when_held() -> list[bytes]:
        assert server.held.wait(30)
        homes = [each for variables in environments() for each in variables if each.startswith(b"HOME=")]
        stop.set()
        return homes

    with ThreadPoolExecutor(1) as threads:
        stopping = threads.submit(stop_when_held)
        with pytest.raises(GitStopped), cloned(settings(tmp_path / "home", server), url, stop=stop):
            pass
        assert {each.endswith(b"/cache.git") for each in stopping.result()} == {True}  # not the user's, with his .netrc
    until_sync(lambda: environments() == [], 10)
    server.hold.set()
    server.hold = None
    with cloned(settings(tmp_path / "home", server), url) as clone:  # what was left is no hindrance
        assert (clone.files / "app.py").exists()


def test_a_slow_server_is_a_kind(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    server.hold = threading.Event()
    chosen = settings(tmp_path, server)
    with pytest.raises(RepositoryFailed, match="longer than 1 s") as failed, cloned(chosen, url, seconds=1):
        pass
    assert failed.value.kind == "repository_unreachable"


def test_a_repository_that_is_too_large_is_refused(server: GitServer, tmp_path: Path) -> None:
    noise = os.urandom(3_000_000).hex()
    zeros = "0" * 5_000_000  # a small pack, and many bytes
    for name, text in (("noise", noise), ("zeros", zeros)):
        url = server.add(make_repository(tmp_path / name, {"a.txt": text}), f"{name}.git")
        chosen = settings(tmp_path / "home", server)
        with pytest.raises(Invalid, match="too large to be cloned"), cloned(chosen, url, most=1_000_000):
            pass
    past = make_repository(tmp_path / "past", {"a.txt": noise})
    (past / "a.txt").write_text("small")
    git(past, "commit", "-qam", "small")
    url = server.add(past, "past.git")
    with pytest.raises(Invalid, match="too large to be cloned"), cloned(chosen, url, depth=2, most=1_000_000):
        pass
    assert not [*tmp_path.glob("home/**/clones/*")]


def test_what_a_killed_worker_left_is_no_hindrance(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, chosen = server.add(source), settings(tmp_path, server)
    with cloned(chosen, url):
        (place,) = chosen.repositories.iterdir()
    cache = place / "cache.git"
    for name in ("shallow.lock", "refs/fetched/x.lock", "objects/pack/tmp_pack_x", "packed-refs.lock"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text("half")
    (place / "making.x").mkdir()
    shutil.rmtree(place / "clones")
    git(source, "commit", "-q", "--allow-empty", "-m", "new")
    git(source, "push", "-q", str(server.root / "project.git"), "main")
    with cloned(chosen, url) as clone:
        assert clone.commit == git(source, "rev-parse", "HEAD")
    assert not [*cache.rglob("*.lock"), *place.glob("making.*"), *cache.rglob("tmp_*")]


def test_a_cache_with_many_packs_is_begun_anew(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, chosen = server.add(source), settings(tmp_path, server)
    with cloned(chosen, url, "main"):
        (place,) = chosen.repositories.iterdir()
    for number in range(51):
        (place / f"cache.git/objects/pack/pack-{number}.pack").touch()
    with cloned(chosen, url, "main", depth=2):
        assert len([*(place / "cache.git/objects/pack").glob("*.pack")]) == 1


def test_a_clone_that_is_removed_meanwhile_is_made_again(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, chosen, accepted = server.add(source), settings(tmp_path, server), time.time()
    with cloned(chosen, url, since=accepted) as first:
        shutil.rmtree(first.folder)
    with cloned(chosen, url, since=accepted) as again:
        assert (again, again.files.is_dir()) == (first, True)


def test_only_the_worker_may_enter_the_clones(server: GitServer, source: Path, tmp_path: Path) -> None:
    chosen = settings(tmp_path, server)
    with cloned(chosen, server.add(source)):
        modes = {path.stat().st_mode & 0o777 for path in chosen.repositories.iterdir()}
    assert modes == {0o700}


def test_without_git_a_repository_is_unreachable(
    server: GitServer, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.add(source)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RepositoryFailed, match="git is not on PATH here") as failed:
        cloned(settings(tmp_path, server), url).__enter__()
    assert failed.value.kind == "repository_unreachable"


def test_what_fails_while_a_clone_is_copied_is_that_error(server: GitServer, source: Path, tmp_path: Path) -> None:
    url = server.add(source)
    with pytest.raises(FileNotFoundError, match="gone"), cloned(settings(tmp_path, server), url):
        raise FileNotFoundError("gone")


def test_a_folder_is_cloned_without_starting_anything_of_it(tmp_path: Path) -> None:
    planted = plant(tmp_path / "planted", tmp_path / "outside")
    chosen = settings(tmp_path / "home")
    with pytest.raises(RepositoryFailed), cloned(chosen, str(planted.folder)):  # it lacks an object
        pass
    assert planted.ran() == []
    whole = make_repository(tmp_path / "whole", FILES)
    shutil.copyfile(planted.folder / ".git/config", whole / ".git/config")
    git(whole, "config", "--file", ".git/config", "--unset-all", "extensions.partialClone")
    shutil.rmtree(whole / ".git/hooks", ignore_errors=True)
    shutil.copytree(planted.folder / ".git/hooks", whole / ".git/hooks")
    planted.log.unlink(missing_ok=True)
    with cloned(chosen, f"file://{whole}") as clone:
        assert (clone.files / "app.py").read_text() == "one\n"
        assert clone.not_copied == ["hooks of the repository were not copied"]
    assert planted.ran() == []


def test_a_tree_that_names_gits_own_state_is_not_checked_out(server: GitServer, source: Path, tmp_path: Path) -> None:
    blob = git(source, "hash-object", "-w", "--stdin", input=b"[core]\n\tfsmonitor = touch /tmp/never\n")
    inner = git(source, "mktree", input=f"100644 blob {blob}\tconfig\n".encode())
    evil = git(source, "mktree", "--missing", input=f"040000 tree {inner}\t.git\n".encode())
    commit = git(source, "commit-tree", evil, "-m", "x")
    git(source, "update-ref", "refs/heads/evil", commit)
    url = server.add(source)
    with pytest.raises(RepositoryFailed), cloned(settings(tmp_path, server), url, "evil"):
        pass
    assert not [*tmp_path.glob("workspaces/repositories/*/clones/*")]


def test_an_error_without_words_has_a_kind_too(tmp_path: Path) -> None:
    own = OwnRepository(tmp_path / "own.git", Patience("here"))
    own.make()
    with pytest.raises(RepositoryFailed, match="here: git rev-parse failed: it wrote no reason"):
        own.run("rev-parse", "--quiet", "--verify", "none")


def test_a_clone_is_recorded_beside_its_files(tmp_path: Path) -> None:
    clone = Clone(tmp_path, "a" * 40, None, ["x"])
    clone.write(tmp_path)
    assert Clone.read(tmp_path) == clone
    with pytest.raises(FileNotFoundError):
        Clone.read(tmp_path / "none")


def test_a_lock_is_waited_for_as_long_as_there_is_patience(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, chosen = server.add(source), settings(tmp_path, server)
    server.hold = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(partial(_commit, chosen, url))
        assert server.held.wait(30)
        with pytest.raises(RepositoryFailed, match=r"longer than 0\.2 s"), cloned(chosen, url, seconds=0.2):
            pass
        server.hold.set()
        assert first.result() == git(source, "rev-parse", "HEAD")


def _commit(chosen: Settings, url: str) -> str:
    with cloned(chosen, url) as clone:
        return clone.commit
