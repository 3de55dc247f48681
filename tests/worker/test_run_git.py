"""Runs over git repositories: real git over HTTP, real sandboxes, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.network.git_server import GitServer, git, git_server, make_repository
from tests.runs.bench import Bench, call, open_bench, say, script

FILES = {"app.py": "one\n", "docs/guide.md": "# Guide\n"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
async def bench(server: GitServer, redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home", git_hosts=[server.host]) as bench:
        yield bench


async def test_the_agent_works_in_a_clone(bench: Bench, server: GitServer, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source", FILES, commits=3)
    url = server.add(source)
    asked = "git status -sb && git log --oneline && git remote -v && echo two >> app.py && git diff --stat"
    model = script(tmp_path, [call("bash", command=asked)], [say("done")])
    result = await bench.run(model=model, workspace={"kind": "git", "url": url})
    assert result.success, result.summary
    (seen,) = await bench.answers(result.delegation_id)
    assert "## main" in seen
    assert "commit 3" in seen
    assert "commit 2" not in seen
    assert "app.py | 1 +" in seen
    assert f"{url} (fetch)" in seen
    assert [(change.path, change.change) for change in result.file_changes] == [("app.py", "modified")]
    assert "+two" in await bench.store.patch(result.delegation_id)


async def test_many_runs_over_one_repository_are_one_fetch(bench: Bench, server: GitServer, tmp_path: Path) -> None:
    url = server.add(make_repository(tmp_path / "source", FILES))
    model = script(tmp_path, [call("read_file", path="app.py")], [say("done")])
    runs = (bench.run(model=model, workspace={"kind": "git", "url": url}) for _ in range(10))
    results = await asyncio.gather(*runs)
    assert [result.success for result in results] == [True] * 10
    assert server.fetches == 1


async def test_a_repository_that_is_not_there_is_a_typed_failure(
    bench: Bench, server: GitServer, tmp_path: Path
) -> None:
    model = script(tmp_path, [say("never")])
    result = await bench.run(model=model, workspace={"kind": "git", "url": server.url("none.git")})
    assert result.termination_reason == "refused"
    assert result.errors[0].startswith("repository_not_found: ")


EDIT = call("bash", command="echo two >> app.py; printf 'a\\0b' > data.bin; ln -s app.py link; rm docs/guide.md")


async def test_changes_are_delivered_as_a_branch(bench: Bench, server: GitServer, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source", FILES, commits=3)
    url, base = server.add(source), git(source, "rev-parse", "HEAD")
    asked = {"branch": "deputize/{id}", "message": "Add two"}
    workspace = {"kind": "git", "url": url}
    result = await bench.run(model=script(tmp_path, [EDIT], [say("done")]), workspace=workspace, deliver=asked)
    assert (result.success, result.errors) == (True, [])
    assert result.git is not None
    assert (result.git.base, result.git.branch) == (base, f"deputize/{result.delegation_id}")
    served = server.root / "project.git"
    commit = git(served, "rev-parse", f"refs/heads/{result.git.branch}")
    assert (commit, git(served, "rev-parse", f"{commit}^")) == (result.git.commit, base)
    assert git(served, "log", "-1", "--format=%an <%ae>%n%B", commit).splitlines() == [
        "deputize <deputize@localhost>",
        "Add two",
        "",
        f"Deputize-Delegation: {result.delegation_id}",
    ]
    assert git(served, "ls-tree", "-r", "--name-only", commit).split() == ["app.py", "data.bin", "link"]
    assert git(served, "show", f"{commit}:app.py") == "one\ntwo"
    types = [each.event.type for each in await bench.events(result)]
    assert types[-2:] == ["delivered", "run_finished"]
