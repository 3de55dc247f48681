"""What of a run with checks reaches its repository: what they have seen, if it is what the request requires."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict
from deputize.shared.events import Delivered, ProgressMade
from deputize.shared.request import Deliver
from tests.network.git_server import git, git_server, make_repository
from tests.runs.bench import Bench, call, open_bench, say, script

FILES = {"app.py": "one\n", "docs.md": "# Guide\n" * 9, "tests/test_app.py": "old\n" * 9}
PUT_BACK = ["tests/__init__.py", "tests/docs.md", "tests/test_app.py"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "source", FILES)


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench


async def run(bench: Bench, source: Path, command: str, **fields: Any) -> ToolAgentResult:
    model = script(source.parent, [call("bash", command=command)], [say("done")])
    asked = {"workspace": {"kind": "git", "url": str(source)}, "verify": ["true"], "max_verify_rounds": 0}
    return await bench.run(model=model, **asked | fields)


def branches(source: Path) -> list[str]:
    return git(source, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


async def test_what_falls_short_is_delivered_neither_at_the_end_nor_later(
    bench: Bench, source: Path, redis_url: str
) -> None:
    result = await run(bench, source, "echo two >> app.py", deliver={}, require="verified")
    assert (result.success, branches(source)) == (False, ["main"])
    why = "nothing was delivered: the verdict is passed, and verified is required"
    assert any(error.startswith(why) for error in result.errors)
    async with open_service(bench.settings, redis_url) as service:
        with pytest.raises(Conflict, match=why):
            await service.deliver(result.delegation_id)
    assert branches(source) == ["main"]
    assert (await run(bench, source, "echo two >> app.py", deliver={})).success
    assert len(branches(source)) == 2


async def test_a_workflow_that_is_held_back_names_the_option_that_delivers_it(bench: Bench, source: Path) -> None:
    command = "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/a.yml"
    result = await run(bench, source, command, deliver={}, verify=[])
    (error,) = result.errors
    assert error.endswith(f"the work is kept, and `deputize deliver {result.delegation_id} --workflows` delivers it")


async def delivered(bench: Bench, source: Path, result: ToolAgentResult) -> str:
    """The files of the branch that differ from its base."""
    assert result.git is not None
    assert result.git.branch is not None
    return git(source, "diff", "--name-status", "--no-renames", "main", result.git.branch)


async def test_what_the_checks_put_back_is_not_delivered_unless_asked_for(
    bench: Bench, source: Path, redis_url: str
) -> None:
    """Also where a file was moved from a test to the code, or from there to the tests."""
    moves = "git mv tests/test_app.py moved.py; git mv docs.md tests/docs.md; echo 'raise' > tests/__init__.py"
    first = await run(bench, source, f"echo two >> app.py; {moves}", deliver={})
    assert first.git is not None
    assert first.success, first.errors
    assert first.git.left_out == first.verification.restored == PUT_BACK
    assert await delivered(bench, source, first) == "M\tapp.py\nD\tdocs.md\nA\tmoved.py"
    (event,) = await bench.seen(first, Delivered)
    assert event.git == first.git
    every = await run(bench, source, f"echo two >> app.py; {moves}", deliver={"withProtected": True})
    assert every.git is not None
    assert every.git.left_out == []
    changed = "M\tapp.py\nD\tdocs.md\nA\tmoved.py\nA\ttests/__init__.py\nA\ttests/docs.md\nD\ttests/test_app.py"
    assert await delivered(bench, source, every) == changed
    async with open_service(bench.settings, redis_url) as service:
        assert (await service.deliver(first.delegation_id)).result == first
        with pytest.raises(Conflict, match=r"already delivered.*which the checks put back$"):
            await service.deliver(first.delegation_id, Deliver(with_protected=True))


async def test_a_run_that_changed_only_what_was_put_back_delivers_nothing(
    bench: Bench, source: Path, redis_url: str
) -> None:
    result = await run(bench, source, "echo x > tests/test_app.py", deliver={})
    why = "no file was changed but tests/test_app.py, which the checks put back; `withProtected` delivers them"
    assert [each.message for each in await bench.seen(result, ProgressMade)][-1] == f"nothing was delivered: {why}"
    async with open_service(bench.settings, redis_url) as service:
        with pytest.raises(Conflict, match=why):
            await service.deliver(result.delegation_id)
        done = await service.deliver(result.delegation_id, Deliver(with_protected=True))
    assert done.result is not None
    assert await delivered(bench, source, done.result) == "M\ttests/test_app.py"


@pytest.mark.parametrize(
    ("lists", "branch", "begin", "then"),
    [
        (2, "one", "repository_unreachable: ", "tries it again"),
        (None, "main", "delivery_branch: ", "delivers it when that is mended"),
    ],
)
async def test_only_a_host_that_did_not_answer_is_worth_the_same_try_again(
    redis_url: str, tmp_path: Path, source: Path, lists: int | None, branch: str, begin: str, then: str
) -> None:
    (root := tmp_path / "served").mkdir()
    with git_server(root) as server:
        workspace = {"kind": "git", "url": server.add(source)}
        server.most_lists = lists  # the clone has two
        async with open_bench(redis_url, tmp_path / "home", git_hosts=[server.host]) as bench:
            result = await run(bench, source, "echo two >> app.py", workspace=workspace, deliver={"branch": branch})
    (error,) = result.errors
    assert (error.startswith(begin), error.endswith(f"` {then}")) == (True, True), error
