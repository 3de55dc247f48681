"""A retry from a turn: the conversation and the files from before it, or a refusal that names the turns to choose."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from deputize.shared.delegation import ToolAgentResult
from deputize.shared.errors import Conflict, Invalid
from deputize.shared.limits import Limits
from deputize.shared.request import DelegationRequest
from deputize.worker.task import carry_out
from deputize.worker.workspace.objects import MAX_FILE_BYTES
from tests.fake_model import Turn, call, refuse, text
from tests.orchestrator.whole import Whole, writes
from tests.waiting import until
from tests.worker.workspace.trees import git

DONE = Turn([text("done")])


def looks() -> Turn:
    """A new one each time: it has ids of its own."""
    return Turn([call("glob", pattern="*")])


def writes_turn(path: str) -> Turn:
    return Turn([writes(path)])


async def again(whole: Whole, earlier: ToolAgentResult, turn: int) -> ToolAgentResult:
    new = (await whole.service.retry(earlier.delegation_id, from_turn=turn)).delegation
    assert (new.request.retry_of, new.request.from_turn) == (earlier.delegation_id, turn)
    return await whole.finished(new)


def project(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "project"
    folder.mkdir()
    folder.joinpath("kept.txt").write_text("kept\n")
    folder.joinpath("changed.txt").write_text("old\n")
    git(folder, "init", "-q")
    return {"kind": "directory", "path": str(folder)}


def tree(folder: Path) -> dict[str, str]:
    """Every file and link, but git's own; a link with where it leads."""
    found = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return {
        str(name): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for name, path in found.items()
        if name.parts[0] not in (".git", ".deputize")
    }


async def test_a_turn_before_the_first_change_begins_with_the_files_of_the_start(whole: Whole, tmp_path: Path) -> None:
    source = project(tmp_path)
    changes = Turn([call("write_file", path="changed.txt", content="new\n"), writes("made.txt")])
    first = await whole.first(looks(), changes, DONE, workspace=source)
    (tmp_path / "project" / "kept.txt").write_text("changed since\n")
    result = await again(whole, first, 2)
    assert (result.success, result.turn_count) == (True, 2), result.errors
    assert sorted(result.files_modified) == ["changed.txt", "made.txt"]
    assert await whole.service.patch(result.delegation_id) == await whole.service.patch(first.delegation_id)
    sent = [len(asked.body["messages"]) for asked in whole.model.journal]
    assert sent == [1, 3, 5, 3, 5], "the first turn is not done again"
    files = whole.bench.settings.workspaces / result.delegation_id / "files"
    assert files.joinpath("kept.txt").read_text() == "kept\n"
    assert files.joinpath(".git", "HEAD").exists()


async def test_a_turn_after_the_last_change_keeps_the_files_and_the_patch_has_all_changes(
    whole: Whole, tmp_path: Path
) -> None:
    failing = Turn([text("done after all")], faults=[refuse(401)])
    changes = Turn([call("write_file", path="changed.txt", content="new\n"), writes("made.txt")])
    first = await whole.first(looks(), changes, failing, workspace=project(tmp_path))
    assert (first.termination_reason, first.turn_count) == ("model_unavailable", 3)
    result = await again(whole, first, 3)
    assert (result.summary, result.turn_count) == ("done after all", 1)
    assert sorted(result.files_modified) == ["changed.txt", "made.txt"]
    assert await whole.service.patch(result.delegation_id) == await whole.service.patch(first.delegation_id)
    assert json.dumps(whole.sent()).count("the first task") == 1


async def test_any_turn_begins_with_the_files_from_before_it(whole: Whole, tmp_path: Path) -> None:
    bash = "ln -s made there; printf 'a\\0b' > deep/binary; chmod 700 deep/binary; rm changed.txt; git commit -qm x"
    commit = bash.replace("git commit", "git add -A; git -c user.name=x -c user.email=x@y commit")
    many = Turn([writes("made"), call("write_file", path="changed.txt", content="new\n"), writes("deep/er/file")])
    back = Turn([call("write_file", path="changed.txt", content="old\n"), call("bash", command="rm there; mv made m")])
    turns = [looks(), many, Turn([call("bash", command=commit)]), looks(), back, DONE]
    source = project(tmp_path)
    first = await whole.first(*turns, workspace=source)
    assert (first.errors, first.turn_count) == ([], 6)
    made = {"made": "this is made\n", "deep/er/file": "this is deep/er/file\n"}
    start = {"kept.txt": "kept\n", "changed.txt": "old\n"}
    second = {"kept.txt": "kept\n", "changed.txt": "new\n", **made}
    third = {"kept.txt": "kept\n", **made, "there": "-> made", "deep/binary": "a\0b"}
    last = {"kept.txt": "kept\n", "changed.txt": "old\n", "m": made["made"], "deep/er/file": made["deep/er/file"]}
    whole.model.script("the first task", [DONE] * 6)
    wanted = [start, start, second, third, third, last | {"deep/binary": "a\0b"}]
    for turn, files in enumerate(wanted, 1):
        result = await again(whole, first, turn)
        folder = whole.bench.settings.workspaces / result.delegation_id / "files"
        assert tree(folder) == files, turn
        assert len(git(folder, "log", "--oneline", "--all").splitlines()) == (turn > 3), turn
        changed = {change.path for change in result.file_changes} | {change.from_ for change in result.file_changes}
        assert turn < 6 or stat.S_IMODE((folder / "deep/binary").stat().st_mode) == 0o700
        assert changed - {None, ".git"} == {path for path in {*files, *start} if files.get(path) != start.get(path)}


async def test_a_content_that_is_not_kept_is_refused_by_name_for_those_turns(whole: Whole) -> None:
    large = Turn([call("bash", command=f"head -c {MAX_FILE_BYTES + 1} /dev/zero > large")])
    gone = Turn([call("bash", command="rm large")])
    first = await whole.first(writes_turn("a"), large, looks(), gone, writes_turn("b"), DONE)
    for turn in (3, 4):
        why = f"before turn {turn} are not all kept: large is too large.* can be chosen: 1 to 2, 5 to 6; `deputize cont"
        with pytest.raises(Conflict, match=why):
            await whole.service.retry(first.delegation_id, from_turn=turn)
    with pytest.raises(Invalid, match="had 6 turns"):
        await whole.service.retry(first.delegation_id, from_turn=7)
    for turn in (2, 5, 6):
        assert (await again(whole, first, turn)).files_modified == ["a", "b"]


async def test_an_artifact_counts_as_a_change_of_files(whole: Whole) -> None:
    notes = Turn([call("create_artifact", name="notes.md", content="kept")])
    first = await whole.first(looks(), notes, looks(), DONE, tools=["glob", "create_artifact"])
    result = await again(whole, first, 3)
    assert [artifact.name for artifact in result.artifacts] == ["notes.md"]
    whole.model.script("the first task", [DONE] * 4)
    assert [len((await again(whole, first, turn)).artifacts) for turn in (2, 3)] == [0, 1]
    whole.model.script("the first task", [looks(), notes, looks(), DONE])
    anew = await again(whole, first, 2)
    assert (anew.artifacts, anew.errors) == (result.artifacts, [])


async def test_a_retry_from_a_turn_can_itself_be_retried_from_a_turn(whole: Whole) -> None:
    first = await whole.first(looks(), writes_turn("a.txt"), looks(), DONE)
    second = await again(whole, first, 2)
    assert (second.turn_count, second.files_modified) == (3, ["a.txt"])
    third = await again(whole, second, 2)
    assert (third.turn_count, third.files_modified, third.summary) == (2, ["a.txt"], "done")
    assert [len(asked.body["messages"]) for asked in whole.model.journal] == [1, 3, 5, 7, 3, 5, 7, 5, 7]


async def test_the_first_turn_of_a_continuation_begins_with_the_files_that_it_began_with(whole: Whole) -> None:
    reads = Turn([call("read_file", path="a.txt")])
    first = await whole.first(writes_turn("a.txt"), DONE, looks(), writes_turn("b.txt"), DONE, reads, DONE)
    second = await whole.finished(await whole.continued(first.delegation_id, "now b"))
    assert second.files_modified == ["a.txt", "b.txt"]
    third = await again(whole, second, 1)
    assert third.success, third.errors
    files = whole.bench.settings.workspaces / third.delegation_id / "files"
    assert (files / "a.txt").exists()
    fourth = await again(whole, third, 1)
    assert (whole.bench.settings.workspaces / fourth.delegation_id / "files/a.txt").exists()


async def test_what_it_would_not_be_a_part_of_is_refused(whole: Whole) -> None:
    first = await whole.first(looks(), writes_turn("a.txt"), DONE)
    id = first.delegation_id
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"task": "another", "retry_of": id}, "/task"),
        ({"task": "the first task", "retry_of": id, "model": "m"}, "/model"),
        ({"task": "the first task"}, "/fromTurn"),
    ]
    for fields, pointer in refusals:
        with pytest.raises(Invalid) as refused:
            await whole.service.create(DelegationRequest(from_turn=2, **fields))
        assert refused.value.errors[0]["pointer"] == pointer
    shutil.rmtree(whole.bench.settings.workspaces / id)
    with pytest.raises(Conflict, match="files of"):
        await whole.service.retry(id, from_turn=2)


async def test_a_repository_that_the_run_changed_is_as_at_the_start_or_not_taken_for_that(
    whole: Whole, tmp_path: Path
) -> None:
    source = project(tmp_path)
    git(Path(source["path"]), "add", "-A")
    git(Path(source["path"]), "commit", "-qm", "first")
    first = await whole.first(looks(), writes_turn("a.txt"), DONE, workspace=source)
    folder = whole.bench.settings.workspaces / first.delegation_id / "files"
    folder.joinpath(".git", "HEAD").write_text("ref: refs/heads/another\n")
    result = await again(whole, first, 2)
    restored = whole.bench.settings.workspaces / result.delegation_id / "files"
    assert (result.success, git(restored, "log", "--format=%s")) == (True, "first\n")
    assert result.files_modified == ["a.txt"]
    next(path for path in folder.joinpath(".git", "objects").rglob("*") if path.is_file()).unlink()
    result = await again(whole, first, 2)
    assert (result.termination_reason, "git's own state" in result.summary) == ("refused", True)


@pytest.mark.parametrize("how", ["out of time", "its worker was stopped", "in the background"])
async def test_changes_that_no_call_has_reported_belong_to_their_turn(whole: Whole, how: str) -> None:
    command = "echo x > b.txt; sleep 50" if how == "out of time" else "echo x > b.txt; sleep 1"
    slow = Turn([call("bash", command=command, run_in_background=how == "in the background")])
    waits = Turn([call("bash", command="until test -e b.txt; do sleep 0.05; done")])
    whole.model.script("the first task", [writes_turn("a.txt"), slow, waits, looks(), DONE])
    limits = Limits(timeout_seconds=3 if how == "out of time" else 60)
    request = DelegationRequest(task="the first task", limits=limits)
    new = (await whole.service.create(request)).delegation
    running = asyncio.create_task(carry_out(whole.bench.services, new.id))
    written = whole.bench.settings.workspaces / new.id / "files" / "b.txt"
    await until(written.exists)
    if how == "its worker was stopped":
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await whole.service.cancel(new.id)
        running = asyncio.create_task(carry_out(whole.bench.services, new.id))
    await running
    result = await whole.bench.result(new.id)
    assert "b.txt" in result.files_modified
    whole.model.script("the first task", [DONE] * 6)
    background = how == "in the background"
    first_with_b = 4 if background else 3
    for turn in range(2, result.turn_count + 1):
        anew = await again(whole, result, turn)
        assert anew.files_modified == (["a.txt", "b.txt"] if turn >= first_with_b else ["a.txt"]), turn
