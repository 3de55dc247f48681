"""What is delivered: one commit, the same each time, on a branch of its own, and never over other work."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from deputize.shared.errors import Invalid, RepositoryFailed
from deputize.shared.facts import GitFacts
from deputize.shared.git.own import GitStopped, Patience
from deputize.shared.ids import moment_of, new_id
from tests.hostile.planted import plant
from tests.network.git_server import GitServer, git, make_repository
from tests.shared.git.cloning import cloned, settings
from tests.shared.git.delivering import FILES, added, branches, changed, deliver, delivery, unpatched


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES, commits=3)


def test_the_commit_has_exactly_the_changes(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    asked = delivery(url, base, patch)
    done = deliver(settings(tmp_path, server, git_author="Ada L <ada@x.io>"), asked)
    assert done == GitFacts(base=base, branch=f"deputize/{asked.id}", commit=done.commit)
    served = server.root / "project.git"
    assert git(served, "diff", "--binary", "--full-index", "--no-renames", base, str(done.commit)) + "\n" == patch
    shown = git(served, "log", "-1", "--format=%P|%an <%ae>|%cn <%ce>|%at %ct|%B", str(done.commit))
    moment = int(moment_of(asked.id))
    who = "Ada L <ada@x.io>"
    message = f"Say two\n\nDeputize-Run: {asked.id}\n"
    assert shown == f"{base}|{who}|{who}|{moment} {moment}|{message}".rstrip("\n")


def test_a_repeated_delivery_is_the_same_commit(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    asked = delivery(url, base, patch, branch="one")
    first = deliver(settings(tmp_path / "here", server), asked)
    assert deliver(settings(tmp_path / "elsewhere", server), asked) == first
    with ThreadPoolExecutor(3) as threads:
        again = [*threads.map(lambda _: deliver(settings(tmp_path / "here", server), asked), range(3))]
    assert again == [first] * 3
    assert branches(server) == ["main", "one"]


def test_a_branch_that_is_there_stays_as_it_is(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    with pytest.raises(RepositoryFailed, match="choose another name") as failed:
        deliver(settings(tmp_path, server), delivery(url, base, patch, branch="main"))
    assert failed.value.kind == "delivery_branch"
    assert git(server.root / "project.git", "rev-parse", "main") == base


def test_a_push_without_an_answer_is_settled_by_asking(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    server.lose_answers = True
    done = deliver(settings(tmp_path, server), delivery(url, base, patch, branch="one"))
    assert git(server.root / "project.git", "rev-parse", "one") == done.commit
    assert server.pushes >= 1


def test_a_push_that_did_not_arrive_fails_with_its_kind(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    git(server.root / "project.git", "config", "http.receivepack", "false")
    with pytest.raises(RepositoryFailed) as failed:
        deliver(settings(tmp_path, server), delivery(url, base, patch, branch="one"))
    assert failed.value.kind == "repository_forbidden"
    assert branches(server) == ["main"]


@pytest.mark.parametrize(
    "hook",
    [
        "echo No file over 1 MB.>&2; exit 1",
        "echo; echo No file over; echo '1 MB.'; exit 3",
        "printf 'No file over 1 MB.' >&2; false",
    ],
)
@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_the_words_of_a_server_that_refuses_reach_the_caller(
    server: GitServer, source: Path, tmp_path: Path, hook: str, name: str
) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    script = server.root / "project.git/hooks" / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n{hook}\n")
    script.chmod(0o755)
    with pytest.raises(RepositoryFailed, match="refuses it by a rule of its own") as failed:
        deliver(settings(tmp_path, server), delivery(url, base, patch, branch="one"))
    assert failed.value.kind == "repository_rejected"
    assert "the server wrote: No file over 1 MB." in str(failed.value)
    assert "hook declined" in str(failed.value)
    assert branches(server) == ["main"]


def test_little_is_sent_where_the_branch_has_moved_on(server: GitServer, tmp_path: Path) -> None:
    big = make_repository(tmp_path / "big", {"noise.txt": "".join(f"{n * 7919 % 100003}\n" for n in range(200_000))})
    url, base = server.add(big), git(big, "rev-parse", "HEAD")
    (big / "new.txt").write_text("new\n")
    git(big, "add", ".")
    patch = git(big, "diff", "--cached", "--full-index") + "\n"
    git(big, "reset", "-q", "--hard")
    git(big, "commit", "-q", "--allow-empty", "-m", "later")
    git(big, "push", "-q", str(server.root / "project.git"), "main")
    deliver(settings(tmp_path, server), delivery(url, base, patch, branch="one"))
    sent = [int(head.get("Content-Length", 0)) for _, path, head in server.requests if path.endswith("receive-pack")]
    assert max(sent) < 10_000


def test_no_change_is_no_branch(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    assert deliver(settings(tmp_path, server), delivery(url, base, "")) == GitFacts(base=base)
    assert branches(server) == ["main"]


def test_a_patch_lacks_only_what_git_refuses_or_is_too_large(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    asked = replace(delivery(url, base, changed(source)), changes=unpatched("sub/.GIT/x", "a big.iso", "all.csv"))
    refused = "sub/.GIT/x is not in the patch: git accepts no file at such a path"
    large = "a big.iso is not in the patch: too large (3000000 bytes)"
    lines = "all.csv is not in the patch: too large, more than 400000 lines (9 bytes)"
    others = [
        *(
            "v is a submodule and was not copied",
            "hooks of the repository were not copied",
            "pipe is in no patch",
        ),
        "files of Git LFS were not copied, only its pointers to them",
        "files with filter=x were copied as the repository stores them",
        "tags of the repository were not fetched, so git describe finds none",
    ]
    for lost in (
        "big.iso is not in the patch: no time",
        "2 more changed files are not in the patch",
        "not compared: a",
    ):
        with pytest.raises(RepositoryFailed, match=rf"complete: {lost}$") as failed:
            deliver(settings(tmp_path, server), replace(asked, left_out=[refused, large, lost, *others]))
        assert failed.value.kind == "delivery_patch"
    assert branches(server) == ["main"]
    done = deliver(settings(tmp_path, server), replace(asked, left_out=[refused, large, lines, *others]))
    assert done.commit
    assert done.left_out == ["a big.iso", "all.csv"]
    assert replace(asked, left_out=[refused]).nothing == "no file that git accepts was changed"
    only = replace(asked, left_out=[large], changes=unpatched("a big.iso"))
    assert only.nothing == "no file that fits into a patch was changed"


SIZE = "too large (5 bytes)"


@pytest.mark.parametrize(
    "path", [f"a is not in the patch: {SIZE}", "a is not in the patch: too large b", "not compared: x was not copied"]
)
def test_a_name_that_looks_like_a_reason_is_none(path: str, tmp_path: Path) -> None:
    lost = f"{path} is not in the patch: no time"
    asked = replace(delivery("https://x.io/r", "a" * 40, ""), left_out=[lost], changes=unpatched(path))
    with pytest.raises(RepositoryFailed, match=rf"complete: {re.escape(lost)}$"):
        deliver(settings(tmp_path), asked)


@pytest.mark.parametrize(
    "lost",
    [
        f"not compared: b is not in the patch: {SIZE}",
        "not compared: b was not copied",
        "not compared: git accepts no file at such a path",
        "not compared: a\nb\n is in no patch",
        "2 more changed files are not in the patch",
    ],
)
@pytest.mark.parametrize("large", ["x", "not compared: b", "not", "2"])
def test_no_path_makes_a_sentence_about_other_files_its_own(large: str, lost: str, tmp_path: Path) -> None:
    left_out = [f"{large} is not in the patch: {SIZE}", lost]
    asked = replace(delivery("https://x.io/r", "a" * 40, ""), left_out=left_out, changes=unpatched(large))
    for restored in ([], [large]):
        with pytest.raises(RepositoryFailed, match=rf"complete: {re.escape(lost)}$"):
            deliver(settings(tmp_path), replace(asked, restored=restored))


def test_a_patch_with_masked_values_is_not_delivered(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    masked = changed(source, "token = hunter2\n").replace("hunter2", "[hidden]")
    with pytest.raises(RepositoryFailed, match="masked"):
        deliver(settings(tmp_path, server), delivery(url, base, masked))
    assert branches(server) == ["main"]


def test_a_patch_that_does_not_fit_is_not_delivered(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    for wrong in (patch.replace("-one", "-two"), patch.replace("app.py", ".git/config"), "no patch\n"):
        with pytest.raises(RepositoryFailed) as failed:
            deliver(settings(tmp_path, server), delivery(url, base, wrong))
        assert failed.value.kind == "delivery_patch"
    assert branches(server) == ["main"]


def test_the_base_is_fetched_where_it_is_not_there(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD~1")
    git(source, "checkout", "-q", base)
    patch = changed(source)
    done = deliver(settings(tmp_path, server), delivery(url, base, patch, branch="one"))
    assert git(server.root / "project.git", "rev-parse", "one^") == base == done.base
    assert server.fetches >= 1


def test_any_clone_of_the_base_will_do(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base, chosen = server.add(source), git(source, "rev-parse", "HEAD"), settings(tmp_path, server)
    with cloned(chosen, url, "main", depth=2**31 - 1):
        before = len([1 for _, path, _ in server.requests if path.endswith("info/refs")])
    deliver(chosen, delivery(url, base, changed(source), branch="one"))
    asked = [1 for _, path, _ in server.requests if path.endswith("info/refs")]
    assert len(asked) == before + 2  # by the push, for itself and to learn what is there


def test_a_host_that_is_not_allowed_any_more_gets_nothing(server: GitServer, source: Path, tmp_path: Path) -> None:
    asked = delivery(server.add(source), git(source, "rev-parse", "HEAD"), changed(source))
    with pytest.raises(Invalid, match="not an allowed host"):
        deliver(settings(tmp_path), asked)


def test_a_folder_gets_its_branch_and_none_of_its_hooks_runs(tmp_path: Path) -> None:
    planted = plant(tmp_path / "planted", tmp_path / "outside")
    whole = make_repository(tmp_path / "whole", FILES)
    base, patch = git(whole, "rev-parse", "HEAD"), changed(whole)
    (whole / ".git/config").write_text((planted.folder / ".git/config").read_text())
    for key in ("extensions.partialClone", "core.worktree"):
        (whole / ".git/config").write_text(
            "\n".join(
                line
                for line in (whole / ".git/config").read_text().splitlines()
                if key.split(".")[1].lower() not in line.lower()
            )
        )
    for hook in (planted.folder / ".git/hooks").iterdir():
        (whole / ".git/hooks").mkdir(exist_ok=True)
        (whole / ".git/hooks" / hook.name).write_text(hook.read_text())
        (whole / ".git/hooks" / hook.name).chmod(0o755)
    for name in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive"):
        (whole / ".git/hooks" / name).write_text(f"#!/bin/sh\necho {name} >> {planted.log}\n")
        (whole / ".git/hooks" / name).chmod(0o755)
    done = deliver(settings(tmp_path / "home"), delivery(str(whole), base, patch, branch="one"))
    assert planted.ran() == []
    assert (whole / ".git/refs/heads/one").read_text().strip() == done.commit


def test_paths_that_checks_put_back_are_delivered_only_when_asked_for(
    server: GitServer, source: Path, tmp_path: Path
) -> None:
    url, base, patch = server.add(source), git(source, "rev-parse", "HEAD"), changed(source)
    lost, own = ["data.bin is not in the patch: no time"], settings(tmp_path, server)
    asked = replace(delivery(url, base, patch, branch="one"), restored=["app.py", "data.bin"], left_out=lost)
    asked = replace(asked, changes=unpatched("data.bin"))
    done = deliver(own, asked)
    assert done.left_out == ["app.py", "data.bin"]
    listed = git(server.root / "project.git", "show", "--format=", "--name-only", "-z", "one").split("\0")
    assert sorted(filter(None, listed)) == ['a "b"\n.txt', "docs/guide.md", "link"]
    every = replace(delivery(url, base, patch, branch="two", withProtected=True), restored=["app.py", "data.bin"])
    assert deliver(own, every).left_out == []
    assert "data.bin" in git(server.root / "project.git", "show", "--format=", "--name-only", "two").split("\n")
    with pytest.raises(RepositoryFailed, match="is not in the patch"):
        deliver(own, replace(every, left_out=lost))


def test_a_delivery_of_nothing_else_has_its_reason(server: GitServer, source: Path, tmp_path: Path) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    patch = "".join(changed(source).partition("diff --git a/app.py")[1:])
    asked = replace(delivery(url, base, patch), restored=[*FILES, "link"])
    assert deliver(settings(tmp_path, server), asked) == GitFacts(base=base, left_out=[*asked.restored])
    assert asked.nothing.endswith(", link, which the checks put back; `withProtected` delivers them")
    assert delivery(url, base, "").nothing == "no file was changed"
    assert branches(server) == ["main"]


def test_a_delivery_can_be_stopped(server: GitServer, source: Path, tmp_path: Path) -> None:
    asked = delivery(server.add(source), git(source, "rev-parse", "HEAD"), changed(source))
    stop = threading.Event()
    stop.set()
    with pytest.raises(GitStopped):
        asked.run(settings(tmp_path, server), Patience(stop=stop))


WORKFLOWS = (
    *(".github/workflows/evil.yml", ".gitlab-ci.yml", ".circleci/config.yml", ".gitmodules", "sub/action.yaml"),
    *(".GitHub/Workflows/x.yml", "Jenkinsfile", "azure-pipelines-1.yml", ".forgejo/workflows/ä.yml", ".github"),
)
PLAIN = ("github/workflows/x.yml", "docs/.gitlab-ci.yml.md", "src/workflows/a.py", ".github/ISSUE_TEMPLATE/bug.md")


@pytest.mark.parametrize("path", WORKFLOWS)
def test_what_a_git_host_executes_is_delivered_only_where_it_is_asked_for(
    tmp_path: Path, server: GitServer, source: Path, path: str
) -> None:
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    patch = added(source, "plain.txt", path)
    with pytest.raises(RepositoryFailed, match=r"a git host may execute .*`workflows`") as failed:
        deliver(settings(tmp_path / "home", server), delivery(url, base, patch))
    assert failed.value.kind == "delivery_workflow"
    done = deliver(settings(tmp_path / "home", server), delivery(url, base, patch, workflows=True))
    assert done.commit


def test_a_changed_or_removed_workflow_counts_and_other_files_do_not(
    tmp_path: Path, server: GitServer, source: Path
) -> None:
    (source / ".github/workflows").mkdir(parents=True)
    (source / ".github/workflows/ci.yml").write_text("on: push")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "ci")
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    chosen = settings(tmp_path / "home", server)
    (source / ".github/workflows/ci.yml").unlink()
    with pytest.raises(RepositoryFailed, match="delivery_workflow"):
        deliver(chosen, delivery(url, base, added(source)))
    assert deliver(chosen, delivery(url, base, added(source, *PLAIN))).commit


SCISSORS = "# ------------------------ >8 ------------------------"
DONE_BY = "Signed-off-by: Ada <ada@x.io>"


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("Fix it", "Fix it\n\nTRAILER"),
        ("Fix: the bug", "Fix: the bug\n\nTRAILER"),
        ("Fix it\n\nBecause.", "Fix it\n\nBecause.\n\nTRAILER"),
        (f"Fix it\n\n{DONE_BY}", f"Fix it\n\n{DONE_BY}\nTRAILER"),
        (f"Fix it\n\nBecause.\n\nRefs: #1\n{DONE_BY}\n\n", f"Fix it\n\nBecause.\n\nRefs: #1\n{DONE_BY}\nTRAILER"),
        ("Fix it\n\nx\n---\ny", "Fix it\n\nx\n---\ny\n\nTRAILER"),
        ("Fix it\n\nTRAILER", "Fix it\n\nTRAILER"),
        (f"Fix it\n\nTRAILER\n{DONE_BY}", f"Fix it\n\nTRAILER\n{DONE_BY}"),
        ("Fix it\n\nx\n\n#123 has the reason", "Fix it\n\nx\n\n#123 has the reason\n\nTRAILER"),
        ("#123", "#123\n\nTRAILER"),
        (f"Fix it\n\n{DONE_BY}\n# x\n#y", f"Fix it\n\n{DONE_BY}\n# x\n#y\nTRAILER"),
        ("Fix it\n\n\x01 x\n\x01", "Fix it\n\n\x01 x\n\x01\n\nTRAILER"),
        ("Fix it\n\nConflicts:\n\ta.py", "Fix it\n\nConflicts:\n\ta.py\n\nTRAILER"),
        (f"Fix it\n\nx\n\n{SCISSORS}\ny", f"Fix it\n\nx\n\nTRAILER\n\n{SCISSORS}\ny"),
        (f"{SCISSORS}\ny", f"Say two\n\nTRAILER\n{SCISSORS}\ny"),
        (f"Fix it\n{SCISSORS}\ny", f"Fix it\n\nTRAILER\n{SCISSORS}\ny"),
        (f"Fix it\n\n{SCISSORS}\n\n{DONE_BY}", f"Fix it\n\nTRAILER\n\n{SCISSORS}\n\n{DONE_BY}"),
        (f"Fix it\n\nx {SCISSORS}", f"Fix it\n\nx {SCISSORS}\n\nTRAILER"),
        ("Ä ö\n\n日本: 語 。\nNo trailer here", "Ä ö\n\n日本: 語 。\nNo trailer here\n\nTRAILER"),
    ],
)
def test_the_trailer_stands_where_git_looks_for_it(
    message: str, written: str, server: GitServer, source: Path, tmp_path: Path
) -> None:
    url, base, id = server.add(source), git(source, "rev-parse", "HEAD"), new_id()
    trailer = f"Deputize-Run: {id}"
    asked = delivery(url, base, changed(source), id=id, message=message.replace("TRAILER", trailer), branch="one")
    deliver(settings(tmp_path, server), asked)
    served = server.root / "project.git"
    assert git(served, "log", "-1", "--format=%B", "one").rstrip("\n") == written.replace("TRAILER", trailer)
    assert git(served, "log", "-1", "--format=%(trailers:key=Deputize-Run,valueonly)", "one").strip() == id
