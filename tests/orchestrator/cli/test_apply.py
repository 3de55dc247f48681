"""`deputize apply`: what a run changed reaches the caller's directory, and nothing of the caller's is lost."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from deputize.orchestrator.orchestrator import Orchestrator
from deputize.shared.delegation import TerminationReason
from deputize.shared.patches.merge import OUT_OF_REACH
from deputize.shared.request import DelegationRequest
from deputize.worker.workspace.workspace import Workspace
from tests.orchestrator.cli.following import run
from tests.orchestrator.command_line import Done, deputize
from tests.orchestrator.fake_service import FakeService
from tests.orchestrator.terminal import on_terminal
from tests.shared.patches.patching import patch_of
from tests.worker.workspace.trees import directory, tree

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The caller's directory, no repository."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/main.py").write_text(TEXT)
    (folder / "run me.sh").write_text("#!/bin/sh\n")
    (folder / "old name").write_text("moves\n")
    (folder / "gone/deep").mkdir(parents=True)
    (folder / "gone/deep/file").write_text("goes\n")
    (folder / "link").symlink_to("src/main.py")
    (folder / "logo.png").write_bytes(bytes(range(256)) * 5)
    return folder


async def changed(folder: Path, root: Path) -> str:
    """The patch of a run that makes a change of every kind."""
    workspace = await Workspace.create(directory(folder), "dlg_x", root)
    path = workspace.path
    (path / "src/main.py").write_text(TEXT.replace("line 10\n", "line ten\nand more\n"))
    (path / "run me.sh").chmod(0o755)
    (path / "old name").rename(path / "né w")
    shutil.rmtree(path / "gone")
    (path / "gone").write_text("a file now\n")
    (path / "link").unlink()
    (path / "link").symlink_to("run me.sh")
    (path / "logo.png").write_bytes(bytes(range(255, -1, -1)) * 5)
    (path / "new/deep").mkdir(parents=True)
    (path / "new/deep/empty").write_text("")
    (path / "new/no-end").write_bytes(b"a\r\nb")
    patch = (await workspace.facts()).patch
    workspace.close()
    return patch


async def finished(service: FakeService, folder: Path, patch: str, **fields: Any) -> str:
    request = DelegationRequest(task="x", workspace=directory(folder))
    id = (await service.create(request)).delegation.id
    service.patches[id] = patch
    service.finish(id, **fields)
    return id


async def apply(url: str, *arguments: str) -> Done:
    return await deputize("apply", *arguments, DEPUTIZE_URL=url)


async def test_every_kind_of_change_is_taken_over_and_back(
    url: str, service: FakeService, folder: Path, tmp_path: Path
) -> None:
    before = tree(folder)
    patch = await changed(folder, tmp_path / "root")
    wanted = tree(tmp_path / "root/dlg_x/files")
    (folder / "logo.png.bak").write_bytes((folder / "logo.png").read_bytes())
    id = await finished(service, folder, patch)
    checked = await apply(url, id, "--check")
    assert (checked.code, tree(folder).keys()) == (0, before.keys() | {"logo.png.bak"})
    assert checked.out.splitlines()[0] == f"9 changes can be applied to {folder}"
    done = await apply(url, id[-8:])
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == f"9 changes applied to {folder}"
    assert "  renamed old name → né w" in done.out.splitlines()
    (folder / "logo.png.bak").unlink()
    assert tree(folder) == wanted
    again = await apply(url, id)
    assert (again.code, again.out) == (0, f"nothing to do in {folder}: it has every change already\n")
    assert done.err.endswith(f"deputize apply {id} --reverse\n")
    # The earlier binary content is in no patch; without it nothing at all is taken back.
    back = await apply(url, id, "--reverse")
    assert back.code == 1
    assert "logo.png: its earlier content is not in the patch" in back.err
    assert tree(folder) == wanted


async def test_links_that_lead_out_are_named(url: str, service: FakeService, folder: Path) -> None:
    workspace = await Workspace.create(directory(folder), "dlg_x", folder.parent / "root")
    targets = {"a": "../../etc", "src/b": "../..", "c": "/etc/passwd", "src/d/e": "./../../../x"}
    for name, target in (targets | {"in": "src/main.py", "src/in": "../link", "src/dots": "..hidden"}).items():
        (workspace.path / name).parent.mkdir(exist_ok=True)
        (workspace.path / name).symlink_to(target)
    patch = (await workspace.facts()).patch
    workspace.close()
    id = await finished(service, folder, patch)
    for arguments in (["--check"], []):
        done = await apply(url, id, *arguments)
        assert done.code == 0
        named = [line for line in done.out.splitlines() if "leads out" in line]
        about = "a link that leads out of the directory"
        assert sorted(named) == [f"  created {name}, {about}: {targets[name]}" for name in sorted(targets)]


async def test_text_changes_are_taken_back_beside_later_ones(url: str, service: FakeService, folder: Path) -> None:
    before = tree(folder)
    patch = await changed(folder, folder.parent / "root")
    id = await finished(service, folder, patch.partition("diff --git a/logo.png")[0])
    assert (await apply(url, id)).code == 0
    (folder / "src/main.py").write_text((folder / "src/main.py").read_text().replace("line 20", "line twenty"))
    done = await apply(url, id, "--reverse")
    assert done.code == 0, done.err
    assert (folder / "src/main.py").read_text() == TEXT.replace("line 20", "line twenty")
    assert tree(folder).keys() <= before.keys()


async def test_what_went_into_another_directory_is_taken_back_there(
    url: str, service: FakeService, folder: Path
) -> None:
    patch = patch_of("src/main.py", TEXT.encode(), b"new\n")
    id = await finished(service, folder, patch, ignored_files=["new.log"], ignored_count=1)
    other = folder.parent / "another one"
    shutil.copytree(folder, other, symlinks=True)
    done = await apply(url, id, "--into", str(other))
    assert f"deputize apply {id} --with-ignored --into '{other}'" in done.err
    hint = done.err.rpartition("to take it back: ")[2]
    assert hint.endswith(f"deputize apply {id} --reverse --into '{other}'\n")
    back = await apply(url, *shlex.split(hint)[2:])
    assert (back.code, back.out.splitlines()[0]) == (0, f"1 change taken back in {other}")
    assert tree(other) == tree(folder)
    again = await apply(url, *shlex.split(hint)[2:])
    assert (again.code, again.out) == (0, f"nothing to do in {other}: it has none of the changes\n")


@pytest.mark.long
async def test_what_was_changed_here_since_is_merged(url: str, service: FakeService, folder: Path) -> None:
    patch = await changed(folder, folder.parent / "root")
    (folder / "src/main.py").write_text("first\n" + TEXT.replace("line 15", "line fifteen"))
    id = await finished(service, folder, patch)
    done = await apply(url, id)
    assert done.code == 0, done.err
    assert "  modified src/main.py, merged with the changes here" in done.out.splitlines()
    text = (folder / "src/main.py").read_text()
    assert text == "first\n" + TEXT.replace("line 10\n", "line ten\nand more\n").replace("line 15", "line fifteen")


async def test_where_work_would_be_lost_nothing_is_changed_and_the_files_are_named(
    url: str, service: FakeService, folder: Path
) -> None:
    patch = await changed(folder, folder.parent / "root")
    (folder / "src/main.py").write_text(TEXT.replace("line 10", "my ten"))
    (folder / "logo.png").write_bytes(b"\0mine")
    (folder / "gone/deep/file").write_text("still needed\n")
    (folder / "new").write_text("mine\n")
    before = tree(folder)
    id = await finished(service, folder, patch)
    for options in ([], ["--check"]):
        done = await apply(url, id, *options)
        assert (done.code, done.out) == (1, "")
        assert done.err.splitlines() == [
            f"nothing was changed in {folder}: 6 files would lose other work",
            "  gone: a directory is here already, and the run created it with another content",
            "  gone/deep/file: it was changed here since, and the run deleted it",
            "  logo.png: this binary file was changed here since, too, by something else than this run",
            "  new/deep/empty: its folder new is a file here",
            "  new/no-end: its folder new is a file here",
            f"  src/main.py: {OUT_OF_REACH}",
        ]
    assert tree(folder) == before
    report = json.loads((await apply(url, id, "--json")).out)
    assert report["applied"] == []
    assert len(report["refused"]) == 6


async def test_without_a_directory_the_error_shows_where_one_is_named(
    url: str, service: FakeService, tmp_path: Path
) -> None:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    waiting = await apply(url, id, "--into", str(tmp_path))
    assert (waiting.code, "is not finished yet (queued)" in waiting.err) == (2, True)
    service.finish(id)
    assert "--into DIR" in (await apply(url, id)).err
    done = await apply(url, id, "--into", str(tmp_path))
    assert (done.code, done.out) == (0, f"nothing to do in {tmp_path}: no file was changed\n")


@pytest.mark.parametrize("reason", [TerminationReason.COMPLETED, TerminationReason.ERROR])
async def test_a_run_applies_its_changes_only_after_success(
    url: str, service: FakeService, folder: Path, reason: TerminationReason
) -> None:
    patch = await changed(folder, folder.parent / "root")

    def finish(id: str) -> None:
        service.patches[id] = patch
        service.finish(id, reason, summary="Done.", file_changes=[{"path": "né w", "change": "renamed"}])

    done = await run(url, service, "x", "--workspace", str(folder), "--apply", then=finish)
    assert done.out == "Done.\n"
    if reason is TerminationReason.COMPLETED:
        assert f"9 changes applied to {folder}" in done.err.splitlines()
        assert (folder / "né w").exists()
    else:
        assert f"nothing was applied to {folder}: it ended as error" in done.err.splitlines()
        assert "itself is unchanged; to take this over: " in done.err
        assert not (folder / "né w").exists()


@pytest.mark.parametrize(
    ("verdict", "require", "code"),
    [
        ("verified", "passed", 0),
        ("passed", "passed", 0),
        ("passed", "verified", 6),
        ("improved", "passed", 6),
        ("improved", "improved", 0),
        ("inconclusive", "improved", 6),
        ("unverified", "passed", 6),
        ("refuted", "improved", 1),
        ("inconclusive", None, 6),
    ],
)
async def test_a_run_with_checks_applies_only_what_is_required(
    url: str, service: FakeService, folder: Path, verdict: str, require: str | None, code: int
) -> None:
    """A result without ``require`` is one of an older worker."""
    patch = await changed(folder, folder.parent / "root")

    def finish(id: str) -> None:
        service.patches[id] = patch
        found = {"verdict": verdict, "require": require, "why": "so it is"}
        service.finish(id, verification=found, file_changes=[{"path": "né w", "change": "renamed"}])

    given = ("x", "--workspace", str(folder), "--json", "--verify", "make test", "--require", require or "passed")
    done = await run(url, service, *given, "--apply", then=finish)
    assert (done.code, (folder / "né w").exists()) == (code, code == 0)
    (refused,) = [line for line in done.err.splitlines() if line.startswith("nothing was applied")] or [""]
    words = "the checks refute the result" if code == 1 else f"the verdict is {verdict}, and {require or 'passed'} is"
    assert refused.startswith(f"nothing was applied to {folder}: {words}") is bool(code)
    assert (refused.endswith(": so it is"), "to take this over: " in done.err) == (bool(code), bool(code))
    assert (await run(url, service, *given, then=finish)).code == code


async def test_apply_of_a_run_needs_a_directory(url: str) -> None:
    done = await deputize("run", "x", "--apply", DEPUTIZE_URL=url)
    assert (done.code, "--workspace DIR" in done.err) == (2, True)


COLOURED = [
    "\x1b[1mdiff --git a/a b/a\x1b[0m",
    "\x1b[1m--- a/a\x1b[0m",
    "\x1b[1m+++ b/a\x1b[0m",
    "\x1b[36m@@ -1 +1 @@\x1b[0m",
    "\x1b[31m-old\x1b[0m",
    "\x1b[32m+new \\x1b[0m\x1b[0m",
]


@pytest.mark.parametrize("no_color", ["", "1"])
async def test_on_a_terminal_the_patch_has_colours_of_ours_alone(url: str, service: FakeService, no_color: str) -> None:
    id = (await service.create(DelegationRequest(task="x"))).delegation.id
    service.patches[id] = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new \x1b[0m\n"
    variables: dict[str, Any] = {"DEPUTIZE_URL": url} | ({"NO_COLOR": no_color} if no_color else {})
    async with on_terminal("show", id, "--patch", **variables) as terminal:
        assert await terminal.ended() == 0
    lines = terminal.drawn.replace("\r\n", "\n").splitlines()
    plain = [re.sub(r"\x1b\[\d+m", "", line) for line in COLOURED]
    assert lines == (plain if no_color else COLOURED)


async def conversation(service: FakeService, folder: Path) -> list[str]:
    """Three delegations, each of which continues the one before; their patches count from the same start."""
    texts = [TEXT.replace("line 10\n", f"line {number}\n") for number in ("ten", "TEN", "X")]
    ids: list[str] = []
    for number, text in enumerate(texts):
        created = patch_of("made", None, f"version {number}\n".encode())
        patch = patch_of("src/main.py", TEXT.encode(), text.encode()) + created
        fields: dict[str, Any] = {"continues": ids[-1]} if ids else {}
        request = DelegationRequest(task=f"part {number}", workspace=directory(folder), **fields)
        ids.append((await service.create(request)).delegation.id)
        service.patches[ids[-1]] = patch
        service.finish(ids[-1], file_changes=[{"path": "made", "change": "created"}])
    return ids


@pytest.mark.parametrize("before", [[], [0], [1], [0, 1], [2]], ids=str)
async def test_a_continuation_brings_the_whole_conversation_whichever_part_is_here(
    before: list[int], url: str, service: FakeService, folder: Path
) -> None:
    ids = await conversation(service, folder)
    for number in before:
        assert (await apply(url, ids[number])).code == 0
    done = await apply(url, ids[2])
    assert done.code == 0, done.err
    assert (folder / "src/main.py").read_text() == TEXT.replace("line 10\n", "line X\n")
    assert (folder / "made").read_text() == "version 2\n"
    count = "nothing to do in" if before == [2] else "2 changes applied to"
    assert done.out.startswith(count)
    assert (await apply(url, ids[2])).out.startswith("nothing to do in")


async def test_a_continuation_whose_earlier_parts_were_pruned_is_applied(
    url: str, service: FakeService, folder: Path
) -> None:
    ids = await conversation(service, folder)
    for id in ids[:2]:
        del service.runs[id]
    assert (await apply(url, ids[2])).out.startswith("2 changes applied to")


async def test_show_states_that_changes_are_those_of_the_whole_conversation(
    url: str, service: FakeService, folder: Path
) -> None:
    ids = await conversation(service, folder)
    shown = (await deputize("show", ids[1], DEPUTIZE_URL=url)).out
    assert f"continues  {ids[0]}; changes are counted from the start of the conversation\n" in shown
    request = service.runs[ids[1]].request.model_copy(update={"retry_of": ids[1], "from_turn": 2})
    again = (await service.create(request)).delegation.id
    shown = (await deputize("show", again, DEPUTIZE_URL=url)).out
    assert f"retry of   {ids[1]} from turn 2; changes are counted from the start of the conversation\n" in shown
    assert "counted from" not in (await deputize("show", ids[0], DEPUTIZE_URL=url)).out


async def test_a_childs_changes_are_not_written_into_its_parents_copy(
    url: str, service: FakeService, folder: Path
) -> None:
    parent = await finished(service, folder, "")
    copy = folder / parent / "files"
    copy.mkdir(parents=True)
    child = await finished(service, copy, patch_of("made", None, b"x"))
    done = await apply(url, child)
    assert (done.code, f"a copy of the files of {parent}; apply that one" in done.err) == (2, True)
    assert list(copy.iterdir()) == []
    assert (await apply(url, child, "--into", str(folder))).code == 0


async def test_what_the_checks_put_back_is_taken_over_only_when_asked_for(
    url: str, service: FakeService, folder: Path
) -> None:
    patch = patch_of("src/main.py", TEXT.encode(), b"new\n") + patch_of("tests/test_x.py", None, b"x\n")
    found = {"verdict": "verified", "restored": ["tests/test_x.py"]}
    id = await finished(service, folder, patch, verification=found)
    before = tree(folder)
    done = await apply(url, id)
    assert (done.code, done.out.splitlines()) == (0, [f"1 change applied to {folder}", "  modified src/main.py"])
    hint = "  left out: tests/test_x.py, which the checks put back; to take them, too: "
    (line,) = [line for line in done.err.splitlines() if line.startswith(hint)]
    assert json.loads((await apply(url, id, "--json", "--check")).out)["leftOut"] == ["tests/test_x.py"]
    done = await apply(url, *shlex.split(line.removeprefix(hint))[2:])
    assert (done.code, (folder / "tests/test_x.py").read_text()) == (0, "x\n")
    assert "left out" not in done.err
    back = done.err.rpartition("to take it back: ")[2]
    done = await apply(url, *shlex.split(back)[2:])
    assert (done.code, tree(folder)) == (0, before), done.err
    async with Orchestrator(url=url, token="t") as orchestrator:
        assert [each.path for each in await orchestrator.apply(id, folder)] == ["src/main.py"]
        assert [each.path for each in await orchestrator.apply(id, folder, with_protected=True)] == ["tests/test_x.py"]


async def test_a_continuation_does_not_take_back_what_was_taken_over_on_purpose(
    url: str, service: FakeService, folder: Path
) -> None:
    test = patch_of("tests/test_x.py", None, b"x\n")
    found = {"verdict": "verified", "restored": ["tests/test_x.py"]}
    first = await finished(service, folder, test, verification=found)
    assert (await apply(url, first, "--with-protected")).code == 0
    request = DelegationRequest(task="x", workspace=directory(folder), continues=first)
    second = (await service.create(request)).delegation.id
    service.patches[second] = patch_of("src/main.py", TEXT.encode(), b"new\n") + test
    service.finish(second, verification=found)
    done = await apply(url, second)
    assert (done.code, done.out.splitlines()) == (0, [f"1 change applied to {folder}", "  modified src/main.py"])
    assert (folder / "tests/test_x.py").read_text() == "x\n"


async def test_a_run_takes_what_the_checks_put_back_with_an_option(
    url: str, service: FakeService, folder: Path
) -> None:
    def finish(id: str) -> None:
        service.patches[id] = patch_of("tests/test_x.py", None, b"x\n")
        found = {"verdict": "verified", "restored": ["tests/test_x.py"]}
        service.finish(id, verification=found, file_changes=[{"path": "tests/test_x.py", "change": "created"}])

    given = ("x", "--workspace", str(folder), "--verify", "make test", "--apply")
    done = await run(url, service, *given, then=finish)
    assert (done.code, (folder / "tests").exists(), "left out: tests/test_x.py" in done.err) == (0, False, True)
    done = await run(url, service, *given, "--with-protected", then=finish)
    assert (done.code, (folder / "tests/test_x.py").exists(), "left out" in done.err) == (0, True, False)
