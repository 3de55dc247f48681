"""Runs that merge the results of others: real sandboxes, and results of scripted runs over one directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.delegations import open_service
from deputize.shared.compound_requests import MergeRequest
from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict, NotFound
from deputize.shared.events import CheckCompleted, ProgressMade, RunStarted
from deputize.shared.request import DelegationRequest
from deputize.shared.runs.keys import record_key
from deputize.worker.task import carry_out
from tests.network.git_server import git, git_server, make_repository
from tests.runs.bench import Bench, call, open_bench, say, script
from tests.shared.git.cloning import write_credentials
from tests.waiting import until
from tests.worker.verification.held import grounds_in

FILES = {"a.py": "def one():\n    return 1\n", "b.py": "B = 2\n"}
CHECK = {"kind": "command", "run": "for each in *.py; do python3 $each || exit 1; done"}


@pytest.fixture
async def bench(redis_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(redis_url, tmp_path / "home") as bench:
        yield bench


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    for name, text in FILES.items():
        (tmp_path / "project" / name).write_text(text)
    return tmp_path / "project"


async def run(bench: Bench, project: Path, command: str, **fields: Any) -> str:
    fields.setdefault("workspace", str(project))
    model = script(project.parent, [call("bash", command=command)], [say("done")])
    result = await bench.run(model=model, **fields)
    assert result.success, result.errors
    return result.delegation_id


async def merge(bench: Bench, project: Path, *ids: str, **fields: Any) -> ToolAgentResult:
    return await bench.run("merge", workspace=str(project), merges=[*ids], **fields)


async def accepted(bench: Bench, **fields: Any) -> str:
    return await bench.accept(DelegationRequest.model_validate({"task": "merge", **fields}))


async def progress(bench: Bench, result: ToolAgentResult) -> list[str]:
    found = [each.message for each in await bench.seen(result, ProgressMade)]
    return [each for each in found if not each.startswith("check ")]


async def test_a_merge_has_the_changes_of_all_and_needs_no_model(bench: Bench, project: Path) -> None:
    one = await run(bench, project, "echo x >> a.py; mkdir -p new; echo 1 > new/x; echo '*.log' > .gitignore")
    two = await run(bench, project, "rm b.py; echo 2 > new.log; chmod +x a.py")
    result = await merge(bench, project, one, two, model="no-such-model")
    assert (result.success, result.summary) == (True, "Merged 2 results: 5 files.")
    assert result.merge is not None
    assert result.merge.to_dict() == {"conflicts": [], "incompatible": [], "compatible": None}
    assert {each.path: each.change for each in result.file_changes} == {
        ".gitignore": "created",
        "a.py": "modified",
        "b.py": "deleted",
        "new.log": "created",
        "new/x": "created",
    }
    assert "new mode 100755" in await bench.store.patch(result.delegation_id)
    assert [each.model for each in await bench.seen(result, RunStarted)] == ["no model"]
    assert (project / "a.py").read_text() == FILES["a.py"]


async def test_a_merge_is_merged_with_another_result_and_done_again(bench: Bench, project: Path) -> None:
    ids = [await run(bench, project, f"echo {number} > {number}") for number in range(3)]
    first = await merge(bench, project, *ids[:2])
    both = await merge(bench, project, first.delegation_id, ids[2])
    again = await merge(bench, project, *ids)
    assert both.files_modified == again.files_modified == ["0", "1", "2"]


@pytest.mark.costly
async def test_a_merge_that_passes_is_verified_and_one_that_fails_names_the_pair(bench: Bench, project: Path) -> None:
    one = await run(bench, project, "sed -i s/one/uno/ a.py", verify=[CHECK])
    two = await run(bench, project, "echo 'from a import one; one()' > c.py", verify=[CHECK])
    three = await run(bench, project, "echo 'D = 1' > d.py", verify=[CHECK])
    fine = await merge(bench, project, two, three, verify=[CHECK])
    assert (fine.success, fine.verification.checks[0].outcome) == (True, "no_regression")
    result = await merge(bench, project, one, two, three, verify=[CHECK])
    assert (result.status, result.termination_reason, result.success) == ("failed", "completed", False)
    assert (result.verification.verdict, len(result.files_modified)) == ("refuted", 3)
    assert result.merge is not None
    (found,) = result.merge.incompatible
    assert (found.ids, found.why) == ([one, two], "it succeeded before the run and fails now")
    assert 1 <= found.checks <= 3
    assert result.merge.compatible in ([one, three], [two, three])
    assert result.errors == ["the merged files fail the checks: it succeeded before the run and fails now"]
    first, *checked = await progress(bench, result)
    assert first == "Merged 3 results: 3 files."
    assert {each.rpartition(" ")[0] for each in checked} <= {
        f"2 of 3 results together {end} the" for end in ("fail", "pass")
    }
    assert found.checks <= len(checked) <= found.checks + 1
    assert await bench.seen(result, CheckCompleted)
    assert "uno" in await bench.store.patch(result.delegation_id)


async def test_what_falls_short_is_merged_only_with_checks(bench: Bench, project: Path, redis_url: str) -> None:
    checked = {"verify": [CHECK], "max_verify_rounds": 0}
    model = script(project.parent, [call("bash", command="echo '1/0' > c.py")], [say("done")])
    short = (await bench.run(model=model, workspace=str(project), **checked)).delegation_id
    result = await merge(bench, project, short)
    why = f"{short} is not merged without a check: the checks refute the result"
    assert (result.termination_reason, result.files_modified) == ("refused", [])
    assert why in result.errors[0]
    async with open_service(bench.settings, redis_url) as service:
        with pytest.raises(Conflict, match=why):
            await service.merge(MergeRequest(ids=[short]))
        assert (await service.merge(MergeRequest(ids=[short], dry_run=True))).files == ["c.py"]
        asked = MergeRequest.model_validate({"ids": [short], "verify": [CHECK], "require": "improved"})
        made = (await service.merge(asked)).delegation
    assert made is not None
    assert made.request.require == "improved"


@pytest.mark.costly
async def test_one_that_fails_the_checks_alone_is_named_alone(bench: Bench, project: Path) -> None:
    ids = [await run(bench, project, command) for command in ("echo X=1 > c.py", "echo '1/0' > d.py")]
    result = await merge(bench, project, *ids, verify=[CHECK])
    assert result.merge is not None
    assert [each.ids for each in result.merge.incompatible] == [[ids[1]]]
    assert result.merge.compatible == [ids[0]]


async def test_conflicts_leave_nothing_merged(bench: Bench, project: Path) -> None:
    one = await run(bench, project, "sed -i s/B/C/ b.py; echo fine > fine")
    two = await run(bench, project, "rm b.py")
    result = await merge(bench, project, one, two, verify=[CHECK])
    assert (result.termination_reason, result.files_modified) == ("refused", [])
    assert result.errors == ["nothing was merged: 1 conflict"]
    assert result.verification.verdict == "inconclusive"
    assert result.merge is not None
    (conflict,) = result.merge.conflicts
    assert (conflict.path, {each.id: each.change for each in conflict.sides}) == (
        "b.py",
        {one: "modified", two: "deleted"},
    )


async def test_commits_of_an_agent_are_not_in_the_way(bench: Bench, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    commit = "git add -A; git -c user.name=a -c user.email=a@b commit -qm mine"
    ids = [await run(bench, project, f"echo {number} > {number}; {commit}") for number in range(2)]
    result = await merge(bench, project, *ids)
    assert (result.success, result.files_modified) == (True, ["0", "1"])


async def test_the_time_of_a_merge_ends_the_search_and_keeps_what_is_known(bench: Bench, project: Path) -> None:
    slow = {"kind": "command", "run": "test ! -e a || test ! -e b || sleep 60; test ! -e a || test ! -e b"}
    one, two = await run(bench, project, "touch a"), await run(bench, project, "touch b")
    result = await merge(bench, project, one, two, verify=[slow], limits={"timeout_seconds": 2})
    assert (result.termination_reason, result.status) == ("timeout", "failed")
    assert result.files_modified == ["a", "b"]


async def test_a_cancelled_merge_ends(bench: Bench, project: Path) -> None:
    one = await run(bench, project, "touch a")
    check = {"kind": "command", "run": "sleep 100"}
    id = await accepted(bench, merges=[one], verify=[check])
    running = asyncio.create_task(carry_out(bench.services, id))
    await until(lambda: bool(grounds_in(bench.services.settings.workspaces, id, "base")))
    await bench.store.cancel(id)
    await running
    result = await bench.result(id)
    assert (result.status, result.verification.verdict) == ("cancelled", "inconclusive")


async def test_a_lost_merge_begins_anew(bench: Bench, project: Path) -> None:
    one, two = await run(bench, project, "echo 1 >> a.py"), await run(bench, project, "echo 2 > c.py")
    check = {"kind": "command", "run": "sleep 100"}
    id = await accepted(bench, merges=[one, two], verify=[check])
    await bench.interrupt(id, lambda: bool(grounds_in(bench.services.settings.workspaces, id, "base")))
    (bench.services.settings.workspaces / id / "files" / ".deputize-apply-left").mkdir()
    quick = DelegationRequest(task="merge", merges=[one, two])
    await bench.store.redis.hset(record_key(id), "request", quick.to_json())
    await carry_out(bench.services, id)
    result = await bench.result(id)
    assert (result.success, result.attempts, result.files_modified) == (True, 2, ["a.py", "c.py"])


async def test_a_service_refuses_what_cannot_be_merged(bench: Bench, project: Path, redis_url: str) -> None:
    other = project.parent / "other"
    other.mkdir()
    one, elsewhere = await run(bench, project, "touch a"), await run(bench, project, "touch b", workspace=str(other))
    large = await run(bench, project, "head -c 9000000 /dev/zero > large")
    waiting = await accepted(bench)
    async with open_service(bench.settings, redis_url) as service:
        for ids, why in (
            ([one, elsewhere], "began with different files"),
            ([one, large], "is not complete (large)"),
            ([one, waiting], "so it cannot be merged yet"),
        ):
            with pytest.raises(Conflict) as refused:
                await service.merge(MergeRequest(ids=ids))
            assert why in refused.value.detail
        with pytest.raises(NotFound):
            await service.merge(MergeRequest(ids=[one, "dlg_none"]))
        (bench.settings.workspaces / one / "base").rename(bench.settings.workspaces / one / "gone")
        with pytest.raises(Conflict, match="the files of"):
            await service.merge(MergeRequest(ids=[one]))


async def test_a_service_finds_conflicts_itself_and_submits_the_rest(
    bench: Bench, project: Path, redis_url: str
) -> None:
    ids = [await run(bench, project, f"sed -i s/one/{name}/ a.py; touch {name}") for name in ("uno", "eins")]
    project.joinpath("a.py").unlink()
    project.joinpath("b.py").unlink()
    project.rmdir()  # what was copied may be gone
    async with open_service(bench.settings, redis_url) as service:
        report = await service.merge(MergeRequest(ids=ids))
        assert (report.delegation, [each.path for each in report.conflicts]) == (None, ["a.py"])
        assert {side.text for side in report.conflicts[0].sides} == {
            f"-def one():\n+def {name}():\n     return 1\n" for name in ("uno", "eins")
        }
        report = await service.merge(MergeRequest(ids=ids[1:], dry_run=True))
        assert (report.delegation, report.files) == (None, ["a.py", "eins"])
        report = await service.merge(MergeRequest(ids=ids[1:]))
        assert report.delegation is not None
        await carry_out(bench.services, report.delegation.id)
        assert (await bench.result(report.delegation.id)).files_modified == ["a.py", "eins"]


async def test_a_merge_over_a_repository_is_delivered_as_one_commit(redis_url: str, tmp_path: Path) -> None:
    with git_server(tmp_path / "served") as server:
        source = make_repository(tmp_path / "source", FILES, commits=2)
        url = server.add(source)
        credentials = write_credentials(tmp_path / "credentials", server.host)
        own = {"git_hosts": [server.host], "git_credentials_file": credentials}
        async with (
            open_bench(redis_url, tmp_path / "home", **own) as bench,
            open_service(bench.settings, redis_url) as service,
        ):
            workspace = {"kind": "git", "url": url}
            ids = [await run(bench, source, f"echo {number} > {number}", workspace=workspace) for number in range(2)]
            report = await service.merge(MergeRequest(ids=ids))
            assert report.delegation is not None
            await carry_out(bench.services, report.delegation.id)
            done = await service.deliver(report.delegation.id)
        assert done.result is not None
        assert done.result.git is not None
        listed = git(server.root / "project.git", "show", "--format=%P", "--name-only", str(done.result.git.branch))
        assert listed.split() == [done.result.git.base, "0", "1"]


@pytest.mark.costly
async def test_what_the_checks_of_a_result_put_back_is_merged_only_when_asked_for(
    bench: Bench, project: Path, redis_url: str
) -> None:
    """Both results change the same test, which would be a conflict."""
    (project / "test_a.py").write_text("import a\n")
    one = await run(bench, project, "echo 'X = 1' >> b.py; echo 'import a, b' > test_a.py", verify=[CHECK])
    two = await run(bench, project, "echo 'import b' > test_a.py; echo 'C = 3' > c.py", verify=[CHECK])
    result = await merge(bench, project, one, two, verify=[CHECK])
    assert (result.success, result.files_modified) == (True, ["b.py", "c.py"])
    assert result.summary == "Merged 2 results: 2 files. Left out: test_a.py, which the checks put back."
    assert result.merge is not None
    assert result.merge.left_out == ["test_a.py"]
    async with open_service(bench.settings, redis_url) as service:
        report = await service.merge(MergeRequest(ids=[one, two], dry_run=True))
        assert (report.conflicts, report.files, report.left_out) == ([], ["b.py", "c.py"], ["test_a.py"])
        asked = MergeRequest(ids=[one, two], with_protected=True)
        assert [each.path for each in (await service.merge(asked)).conflicts] == ["test_a.py"]
    every = await merge(bench, project, two, merge_with_protected=True)
    assert every.files_modified == ["c.py", "test_a.py"]


UNIT = {"kind": "command", "run": "python3 -m unittest -q test_a"}
TESTS = """\
import unittest, a, b

class Test(unittest.TestCase):
    def test_one(self):
        self.assertEqual(a.one(), 1)

    def test_two(self):
        self.assertEqual(a.two(), 2)

    def test_never(self):
        self.fail()
"""


@pytest.mark.costly
async def test_what_one_result_repaired_and_another_one_breaks_names_both(bench: Bench, project: Path) -> None:
    """In the merge the test fails as before all of them, and another one is repaired."""
    (project / "test_a.py").write_text(TESTS)
    (project / "a.py").write_text("import b\n\n\ndef one():\n    return 0\n\n\n# Two.\n\n\ndef two():\n    return 0\n")
    asked = {"verify": [UNIT], "require": "improved"}
    one = await run(bench, project, "sed -i '5s/0/b.B - 1/' a.py", **asked)
    two = await run(bench, project, "sed -i '12s/0/2/' a.py", **asked)
    other = await run(bench, project, "sed -i s/2/5/ b.py")
    fine = await merge(bench, project, one, two, **asked)
    assert (fine.success, fine.verification.verdict) == (True, "improved")
    result = await merge(bench, project, one, two, other, **asked)
    assert (result.success, result.verification.verdict) == (False, "refuted")
    assert f"test_one passes with the changes of {one}, and fails in the merge" in result.errors[0]
    assert result.merge is not None
    assert [each.ids for each in result.merge.incompatible] == [[one, other]]
    assert result.merge.compatible in ([one, two], [two, other])
